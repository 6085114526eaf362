//! The node's CDI files (Container Device Interface): they map the qualified name of a device to edits of a
//! container.
//!
//! ```text
//!    /etc/cdi/*.json, *.yaml ─┐              ┌─ document.rs (allowed fields), version.rs (since when)
//!   /var/run/cdi/…          ─┴─> directory.rs ─> file.rs ─┴─> check.rs ─> CdiFile, or a Fault
//!                                                                            │
//!   names of a request ──────────────────────────────────────────> Snapshot::resolve ─> Vec<Edits>
//! ```
//!
//! The files are read again for each request. They are few, and so a change takes effect at once and nothing
//! is ever stale. An unusable file is a [`Fault`]. It only affects requests for devices without any other
//! definition. The crate reads files and inspects device nodes, but never opens a device. It does not know
//! how a runtime applies the edits.
//!
//! Source of all rules: the CDI specification 1.1.0 (cncf-tags/container-device-interface, SPEC.md), or its
//! library where the specification is silent.

#![forbid(unsafe_code)]

mod check;
mod directory;
mod document;
mod edits;
mod fault;
mod file;
#[doc(hidden)]
pub mod fuzz;
mod look;
mod name;
mod node;
mod registry;
mod resolve;
mod snapshot;
mod version;

pub use edits::{DeviceNode, Edits, Hook, Mount, NodeKind, Origin};
pub use fault::{Fault, FaultError};
pub use name::{DeviceName, Kind, NameError};
pub use node::Found;
pub use registry::Registry;
pub use resolve::ResolveError;
pub use snapshot::Snapshot;
