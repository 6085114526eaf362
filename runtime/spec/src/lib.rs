//! What is asked of a pod or a container, checked, and resolved into what the machine and the agent need.
//!
//! | step | where |
//! |---|---|
//! | what the caller asks | [`PodSpec`], [`ContainerSpec`] |
//! | what we cannot do, refused by name | [`PodSpec::check`], [`ContainerSpec::check`] |
//! | the machine's size | [`VmBounds::of`] at boot, [`Ledger::draw`] from then on |
//! | the containers' limits | [`Resources::cgroup_files`] |
//! | the OCI runtime spec for the agent | [`resolve`] |
//!
//! Pure: no input or output, no clock, no threads.

#![forbid(unsafe_code)]

mod cgroup;
mod check;
mod check_security;
mod container_spec;
mod error;
mod ledger;
mod pod_spec;
mod resolve;
mod resources;
mod seccomp_profile;
mod security;
mod signal;
mod size;

pub use container_spec::{ContainerSpec, Device, Mount, MountPropagation};
pub use error::SpecError;
pub use ledger::{Grant, Ledger};
pub use pod_spec::{Dns, PodSpec, PortMapping, Protocol};
pub use resolve::{GuestPaths, ImageConfig, Resolved, exec_process, resolve, share_name};
pub use resources::{Hugepages, Resources};
pub use seccomp_profile::{SECCOMP_PROFILE_BYTES_MAX, SeccompProfile};
pub use security::{
    Capabilities, ContainerSecurity, IdMapping, NamespaceMode, Namespaces, PodSecurity, Profile,
};
pub use signal::{Signal, parse_signal};
pub use size::{HandlerConfig, HandlerKind, MEMORY_GRAIN, VmBounds, VmSize};
