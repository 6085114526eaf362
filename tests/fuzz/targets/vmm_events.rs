//! Packets of a hostile VMM to the daemon, and the daemon's questions meanwhile.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| tests_fuzz::vmm_events::run(bytes));
