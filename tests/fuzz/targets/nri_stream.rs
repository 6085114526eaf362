//! A plugin's stream: frames of its two connections.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| runtime_nri::fuzz::stream(bytes));
