//! The scratch disk, on which containers have their writable layers: mounted when the pod is configured, and grown
//! to its size. Each container's directory there is a project (ext4(5), `project`), so that the kernel counts what
//! the layer takes, and asking costs the same however much a container wrote. A project has a limit where the daemon
//! names one.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd;
use std::path::Path;

use agent_container::syscall;
use nix::mount::MsFlags;

use crate::slots::{Class, SlotError, Slots};

/// Where the disk is mounted.
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

/// Makes the empty `directory` a project, to which files made there later belong, and which may take this many bytes.
///
/// # Errors
/// There is a limit, and it cannot be kept: the disk is from a template without projects, or guest memory takes its
/// place. Without a limit a layer on such a disk is only not measured.
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

/// Mounts the disk in this slot. Slot 0, which is the guest's root, stands for no disk: containers then write to
/// guest memory.
pub(crate) async fn mount(slot: u32) -> Result<(), ScratchError> {
    fs::create_dir_all(SCRATCH).map_err(ScratchError::Directory)?;
    if slot == 0 {
        return mount_at("scratch", "tmpfs", MsFlags::empty(), "mode=0711");
    }
    let name = Slots::default().device(slot, Class::Block).await?;
    let device = format!("/dev/{name}");
    // Without `prjquota` the kernel counts what projects take, and keeps none within its limit. A template without
    // projects cannot have it, and its layers no limits.
    mount_at(&device, "ext4", MsFlags::MS_NOATIME, "discard,prjquota")
        .or_else(|_| mount_at(&device, "ext4", MsFlags::MS_NOATIME, "discard"))?;
    if let Err(error) = grow(&name) {
        // The disk works, only smaller than it could be.
        tracing::warn!(%error, "the scratch disk's file system cannot be grown to its disk");
    }
    Ok(())
}

fn mount_at(source: &str, kind: &str, flags: MsFlags, data: &str) -> Result<(), ScratchError> {
    nix::mount::mount(Some(source), SCRATCH, Some(kind), flags, Some(data)).map_err(ScratchError::Mount)
}

/// Grows the file system to its disk, which may have been made longer than the image on it.
fn grow(device: &str) -> io::Result<()> {
    const SECTOR_BYTES: u64 = 512;
    let sectors = fs::read_to_string(format!("/sys/class/block/{device}/size"))?;
    let disk_bytes = sectors.trim().parse::<u64>().map_err(io::Error::other)? * SECTOR_BYTES;
    let directory = File::open(SCRATCH)?;
    let block_bytes = rustix::fs::fstatvfs(&directory)?.f_bsize;
    let superblock_blocks = ext4_blocks(device)?;
    let disk_blocks = disk_bytes / block_bytes.max(1);
    if superblock_blocks >= disk_blocks {
        return Ok(());
    }
    syscall::ext4_resize(directory.as_fd(), disk_blocks)
}

/// Blocks of the file system, from `s_blocks_count_lo` and `_hi` of the superblock
/// (Documentation/filesystems/ext4/super.rst): statvfs leaves out the file system's own overhead.
fn ext4_blocks(device: &str) -> io::Result<u64> {
    const SUPERBLOCK: u64 = 1024;
    let file = File::open(format!("/dev/{device}"))?;
    let word = |offset| -> io::Result<u64> {
        let mut bytes = [0; 4];
        std::os::unix::fs::FileExt::read_exact_at(&file, &mut bytes, SUPERBLOCK + offset)?;
        Ok(u64::from(u32::from_le_bytes(bytes)))
    };
    const FEATURE_64BIT: u64 = 0x80;
    let high = if word(0x60)? & FEATURE_64BIT == 0 { 0 } else { word(0x150)? };
    Ok(high << 32 | word(0x4)?)
}
