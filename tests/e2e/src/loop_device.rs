//! Block devices of the node backed by files, as disks for containers. Dropping the value removes the device.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, ensure};

/// A loop device of the node, and the file behind it.
#[derive(Debug)]
pub struct LoopDevice {
    device: PathBuf,
    file: PathBuf,
}

impl LoopDevice {
    /// Makes a device of `bytes` bytes, zeros at first, over a new file.
    ///
    /// # Errors
    /// When the file cannot be made, or the kernel has no loop devices.
    pub fn make(file: PathBuf, bytes: u64) -> anyhow::Result<LoopDevice> {
        File::create(&file)?.set_len(bytes)?;
        let made = Command::new("losetup").args(["--find", "--show"]).arg(&file).output()?;
        ensure!(made.status.success(), "losetup: {}", String::from_utf8_lossy(&made.stderr));
        let device = String::from_utf8(made.stdout).context("losetup's answer")?.trim().into();
        Ok(LoopDevice { device, file })
    }

    /// The device's path below `/dev`.
    pub fn device(&self) -> &Path {
        &self.device
    }

    /// The file behind it.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// Enlarges the device to this many bytes, like a storage plugin does with a claim.
    ///
    /// # Errors
    /// When the file cannot be enlarged, or the kernel refuses.
    pub fn enlarge(&self, bytes: u64) -> anyhow::Result<()> {
        File::options().write(true).open(&self.file)?.set_len(bytes)?;
        let status = Command::new("losetup").arg("--set-capacity").arg(&self.device).status()?;
        ensure!(status.success(), "losetup --set-capacity: {status}");
        Ok(())
    }

    /// Processes with the device open.
    pub fn holders(&self) -> usize {
        let open = |process: PathBuf| {
            let files = std::fs::read_dir(process.join("fd")).into_iter().flatten().flatten();
            files.filter_map(|file| std::fs::read_link(file.path()).ok()).any(|path| path == self.device)
        };
        let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        processes.filter(|process| open(process.path())).count()
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let _ = Command::new("losetup").arg("--detach").arg(&self.device).status();
    }
}
