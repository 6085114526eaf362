//! Usage of the scratch disk by writable layers, from the kernel's counts of projects ([`crate::scratch`]),
//! and the free space.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use agent_container::syscall;
use proto_agent::agent::{FilesystemUsage, WritableLayerUsage};

use crate::scratch::SCRATCH;

/// Usage of one writable layer. `None` if nothing is counted.
pub(super) fn writable_layer(project: u32) -> Option<WritableLayerUsage> {
    let disk = File::open(SCRATCH).ok()?;
    let (bytes, inodes) = syscall::project_usage(disk.as_fd(), project).ok()?;
    // The layer's own directory is an inode. So if there are none, nothing is counted.
    (inodes > 0).then(|| WritableLayerUsage { bytes, inodes, ..Default::default() })
}

/// The file system shared by the layers. `None` without a disk.
pub(super) fn file_system() -> Option<FilesystemUsage> {
    of(Path::new(SCRATCH)).ok().flatten()
}

fn of(path: &Path) -> io::Result<Option<FilesystemUsage>> {
    let disk = File::open(path)?;
    let device = disk.metadata()?.dev();
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let Ok(link) = std::fs::read_link(format!("/sys/dev/block/{major}:{minor}")) else { return Ok(None) };
    let name = link.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let room = rustix::fs::fstatvfs(&disk)?;
    Ok(Some(FilesystemUsage {
        device: name.to_owned(),
        bytes_total: room.f_blocks.saturating_mul(room.f_frsize),
        bytes_free: room.f_bavail.saturating_mul(room.f_frsize),
        inodes_total: room.f_files,
        inodes_free: room.f_ffree,
        ..Default::default()
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_system_in_memory_is_no_disk() {
        assert_eq!(of(Path::new("/proc")).unwrap(), None);
    }

    #[test]
    fn a_layer_that_is_not_there_is_not_measured() {
        assert_eq!(writable_layer(1), None);
    }
}
