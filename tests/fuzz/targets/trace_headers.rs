//! A caller's `traceparent` and `tracestate`.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    runtime_traces::fuzz::headers(text);
});
