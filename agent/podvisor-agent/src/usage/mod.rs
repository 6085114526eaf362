//! Usage of the containers and the pod, read from the kernel at the host's request and not stored.
//!
//! | file | values and their source |
//! |---|---|
//! | [`cgroup`] | CPU, memory, disks, pressure: a container's cgroup |
//! | [`tasks`] | processes and their open descriptors: `/proc` |
//! | [`scratch`] | the writable layers: project quotas of the scratch disk |
//! | [`interfaces`] | the pod's network: `/proc/net/dev` |
//!
//! Reading may block in the kernel, so everything here runs outside of the agent's own thread. Unreadable
//! values are left out, because a container may end while it is read.

mod cgroup;
mod interfaces;
mod scratch;
mod tasks;

use proto_agent::agent::{ContainerUsage, UsageResponse};

use crate::containers::Container;
use crate::pod::Pod;

/// Reads all values.
pub(crate) fn read(pod: &Pod) -> UsageResponse {
    UsageResponse {
        containers: pod.containers.all().iter().map(|container| of_container(container)).collect(),
        interfaces: interfaces::read(),
        scratch: scratch::file_system().into(),
        ..Default::default()
    }
}

fn of_container(container: &Container) -> ContainerUsage {
    let cgroup = container.cgroup().directory();
    ContainerUsage {
        container_id: container.id().to_owned(),
        cpu: Some(cgroup::cpu(cgroup)).into(),
        memory: Some(cgroup::memory(cgroup)).into(),
        devices: cgroup::devices(cgroup),
        io_pressure: cgroup::pressure(cgroup, "io").into(),
        hugepages: cgroup::hugepages(cgroup),
        tasks: Some(tasks::read(container)).into(),
        writable_layer: scratch::writable_layer(container.project()).into(),
        ..Default::default()
    }
}
