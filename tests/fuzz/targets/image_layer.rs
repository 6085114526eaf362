//! Bytes of a registry: a layer's archive.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    runtime_image::fuzz::archive(bytes);
});
