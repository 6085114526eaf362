//! Host paths bound into a pod's shared directory. Only the pod's VMM sees them there and serves them to the
//! guest.
//!
//! | what | where |
//! |---|---|
//! | a path to bind, with its options | [`Bind`] |
//! | all binds of a container, created and removed | [`bind_all`], [`unbind_all`] |
//! | one bind: cloned, its owners mapped, made read-only, then attached | `tree.rs` |
//! | whether a bound place still is what another container asks for | [`compare`] |
//! | the VMM's mount namespace with the binds | [`MountNamespace`] |
//! | the user namespace for mapping owners | `user_namespace.rs` |
//!
//! The directory is the daemon's own, but a guest may write there through its VMM. So nothing below it is
//! reached by path: names are looked up one by one from an open directory, and links are never followed. The
//! mounts below hold other people's data, so nothing here removes recursively.

#![deny(unsafe_code)]

mod bind;
mod container_binds;
mod directory;
mod error;
mod mount_namespace;
mod propagation;
mod same;
mod setattr;
mod tree;
mod user_namespace;

pub use bind::{Access, Bind, Ids, Owners, Propagation};
pub use container_binds::{bind_all, unbind_all};
pub use error::ShareError;
pub use mount_namespace::MountNamespace;
pub use same::{Below, compare};
