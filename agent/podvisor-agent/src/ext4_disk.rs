//! File systems of disks made by the host from a small template. A disk is initially longer than its file
//! system, and reads as zeros beyond it.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd;
use std::path::Path;

use agent_container::syscall;
use nix::mount::MsFlags;

/// Mounts the disk with this name in `/dev`, and grows its file system to the disk. If growing fails, the
/// file system works, but is smaller.
///
/// # Errors
/// The kernel does not mount it.
pub(crate) fn mount(device: &str, place: &Path, flags: MsFlags, options: &str) -> Result<(), nix::Error> {
    // With `init_itable`, growing leaves the new groups' inode tables to a thread. That thread would write
    // zeros over zeros. A mount starts it, and the second mount forbids it. Without the option, growing
    // itself would write them.
    let first = format!("{options},init_itable");
    nix::mount::mount(Some(&*format!("/dev/{device}")), place, Some("ext4"), flags, Some(&*first))?;
    let remount = || {
        let flags = flags | MsFlags::MS_REMOUNT;
        nix::mount::mount(None::<&str>, place, None::<&str>, flags, Some("noinit_itable"))
    };
    if let Err(error) = grow(place, device).and_then(|()| Ok(remount()?)) {
        tracing::warn!(%error, device, "a file system cannot be grown to its disk");
    }
    Ok(())
}

/// Grows the mounted file system to its disk. The disk may be longer than its image. `device` is the disk's
/// name in `/dev`.
fn grow(mounted: &Path, device: &str) -> io::Result<()> {
    const SECTOR_BYTES: u64 = 512;
    let sectors = fs::read_to_string(format!("/sys/class/block/{device}/size"))?;
    let disk_bytes = sectors.trim().parse::<u64>().map_err(io::Error::other)? * SECTOR_BYTES;
    let directory = File::open(mounted)?;
    let block_bytes = rustix::fs::fstatvfs(&directory)?.f_bsize;
    let superblock_blocks = ext4_blocks(device)?;
    let disk_blocks = disk_bytes / block_bytes.max(1);
    if superblock_blocks >= disk_blocks {
        return Ok(());
    }
    syscall::ext4_resize(directory.as_fd(), disk_blocks)
}

/// Blocks of the file system, from `s_blocks_count_lo` and `_hi` of the superblock
/// (Documentation/filesystems/ext4/super.rst). statvfs leaves out the file system's own overhead.
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
