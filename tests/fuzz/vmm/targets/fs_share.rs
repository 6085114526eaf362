//! A driver of files that asks for anything, over a tree with links that lead out. No file outside may be read, changed, made or
//! removed, each request is answered once, and nothing outside is in an answer.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(init: tests_fuzz_vmm::begin(), |bytes: &[u8]| tests_fuzz_vmm::files::run(bytes));
