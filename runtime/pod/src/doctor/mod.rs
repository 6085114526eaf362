//! The comparison of the records with the node, for `podvisor doctor`. No daemon runs it.
//!
//! ```text
//!   on_record.rs   the daemons' records ──────────┐
//!                                                 ├─► differences.rs (pure) ─► repair.rs, one at a time
//!   on_node.rs     the traces of pods on the node ┘
//! ```
//!
//! The node is inspected first, then the record: new objects are on record before they are on the node. An
//! object being removed may be on the node alone for a moment, so a difference counts only if a second pass
//! finds it again ([`in_both`]).

mod differences;
mod files;
mod on_node;
mod on_record;
mod repair;

pub use differences::{Difference, differences, in_both};
pub use on_node::OnNode;
pub use on_record::{Daemon, DaemonPlace, Life, OnRecord, PodOnRecord};
pub use repair::repair;
