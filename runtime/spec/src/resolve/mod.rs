//! From wishes to the OCI runtime spec that the agent gets.
//!
//! Network, IPC and host name are the machine's, so containers get no namespaces for those. The user
//! is left to the agent, which can read the image's passwd file.

mod capabilities;
mod linux;
mod mounts;
mod process;
mod seccomp;
mod syscalls;

use oci_spec::runtime::{RootBuilder, Spec, SpecBuilder};
use serde::{Deserialize, Serialize};

pub(crate) use capabilities::capabilities;
pub(crate) use mounts::normalized;
pub use mounts::share_name;
pub use process::exec_process;

use crate::{ContainerSpec, PodSpec, Signal, SpecError, parse_signal};

/// What the image says about how to run it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ImageConfig {
    /// `user[:group]`, or empty for root.
    pub user: String,
    /// `NAME=value`.
    pub env: Vec<String>,
    /// Empty for none.
    pub entrypoint: Vec<String>,
    /// Empty for none.
    pub cmd: Vec<String>,
    /// Empty for `/`.
    pub working_dir: String,
    /// Name or number, or empty for SIGTERM.
    pub stop_signal: String,
}

/// Paths in the guest that the spec refers to; the agent's contract has the values.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub struct GuestPaths {
    pub resolv_conf: &'static str,
    pub hosts: &'static str,
    pub hostname: &'static str,
    pub shm: &'static str,
    pub pid_namespace: &'static str,
    pub cgroup_parent: &'static str,
    /// Where the pod's shared directory is mounted.
    pub shared: &'static str,
    /// Stands for image volumes, whose places only the agent knows.
    pub image_volumes: &'static str,
}

/// What the agent needs to make a container.
#[derive(Clone, Debug)]
pub struct Resolved {
    /// OCI runtime spec; its root path and user are the agent's to fill in.
    pub spec: Spec,
    /// `user[:group]` for the agent to look up in the image; empty for root.
    pub user: String,
    /// How to ask the container to end.
    pub stop_signal: Signal,
}

/// Resolves a container of `pod` from its image. `id` is the container's, for its cgroup.
pub fn resolve(
    pod: &PodSpec,
    container: &ContainerSpec,
    image: &ImageConfig,
    id: &str,
    paths: &GuestPaths,
) -> Result<Resolved, SpecError> {
    container.check(pod)?;
    let security = &container.security;
    let root = RootBuilder::default().path("rootfs").readonly(security.readonly_rootfs).build();
    let mut spec = SpecBuilder::default()
        .version("1.2.0")
        .root(root.expect("every field of the root has a default"))
        .process(process::process(pod, container, image)?)
        .mounts(mounts::mounts(container, id, paths))
        .linux(linux::linux(pod, container, id, paths))
        .build()
        .expect("every field of the spec has a default");
    // The builder has a name of its own; the machine has the pod's.
    spec.set_hostname(None).set_annotations(None);
    Ok(Resolved { spec, user: process::user(security, image), stop_signal: stop_signal(container, image)? })
}

/// The container's own signal, else the image's, else SIGTERM. An image's nonsense is not the caller's
/// fault and counts as none.
fn stop_signal(container: &ContainerSpec, image: &ImageConfig) -> Result<Signal, SpecError> {
    match &container.stop_signal {
        Some(text) => parse_signal(text),
        None => Ok(parse_signal(&image.stop_signal).unwrap_or(Signal::TERM)),
    }
}
