//! Security requests: namespaces, users, capabilities, profiles.

use serde::{Deserialize, Serialize};

/// Owner of a namespace used by a container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NamespaceMode {
    /// One for all containers of the pod (CRI's POD, its zero value).
    #[default]
    Pod,
    /// One for each container.
    Container,
    /// The node's. For PIDs this means the guest's own.
    Node,
    /// That of the container with this id.
    Target(String),
}

/// Owners of a container's namespaces, by kind. The default is the meaning of an empty CRI `NamespaceOption`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Namespaces {
    /// Network.
    pub network: NamespaceMode,
    /// Processes.
    pub pid: NamespaceMode,
    /// System V and POSIX IPC.
    pub ipc: NamespaceMode,
    /// Users. A request without `userns_options` means [`NamespaceMode::Node`]: no user namespace.
    pub user: NamespaceMode,
    /// Mapping of the namespace's users to those outside, if `user` is [`NamespaceMode::Pod`].
    pub uids: Vec<IdMapping>,
    /// Groups of the namespace, in the same form.
    pub gids: Vec<IdMapping>,
}

/// Consecutive ids of a user namespace, and their mapping outside of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct IdMapping {
    /// First id inside.
    pub container_id: u32,
    /// First id outside.
    pub host_id: u32,
    /// Number of ids.
    pub length: u32,
}

impl Default for Namespaces {
    fn default() -> Self {
        let pod = NamespaceMode::Pod;
        let user = NamespaceMode::Node;
        Namespaces {
            network: pod.clone(),
            pid: pod.clone(),
            ipc: pod,
            user,
            uids: Vec::new(),
            gids: Vec::new(),
        }
    }
}

/// A seccomp or AppArmor profile.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Profile {
    /// The runtime's default profile.
    RuntimeDefault,
    /// None.
    Unconfined,
    /// One from the host, by path or name.
    Localhost(String),
}

/// Pod-wide security requests.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PodSecurity {
    /// True if CRI allows privileged containers in the pod. They are privileged in the guest only.
    pub privileged: bool,
    /// User of the sandbox's own process. No such process of ours runs the pod's code, so this field and the
    /// next ones are only returned.
    pub run_as_user: Option<i64>,
    /// Group of the sandbox's own process.
    pub run_as_group: Option<i64>,
    /// Supplementary groups of the sandbox's own process.
    pub supplemental_groups: Vec<i64>,
    /// Root file system of the sandbox's own process.
    pub readonly_rootfs: bool,
    /// Seccomp profile of the sandbox's own process.
    pub seccomp: Option<Profile>,
    /// AppArmor profile of the sandbox's own process. A localhost profile is refused.
    pub apparmor: Option<Profile>,
    /// SELinux label as `user:role:type:level`, or empty. All parts except the level are refused.
    pub selinux: String,
}

/// Security requests of a container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ContainerSecurity {
    /// All capabilities, no masked paths, no seccomp: inside the guest only.
    pub privileged: bool,
    /// Numeric user.
    pub run_as_user: Option<i64>,
    /// Numeric group. Needs a user.
    pub run_as_group: Option<i64>,
    /// User name to look up in the image; empty for none.
    pub run_as_username: String,
    /// Groups in addition to those from the image's files.
    pub supplemental_groups: Vec<i64>,
    /// CRI's SupplementalGroupsPolicy Strict: groups from the image's files are ignored.
    pub supplemental_groups_strict: bool,
    /// Changes to the default set.
    pub capabilities: Capabilities,
    /// Mount the root filesystem read-only.
    pub readonly_rootfs: bool,
    /// Set no_new_privs.
    pub no_new_privs: bool,
    /// Paths made unreadable. `None` (no security context at all): our default list.
    pub masked_paths: Option<Vec<String>>,
    /// Paths made read-only. `None` (no security context at all): our default list.
    pub readonly_paths: Option<Vec<String>>,
    /// `None` means unconfined, as in CRI.
    pub seccomp: Option<Profile>,
    /// `None` means none.
    pub apparmor: Option<Profile>,
    /// As [`PodSecurity::selinux`].
    pub selinux: String,
    /// `None`: as the pod's.
    pub namespaces: Option<Namespaces>,
}

/// Changes to the default capability set. Names with or without `CAP_`, in any case; `ALL` is all.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Capabilities {
    /// Added to permitted, effective and bounding.
    pub add: Vec<String>,
    /// Removed after the additions, except that a name in `add` survives `ALL` here.
    pub drop: Vec<String>,
    /// Added to the ambient set as well.
    pub add_ambient: Vec<String>,
}
