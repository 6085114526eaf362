//! The seeds of the fuzz target `agent_calls`, and mixes of them.

#![allow(missing_docs, unreachable_pub, dead_code, clippy::unwrap_used)]

#[path = "../../../tests/fuzz/src/answers.rs"]
mod answers;
#[path = "../../../tests/fuzz/src/plan.rs"]
mod plan;
#[path = "../../../tests/fuzz/src/script.rs"]
mod script;
#[path = "../../../tests/fuzz/src/seeds.rs"]
mod seeds;
#[path = "../../../tests/fuzz/src/texts.rs"]
mod texts;

#[test]
fn no_answer_of_a_guest_exceeds_its_bounds_or_keeps_the_daemon_waiting() {
    seeds::run_all("agent_calls", answers::run);
}
