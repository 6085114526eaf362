//! A guest that does anything to any of its devices, while the host plugs, saves and hangs up.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(init: tests_fuzz_vmm::begin(), |bytes: &[u8]| tests_fuzz_vmm::program::run(bytes));
