//! Bytes of a registry: manifests, indexes and configs; and a user's image names.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    runtime_image::fuzz::documents(bytes);
    if let Ok(text) = std::str::from_utf8(bytes) {
        runtime_image::fuzz::image_name(text);
    }
});
