//! The connector: a process for one container, which connects to sockets of the node in the container's stead. Agents of the
//! node ask who connects to them by the peer's process id, user and cgroup, so that a process answers for the container
//! that is in the pod's cgroup and has the user that the pod's author named.
//!
//! ```text
//!   daemon ── seqpacket: path and stream ──► connector ── connect(2) ──► the node's socket
//!     │                                         │  copies both ways until both ends are closed
//!     └─ container's end: kill, or close ──────►┘  ends
//! ```
//!
//! `client` is the daemon's side; the rest runs in the process, which is the daemon's own program under another first
//! argument (`command_line`): `process` (the loop), `carry` (one connection), `privileges` and `filter` (what the process gives up before it
//! does anything). `message` has the packets between them. Nothing here knows pods, tokens or lists of sockets: the daemon
//! alone decides what a container reaches.

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
