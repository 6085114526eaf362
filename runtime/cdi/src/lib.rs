//! The node's CDI files (Container Device Interface): what a qualified name of a device stands for in a container.
//!
//! ```text
//!   /etc/cdi/*.json, *.yaml ─┐              ┌─ document.rs (what a file may say), version.rs (since when)
//!   /var/run/cdi/…          ─┴─> directory.rs ─> file.rs ─┴─> check.rs ─> CdiFile, or a Fault
//!                                                                            │
//!   names of a request ──────────────────────────────────────────> Snapshot::resolve ─> Vec<Edits>
//! ```
//!
//! The files are read anew for each request: they are few, and so a change counts at once and nothing can be stale. A
//! file that cannot be used is a [`Fault`] and disturbs only requests for devices that nothing else defines. The crate
//! reads files and looks at device nodes, and never opens a device; what a runtime makes of the edits is not known here.
//!
//! Source of all rules: the CDI specification 1.1.0 (cncf-tags/container-device-interface, SPEC.md), and its library
//! where the specification says nothing.

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
