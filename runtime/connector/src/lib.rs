//! The connector: a process for one container that connects to sockets of the node on the container's behalf.
//! Agents on the node identify a peer by its process id, user and cgroup. So the connector runs in the pod's
//! cgroup, as the user named by the pod's author, and speaks for the container.
//!
//! ```text
//!   daemon ── seqpacket: path and stream ──► connector ── connect(2) ──► the node's socket
//!     │                                         │  copies both ways until both ends are closed
//!     └─ container's end: kill, or close ──────►┘  ends
//! ```
//!
//! `client` is the daemon's side. The rest runs in the process, started from the daemon's own program with
//! another first argument (`command_line`). `process` is the loop and `carry` one connection. `privileges`
//! and `filter` drop rights before the process does anything. `message` defines the packets between the two
//! sides. Nothing here knows pods, tokens or lists of sockets: the daemon alone decides which sockets a
//! container reaches.

#![forbid(unsafe_code)]

mod carry;
mod client;
mod command_line;
mod filter;
mod message;
mod privileges;
mod process;
mod reactor;

pub use client::{ConnectError, Connector, ConnectorSpec};
pub use command_line::{ARGUMENT, ConnectorUser};
pub use process::run;
