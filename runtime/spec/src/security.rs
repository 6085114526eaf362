//! Security wishes: namespaces, users, capabilities, profiles.

use serde::{Deserialize, Serialize};

/// Owner of the namespace that a container uses.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NamespaceMode {
    /// One for all containers of the pod (CRI's POD, its zero value).
    #[default]
    Pod,
    /// One for each container.
    Container,
    /// The node's. For PIDs that is the guest's own.
    Node,
    /// That of the container with this id.
    Target(String),
}

/// Owners of the namespaces that a container uses, by kind. The default is the meaning of an empty CRI
/// `NamespaceOption`.
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
    /// Users of the namespace and what they are outside, where `user` is [`NamespaceMode::Pod`].
    pub uids: Vec<IdMapping>,
    /// Groups of the namespace, in the same form.
    pub gids: Vec<IdMapping>,
}

/// Consecutive ids of a user namespace, and what they are outside of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct IdMapping {
    /// First one inside.
    pub container_id: u32,
    /// First one outside.
    pub host_id: u32,
    /// How many.
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

/// Pod-wide security wishes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PodSecurity {
    /// Whether the pod may hold privileged containers, as CRI says. They are privileged in the guest only.
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
    /// AppArmor profile of the sandbox's own process; a localhost profile is refused.
    pub apparmor: Option<Profile>,
    /// SELinux label as `user:role:type:level`, or empty. Anything else than a level is refused.
    pub selinux: String,
}

/// Security wishes of a container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ContainerSecurity {
    /// All capabilities, no masked paths, no seccomp: inside the guest only.
    pub privileged: bool,
    /// Numeric user.
    pub run_as_user: Option<i64>,
    /// Numeric group; needs a user.
    pub run_as_group: Option<i64>,
    /// User name to look up in the image; empty for none.
    pub run_as_username: String,
    /// Groups beside those that the image's files name.
    pub supplemental_groups: Vec<i64>,
    /// CRI's SupplementalGroupsPolicy Strict: groups that the image's files name do not count.
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
    /// `None` means unconfined, as CRI has it.
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
    /// Taken away; after the additions, except that a name in `add` survives `ALL` here.
    pub drop: Vec<String>,
    /// Added to the ambient set as well.
    pub add_ambient: Vec<String>,
}
