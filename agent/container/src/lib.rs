//! OCI containers inside the guest: the specification of a container ([`spec`]) and of a further process
//! ([`exec`]), the users of an image ([`users`]), how processes are made, and cgroups ([`cgroup`],
//! [`limits`], [`devices`]).
//!
//! A short-lived re-execution of the agent's own binary makes each process ([`builder`]), because forking is
//! not safe in a process with threads or a runtime. The agent talks to it over one socket ([`launch`]).
//! [`inside`] has the new process's steps before it executes its program.
//!
//! This crate has no Tokio and no RPC, and it holds no state: the agent does.

#![deny(unsafe_code)]

mod bpf;
pub mod builder;
pub mod cgroup;
pub mod devices;
pub mod exec;
pub mod guest_devices;
pub mod image_file;
mod inside;
pub mod launch;
pub mod limits;
pub mod spec;
pub mod syscall;
pub mod users;

pub use inside::give_up_capabilities;
