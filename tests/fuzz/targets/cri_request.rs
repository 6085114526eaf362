//! Bytes of a CRI client: a RunPodSandbox and a CreateContainer in its pod, through conversion, checks, sizing and
//! the resolution for the guest. Nothing may panic, and what is accepted must be expressible to the agent.
#![no_main]

use libfuzzer_sys::fuzz_target;
use runtime_cri::fuzz;

fuzz_target!(|parts: (Vec<u8>, Vec<u8>)| {
    fuzz::run_pod_sandbox(&parts.0);
    fuzz::create_container(&parts.0, &parts.1);
});
