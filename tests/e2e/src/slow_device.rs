//! A slow block device of the node: the kernel's null_blk. It has its content in memory and answers each
//! request after a delay, many at once.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::Context;

use crate::disk::run;

const MODULE: &str = "null_blk";
const DEVICE: &str = "/dev/nullb0";
/// GiB of the device.
const GIB: u32 = 1;

/// The device, with a mounted ext4 file system. Dropping the value removes the device. There is one at a
/// time.
#[derive(Debug)]
pub struct SlowDevice {
    at: PathBuf,
}

impl SlowDevice {
    /// Makes a device with `latency` for each request, creates the directory `at` and mounts it there.
    ///
    /// # Errors
    /// When the node's kernel lacks the module, or the device cannot be formatted or mounted.
    pub fn mount(at: &Path, latency: Duration) -> anyhow::Result<SlowDevice> {
        std::fs::create_dir_all(at)?;
        let mut load = Command::new("modprobe");
        load.args([MODULE, "nr_devices=1", "memory_backed=1", "irqmode=2", "queue_mode=2", "bs=4096"]);
        run(load.arg(format!("gb={GIB}")).arg(format!("completion_nsec={}", latency.as_nanos())))?;
        let device = SlowDevice { at: at.to_owned() };
        run(Command::new("mkfs.ext4").args(["-q", "-m", "0", "-E", "lazy_itable_init=0,nodiscard", DEVICE]))?;
        run(Command::new("mount").arg(DEVICE).arg(at))?;
        Ok(device)
    }

    /// Drops the node's page cache, after writing all of it.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn forget_cached(&self) -> anyhow::Result<()> {
        nix::unistd::sync();
        std::fs::write("/proc/sys/vm/drop_caches", "1").context("dropping the page cache")
    }

    /// Reads received by the device and not answered yet (Documentation/block/stat.rst).
    ///
    /// # Errors
    /// When the device is not there.
    pub fn reads_at_work(&self) -> anyhow::Result<u32> {
        let counts = std::fs::read_to_string("/sys/block/nullb0/inflight")?;
        counts.split_whitespace().next().context("no count")?.parse().context("a count of reads")
    }
}

impl Drop for SlowDevice {
    fn drop(&mut self) {
        // A VM left by a failed test may still hold a file.
        let _ = Command::new("umount").arg("-l").arg(&self.at).output();
        let _ = Command::new("rmmod").arg(MODULE).output();
    }
}
