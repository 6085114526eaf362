//! The pod's containers and their execs, with their phases. This module changes nothing in the guest;
//! [`crate::lifecycle`] does.

mod container;
mod error;
mod id;
mod list;

pub(crate) use container::{Container, Exec, Phase};
pub(crate) use error::{ContainerError, HostSocketError, VolumeError};
pub(crate) use id::{cgroup_path, check_id};
pub(crate) use list::Containers;
