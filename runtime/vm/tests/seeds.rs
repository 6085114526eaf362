//! The seeds of the fuzz target `vmm_events`, and mixes of them. This test counts the process's
//! descriptors, so it is the only one here.

#![allow(missing_docs, unreachable_pub, dead_code, clippy::unwrap_used)]

#[path = "../../../tests/fuzz/src/script.rs"]
mod script;
#[path = "../../../tests/fuzz/src/seeds.rs"]
mod seeds;
#[path = "../../../tests/fuzz/src/texts.rs"]
mod texts;
#[path = "../../../tests/fuzz/src/vmm_events.rs"]
mod vmm_events;
#[path = "../../../tests/fuzz/src/vmm_messages.rs"]
mod vmm_messages;

#[test]
fn no_packet_of_a_vmm_exceeds_its_bounds_or_keeps_the_daemon_waiting() {
    seeds::run_all("vmm_events", vmm_events::run);
}
