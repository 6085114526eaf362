//! Answers of a hostile guest to the daemon's calls, one call after another.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| tests_fuzz::answers::run(bytes));
