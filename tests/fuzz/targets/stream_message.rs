//! Bytes of a streaming client: the headers of its request, WebSocket messages, a terminal's sizes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use runtime_streaming::fuzz;

fuzz_target!(|bytes: &[u8]| {
    fuzz::request(bytes);
    fuzz::message(bytes);
    fuzz::sizes(bytes);
});
