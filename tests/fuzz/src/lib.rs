//! Fuzz targets with more than one step: conversations of the daemon with a hostile guest or a hostile
//! VMM. The fuzzer's input is a [`script`] for both sides.
//!
//! Tests of `runtime/guest` and `runtime/vm` include these files and run the committed seeds.

pub mod answers;
pub mod plan;
pub mod script;
pub mod texts;
pub mod vmm_events;
pub mod vmm_messages;
