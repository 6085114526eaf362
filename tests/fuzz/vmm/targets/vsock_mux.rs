//! Packets of a guest and acts of the host at the connections of a vsock device, without threads: the same input always does the same.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(init: tests_fuzz_vmm::begin(), |bytes: &[u8]| tests_fuzz_vmm::streams::run(bytes));
