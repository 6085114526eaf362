//! Bytes of an operator and of a driver: CDI files, and names of devices.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    runtime_cdi::fuzz::json(bytes);
    runtime_cdi::fuzz::yaml(bytes);
    runtime_cdi::fuzz::name(bytes);
});
