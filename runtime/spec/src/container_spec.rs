//! A container as requested by the caller. The module has only types; `check.rs` checks them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{ContainerSecurity, IdMapping, NamespaceMode, Resources};

/// A container as requested. The record of a container keeps its spec for the container's life, and lists and
/// statuses return it unchanged. Devices by CDI name are resolved before: their edits are among the
/// variables, mounts and devices.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ContainerSpec {
    /// Name within the pod.
    pub name: String,
    /// Number of earlier containers created by the kubelet for this one.
    pub attempt: u32,
    /// Image to run: tag, digest reference or id, as the caller named it.
    pub image: String,
    /// Image as written in the pod, if the caller resolved it to an id before. Otherwise empty.
    pub user_specified_image: String,
    /// Replaces the image's entrypoint.
    pub command: Vec<String>,
    /// Replaces the image's cmd.
    pub args: Vec<String>,
    /// Empty: the image's, else `/`.
    pub working_dir: String,
    /// Added to the image's; later entries win.
    pub env: Vec<(String, String)>,
    /// Names of variables removed from the image's, and from the variables of every container.
    pub unset_env: Vec<String>,
    /// Labels, returned as they are.
    pub labels: BTreeMap<String, String>,
    /// Annotations, returned as they are.
    pub annotations: BTreeMap<String, String>,
    /// Annotations added or replaced by plugins of the node. Only plugins see them.
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
    /// Limits of its processes. Unnamed ones are the same in every container.
    pub process_limits: Vec<ProcessLimit>,
    /// Users, capabilities, profiles.
    pub security: ContainerSecurity,
    /// Signal for stopping it: a name with or without `SIG`, or a number. `None`: the image's, else SIGTERM.
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

    /// The mounts of host files, each with its index among all mounts. Devices built into every guest do not
    /// count.
    pub fn host_mounts(&self) -> impl Iterator<Item = (usize, &Mount)> {
        let is_of_host = |mount: &Mount| mount.image.is_empty() && mount.guest_device().is_none();
        self.mounts.iter().enumerate().filter(move |(_, mount)| is_of_host(mount))
    }

    /// The devices backed by disks of the node, each with its index among all devices.
    pub fn block_devices(&self) -> impl Iterator<Item = (usize, &Device)> {
        self.devices.iter().enumerate().filter(|(_, device)| device.guest_device().is_none())
    }

    /// The image volumes, each with its index among all mounts.
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
    /// The host's path is never made: a missing one is refused.
    pub must_exist: bool,
    /// In the container.
    pub container_path: String,
    /// Read-only, except for mounts of the host below it.
    pub readonly: bool,
    /// All below is read-only too.
    pub recursive_read_only: bool,
    /// Visibility of later mounts.
    pub propagation: MountPropagation,
    /// The setuid and setgid bits of files have no effect.
    pub nosuid: bool,
    /// Programs cannot be executed.
    pub noexec: bool,
    /// Options as requested (CRI `Mount.mount_options`), for statuses. What they mean is in the fields above.
    pub options: Vec<String>,
    /// Give the files the container's label. Only has an effect on a host with SELinux.
    pub selinux_relabel: bool,
    /// Mapping of the files' owners from ids of the host to users of the pod's user namespace.
    pub uid_mappings: Vec<IdMapping>,
    /// Owners by group, in the same form.
    pub gid_mappings: Vec<IdMapping>,
    /// Image volume: the image's name.
    pub image: String,
    /// Image volume: the image as the user wrote it in the pod; may be empty.
    pub image_user_specified: String,
    /// Image volume: path in the image. Empty for all of it.
    pub image_sub_path: String,
}

/// A limit of a container's processes (setrlimit(2)).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ProcessLimit {
    /// Its name, as in `RLIMIT_NOFILE`.
    pub name: String,
    /// The current limit.
    pub soft: u64,
    /// The limit up to which a process may raise the current one.
    pub hard: u64,
}

/// A file system in the guest's memory, counted in the container's limit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Tmpfs {
    /// In the container.
    pub container_path: String,
    /// Options of the mount (tmpfs(5)).
    pub options: Vec<String>,
}

/// Visibility of mounts created after the container's start.
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
    /// Owner of the node, by the container's numbering of users. `None`: the process's user.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uid: Option<u32>,
    /// Group of the node, by the container's numbering of groups. `None`: the process's group.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gid: Option<u32>,
    /// Mode of the node. `None`: 0666 for a device of the guest, 0660 for a disk.
    pub mode: Option<u32>,
}
