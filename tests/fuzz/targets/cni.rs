//! Bytes of an operator and of a CNI plugin: configuration files and answers.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    runtime_net::fuzz::configuration(bytes);
    runtime_net::fuzz::answer(bytes);
});
