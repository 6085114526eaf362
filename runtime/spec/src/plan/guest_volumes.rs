//! Volumes kept by the guest itself, instead of access to the host's files. The caller finds these volumes
//! among the mounts, after the plan is resolved.

use std::path::Path;

use oci_spec::runtime::Mount;

/// A volume kept by the guest, as one of a container's mounts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuestVolumePlan {
    /// Index of the mount in the container's spec.
    pub mount: usize,
    /// Source of the bind mount in the OCI specification. `ContainerPlan::keep_in_guest` sets it.
    pub source: String,
    /// Name of the volume in the guest: lower-case letters and digits.
    pub volume: String,
    /// Path in the volume; empty for the whole volume.
    pub sub_path: String,
    /// Mode and owner for creating a missing directory at `sub_path`.
    pub sub_access: FileAccess,
    /// True if owners are shown as mapped by the pod's user namespace.
    pub mapped: bool,
    /// The initial content of the volume.
    pub content: GuestVolumeContent,
}

/// Content of a volume kept by the guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GuestVolumeContent {
    /// Empty memory, shared by all containers of the pod.
    Memory(MemoryVolume),
    /// Files on a disk of the pod, shared by all its containers.
    Disk(DiskVolume),
    /// Copies of files of the node, sent to the guest before.
    Published,
}

/// A file system in the guest's memory. It lives as long as its pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryVolume {
    /// Limits of its content.
    pub limits: VolumeLimits,
    /// Mode and owner of its root.
    pub access: FileAccess,
}

/// A file system on a disk. The host keeps the disk with the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskVolume {
    /// Number of the VM's slot with the disk.
    pub slot: u8,
    /// Mode and owner of its root, if the file system is new.
    pub access: FileAccess,
}

/// Bounds of a file system in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VolumeLimits {
    /// Bytes of files; 0 for no bound.
    pub bytes: u64,
    /// Number of files and directories; 0 for no bound.
    pub inodes: u64,
}

/// Permissions and owner of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileAccess {
    /// Permissions with setuid, setgid and sticky (`07777`).
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
}

/// Changes the source of the mount from `from` to `to`, and makes the guest enforce it if it is read-only.
pub(super) fn redirect(mounts: &mut [Mount], from: &str, to: &str, read_only: bool) {
    for mount in mounts.iter_mut().filter(|mount| mount.source().as_deref() == Some(Path::new(from))) {
        let mut options = mount.options().clone().unwrap_or_default();
        if read_only {
            options.iter_mut().filter(|option| *option == "rw").for_each(|rw| "ro".clone_into(rw));
        }
        mount.set_source(Some(to.into())).set_options(Some(options));
    }
}
