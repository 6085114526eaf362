//! Volumes that the guest keeps itself, in place of a way to the host's files. The caller finds out which mounts are such
//! volumes, once the plan is resolved.

use std::path::Path;

use oci_spec::runtime::Mount;

/// A volume that the guest keeps, as one of a container's mounts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuestVolumePlan {
    /// Index of the mount in the container's spec.
    pub mount: usize,
    /// Source that the bind mount has in the OCI specification. `ContainerPlan::keep_in_guest` sets it.
    pub source: String,
    /// Name of the volume in the guest: lower-case letters and digits.
    pub volume: String,
    /// Path in the volume; empty for the whole volume.
    pub sub_path: String,
    /// How a directory at `sub_path` is made that is not there yet.
    pub sub_access: FileAccess,
    /// Whether owners are shown as the pod's user namespace maps them.
    pub mapped: bool,
    /// The content that the volume begins with.
    pub content: GuestVolumeContent,
}

/// Content of a volume that the guest keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GuestVolumeContent {
    /// Empty memory, which all containers of the pod share.
    Memory(MemoryVolume),
    /// Files on a disk of the pod's, which all containers of the pod share.
    Disk(DiskVolume),
    /// Copies of files of the node, which were sent to the guest before.
    Published,
}

/// A file system in the guest's memory that lives as long as its pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryVolume {
    /// How much it may hold.
    pub limits: VolumeLimits,
    /// Mode and owner of its root.
    pub access: FileAccess,
}

/// A file system on a disk that the host keeps with the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskVolume {
    /// Number of the VM's slot that holds the disk.
    pub slot: u8,
    /// Mode and owner of its root, where the file system is a new one.
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

/// Has the mount with source `from` come from `to` instead, and the guest enforce that it is read-only, if it is.
pub(super) fn redirect(mounts: &mut [Mount], from: &str, to: &str, read_only: bool) {
    for mount in mounts.iter_mut().filter(|mount| mount.source().as_deref() == Some(Path::new(from))) {
        let mut options = mount.options().clone().unwrap_or_default();
        if read_only {
            options.iter_mut().filter(|option| *option == "rw").for_each(|rw| "ro".clone_into(rw));
        }
        mount.set_source(Some(to.into())).set_options(Some(options));
    }
}
