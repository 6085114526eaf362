//! Bytes of a streaming client: SPDY frames and header blocks, in any pieces. The memory that is held is bounded, and pieces
//! make no difference.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    runtime_streaming::fuzz::spdy(bytes);
});
