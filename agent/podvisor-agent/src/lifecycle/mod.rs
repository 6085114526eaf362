//! What is done to containers, one file per verb: create, start, update, exec, remove, and the end of all. The other
//! files are the parts of a container that creation makes: its root, volumes, disks and standard streams.

mod block_devices;
mod create;
mod exec;
mod mapped_mount;
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
