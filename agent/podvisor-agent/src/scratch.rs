//! The scratch disk with the containers' writable layers. It is mounted when the pod is configured, and its
//! file system is grown to its size. Each container's directory there is a project (ext4(5), `project`), so
//! the kernel counts the layer's usage. Reading the count costs the same for any amount of data. A project
//! has a limit if the daemon names one. Root of a container may move its files to another project and falsify
//! its pod's counts. The size of the disk still holds.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd;
use std::path::Path;

use agent_container::syscall;
use nix::mount::MsFlags;

use crate::ext4_disk;
use crate::slots::{Class, SlotError, Slots};

/// Mount point of the disk.
pub(crate) const SCRATCH: &str = "/run/podvisor/scratch";

/// Why the scratch disk could not be mounted.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ScratchError {
    #[error("cannot make {SCRATCH}")]
    Directory(#[source] io::Error),
    #[error(transparent)]
    Slot(#[from] SlotError),
    #[error("cannot mount the scratch disk")]
    Mount(#[source] nix::Error),
}

/// Makes the empty `directory` a project with at most this many bytes. Files made there later belong to it.
///
/// # Errors
/// There is a limit, and it cannot be enforced: the disk is from a template without projects, or guest memory
/// takes its place. Without a limit, a layer on such a disk is just not measured.
pub(crate) fn assign(directory: &Path, project: u32, bytes_max: Option<u64>) -> io::Result<()> {
    let file = File::open(directory)?;
    let assigned = syscall::set_project(file.as_fd(), project);
    match (assigned, bytes_max) {
        (Ok(()), Some(bytes)) => syscall::limit_project(file.as_fd(), project, bytes),
        (Ok(()), None) => Ok(()),
        (Err(error), Some(_)) => Err(error),
        (Err(error), None) => {
            tracing::debug!(%error, "a writable layer is not measured");
            Ok(())
        }
    }
}

/// Mounts the disk in this slot. Slot 0, the guest's root, stands for no disk: containers then write to guest
/// memory.
pub(crate) async fn mount(slot: u32) -> Result<(), ScratchError> {
    fs::create_dir_all(SCRATCH).map_err(ScratchError::Directory)?;
    if slot == 0 {
        let (flags, options) = (MsFlags::empty(), Some("mode=0711"));
        let mounted = nix::mount::mount(Some("scratch"), SCRATCH, Some("tmpfs"), flags, options);
        return mounted.map_err(ScratchError::Mount);
    }
    let name = Slots::default().device(slot, Class::Block).await?;
    // Without `prjquota` the kernel counts the usage of projects, but enforces no limits. A template without
    // projects refuses the option, so its layers have no limits.
    let mount = |options| ext4_disk::mount(&name, Path::new(SCRATCH), MsFlags::MS_NOATIME, options);
    mount("discard,prjquota").or_else(|_| mount("discard")).map_err(ScratchError::Mount)
}
