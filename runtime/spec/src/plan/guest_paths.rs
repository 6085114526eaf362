//! Paths in the guest. The agent's contract (`proto/agent`) defines them, and the daemon passes them in.

/// Guest paths used in a plan, with the values of the agent's contract.
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
    /// Placeholder for the mount points of image volumes, known only to the agent.
    pub image_volumes: &'static str,
    /// Placeholder for the places of volumes kept by the guest itself, known only to the agent.
    pub guest_volumes: &'static str,
    /// Placeholder for the paths of the agent's sockets in place of the node's, known only to the agent.
    pub host_sockets: &'static str,
    /// Placeholder for the directories of volumes declared by images, known only to the agent.
    pub declared_volumes: &'static str,
}
