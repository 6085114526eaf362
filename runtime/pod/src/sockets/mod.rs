//! Sockets of the node, as far as handlers let containers reach them (`host_sockets`): how they are found behind a container's
//! mounts, and how a program's connection gets to one.
//!
//! ```text
//!  program ─► agent ─ token, bytes ─► VMM ─► server ─ token known? ─► connector (a process in the pod's cgroup) ─► socket
//! ```
//!
//! | what | where |
//! |---|---|
//! | which mounts are, or hold, sockets of a handler's list | `find.rs` |
//! | the user that a connector is | `user.rs` |
//! | tokens, and the connector of each container | `offers.rs` |
//! | the streams that a pod's guest opens | `server.rs` |
//! | a socket in a directory is made, or made anew | `follow.rs` |
//!
//! The driver decides about a container's mounts (`driver/host_sockets.rs`). A token is on record with its container, so that a
//! later daemon knows it; a connector ends with its daemon, and its connections with it.

pub(crate) mod find;
mod follow;
mod offers;
pub(crate) mod server;
mod user;

pub(crate) use self::user::user_of;
