//! A container as the caller asks for it. The module has types only; `check.rs` judges them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{ContainerSecurity, IdMapping, NamespaceMode, Resources};

/// A container as asked for. The record of a container keeps its spec for the container's life, and lists and
/// statuses return it word for word. Devices by CDI name are resolved before: what they stand for is among the
/// variables, mounts and devices.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ContainerSpec {
    /// Name within the pod.
    pub name: String,
    /// How often the kubelet has made this container before.
    pub attempt: u32,
    /// Image to run: tag, digest reference or id, as the caller named it.
    pub image: String,
    /// Image as the user wrote it in the pod, where the caller resolved it to an id before; else empty.
    pub user_specified_image: String,
    /// Replaces the image's entrypoint.
    pub command: Vec<String>,
    /// Replaces the image's cmd.
    pub args: Vec<String>,
    /// Empty: the image's, else `/`.
    pub working_dir: String,
    /// Added to the image's; later entries win.
    pub env: Vec<(String, String)>,
    /// Names of variables that are taken away from the image's, and from those that every container has.
    pub unset_env: Vec<String>,
    /// Labels, returned as they are.
    pub labels: BTreeMap<String, String>,
    /// Annotations, returned as they are.
    pub annotations: BTreeMap<String, String>,
    /// Annotations that plugins of the node added or replaced; plugins alone see them.
    pub plugin_annotations: BTreeMap<String, String>,
    /// Log file, relative to the pod's log directory. Without either nothing is logged.
    pub log_path: Option<String>,
    /// Keep stdin open for attach.
    pub stdin: bool,
    /// Close stdin when the first attach ends.
    pub stdin_once: bool,
    /// Give it a terminal.
    pub tty: bool,
    /// Limits.
    pub resources: Resources,
    /// Limits of its processes; for those that are not named, every container has the same.
    pub process_limits: Vec<ProcessLimit>,
    /// Users, capabilities, profiles.
    pub security: ContainerSecurity,
    /// Signal that asks it to end: a name with or without `SIG`, or a number. `None`: the image's, else SIGTERM.
    pub stop_signal: Option<String>,
    /// Volumes and files of the host.
    pub mounts: Vec<Mount>,
    /// File systems in the guest's memory.
    pub tmpfs: Vec<Tmpfs>,
    /// Devices of the host.
    pub devices: Vec<Device>,
}

impl ContainerSpec {
    /// The container whose PID namespace this one joins.
    pub fn pid_target(&self) -> Option<&str> {
        match &self.security.namespaces.as_ref()?.pid {
            NamespaceMode::Target(id) => Some(id),
            _ => None,
        }
    }

    /// The mounts that are files of the host, each with its index among all mounts. A device that every guest has of its own is none.
    pub fn host_mounts(&self) -> impl Iterator<Item = (usize, &Mount)> {
        let is_of_host = |mount: &Mount| mount.image.is_empty() && mount.guest_device().is_none();
        self.mounts.iter().enumerate().filter(move |(_, mount)| is_of_host(mount))
    }

    /// The devices that are disks of the node, each with its index among all devices.
    pub fn block_devices(&self) -> impl Iterator<Item = (usize, &Device)> {
        self.devices.iter().enumerate().filter(|(_, device)| device.guest_device().is_none())
    }

    /// The mounts that are images, each with its index among all mounts.
    pub fn image_mounts(&self) -> impl Iterator<Item = (usize, &Mount)> {
        self.mounts.iter().enumerate().filter(|(_, mount)| !mount.image.is_empty())
    }
}

/// A path of the host, or an image, to mount.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Mount {
    /// On the host; empty for an image volume.
    pub host_path: String,
    /// In the container.
    pub container_path: String,
    /// Read-only; what the host has mounted below is not.
    pub readonly: bool,
    /// All below is read-only too.
    pub recursive_read_only: bool,
    /// Visibility of mounts that are made later.
    pub propagation: MountPropagation,
    /// Bits of files that give a program its file's owner have no effect.
    pub nosuid: bool,
    /// Programs cannot be executed.
    pub noexec: bool,
    /// Give the files a label of the container's; means something only on a host with SELinux.
    pub selinux_relabel: bool,
    /// How owners of the files are shown: what they are on the host, as users of the pod's user namespace.
    pub uid_mappings: Vec<IdMapping>,
    /// Owners by group, in the same form.
    pub gid_mappings: Vec<IdMapping>,
    /// Image volume: the image's name.
    pub image: String,
    /// Image volume: the image as the user wrote it in the pod; may be empty.
    pub image_user_specified: String,
    /// Image volume: what of it; empty for all.
    pub image_sub_path: String,
}

/// A limit of a container's processes (setrlimit(2)).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ProcessLimit {
    /// Its name, as in `RLIMIT_NOFILE`.
    pub name: String,
    /// The limit in force.
    pub soft: u64,
    /// The limit up to which a process may raise the one in force.
    pub hard: u64,
}

/// A file system in the guest's memory, which the container's limit counts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Tmpfs {
    /// In the container.
    pub container_path: String,
    /// Options of the mount (tmpfs(5)).
    pub options: Vec<String>,
}

/// Visibility of mounts that are made after the container's start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MountPropagation {
    /// None.
    #[default]
    Private,
    /// The host's, by the container.
    HostToContainer,
    /// And the container's, by the host.
    Bidirectional,
}

/// A device of the host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Device {
    /// On the host.
    pub host_path: String,
    /// In the container.
    pub container_path: String,
    /// Of `rwm`.
    pub permissions: String,
    /// Owner of the node, as the container has users.
    pub uid: u32,
    /// Group of the node, as the container has groups.
    pub gid: u32,
    /// Mode of the node. `None`: 0666 for a device of the guest's own, 0660 for a disk.
    pub mode: Option<u32>,
}
