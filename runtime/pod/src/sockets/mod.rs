//! Sockets of the node available to containers by their handlers (`host_sockets`): how they are found behind
//! a container's mounts, and how a program's connection reaches one.
//!
//! ```text
//!  program ─► agent ─ token, bytes ─► VMM ─► server ─ token known? ─► connector ─► socket
//!                                                         (a process in the pod's cgroup)
//! ```
//!
//! | subject | where |
//! |---|---|
//! | mounts that are, or hold, sockets of a handler's list | `find.rs` |
//! | a connector's user | `user.rs` |
//! | tokens, and the connector of each container | `offers.rs` |
//! | the streams opened by a pod's guest | `server.rs` |
//! | a socket in a directory is created, or recreated | `follow.rs` |
//!
//! The driver decides about a container's mounts (`driver/host_sockets.rs`). A token is on record with its
//! container, so a later daemon knows it. A connector ends with its daemon, and its connections with it.

pub(crate) mod find;
mod follow;
mod offers;
pub(crate) mod server;
mod user;

pub(crate) use self::user::user_of;
