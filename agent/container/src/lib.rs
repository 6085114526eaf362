//! OCI containers inside the guest: the specification that libcontainer gets ([`spec`]), the users of an image
//! ([`users`]), how processes are made, and cgroups ([`cgroup`], [`limits`], [`devices`]).
//!
//! Containers are built by libcontainer, which forks. Forking is not safe in a process with threads or a runtime, so
//! each build happens in a short-lived re-execution of the agent's own binary ([`builder`]), which the agent talks
//! to over one socket ([`launch`]).
//!
//! This crate knows no Tokio and no RPC, and it holds no state: the agent does.

#![deny(unsafe_code)]

mod bpf;
pub mod builder;
pub mod cgroup;
pub mod devices;
pub mod exec;
mod executor;
pub mod guest_devices;
pub mod image_file;
pub mod launch;
pub mod limits;
pub mod spec;
pub mod start;
pub mod syscall;
mod tenant;
pub mod users;
pub mod working_directory;

/// Where libcontainer keeps its state, one directory per container.
pub const STATE_ROOT: &str = "/run/podvisor/libcontainer";
