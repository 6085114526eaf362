//! The comparison of what is on record with what the node has, for `podvisor doctor`: no daemon does it.
//!
//! ```text
//!   on_record.rs   what the daemons have on record ──┐
//!                                                    ├─► differences.rs (pure) ─► repair.rs, one at a time
//!   on_node.rs     what the node has of pods ────────┘
//! ```
//!
//! The node is looked at first and the record read afterwards: what is being made is on record before it is on the node.
//! A thing that is being taken away may be on the node alone for a moment, so a difference counts where a second look finds it
//! again ([`in_both`]).

mod differences;
mod files;
mod on_node;
mod on_record;
mod repair;

pub use differences::{Difference, differences, in_both};
pub use on_node::OnNode;
pub use on_record::{Daemon, DaemonPlace, Life, OnRecord, PodOnRecord};
pub use repair::repair;
