//! Paths in the guest, which the agent's contract (`proto/agent`) decides and the daemon passes in.

/// Paths in the guest that a plan refers to; the agent's contract has the values.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub struct GuestPaths {
    pub resolv_conf: &'static str,
    pub hosts: &'static str,
    pub hostname: &'static str,
    pub shm: &'static str,
    pub pid_namespace: &'static str,
    pub cgroup_parent: &'static str,
    /// Mount point of the pod's shared directory.
    pub shared: &'static str,
    /// Stands for the mount points of image volumes, which only the agent knows.
    pub image_volumes: &'static str,
    /// Stands for the volumes that the guest keeps itself, whose places only the agent knows.
    pub guest_volumes: &'static str,
    /// Stands for the sockets that the agent listens on in the place of the node's, whose paths only the agent knows.
    pub host_sockets: &'static str,
    /// Stands for the directories of volumes that images declare, which only the agent knows.
    pub declared_volumes: &'static str,
}
