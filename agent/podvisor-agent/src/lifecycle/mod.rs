//! The verbs of containers, one file for each: create, start, update, exec, remove, with the shutdown of all.
//! The other files make parts of a container: root, volumes, disks and standard streams. The containers
//! themselves, with their phases, are in [`crate::containers`].

mod block_devices;
mod build_mount;
mod create;
mod declared_volumes;
mod exec;
mod filter;
mod guest_volumes;
mod layers;
mod remove;
mod root;
mod start;
mod stdio;
mod update;
mod volumes;

pub(crate) use create::create;
pub(crate) use exec::exec;
pub(crate) use remove::{remove, shut_down};
pub(crate) use start::start;
pub(crate) use update::update;
