//! A separate disk for a daemon's state: an ext4 file system in a file. A test fills, freezes or remounts it
//! read-only.

use std::fs::File;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, ensure};

use crate::wait::until_seen;

/// The file filling the disk.
const FILLER: &str = "filler";
/// Bytes written at a time while a disk is filled; a page at the end, since a longer write fails before the
/// last one.
const CHUNKS: [usize; 2] = [1 << 20, 4096];

/// A mounted disk. When it is dropped it is writable, thawed, and unmounted again.
#[derive(Debug)]
pub struct Disk {
    at: PathBuf,
}

impl Disk {
    /// Makes a file system of `mib` MiB in the file `image`, with these options of mkfs.ext4, creates the
    /// directory `at` and mounts it there.
    ///
    /// # Errors
    /// When the file cannot be formatted or mounted.
    pub fn mount(image: &Path, at: &Path, mib: u64, options: &[&str]) -> anyhow::Result<Disk> {
        File::create(image)?.set_len(mib << 20)?;
        std::fs::create_dir_all(at)?;
        // Without reserved blocks, because root's daemon would use them.
        run(Command::new("mkfs.ext4").args(["-q", "-m", "0"]).args(options).arg(image))?;
        run(Command::new("mount").args(["-o", "loop"]).arg(image).arg(at))?;
        Ok(Disk { at: at.to_owned() })
    }

    /// Writes until the disk takes no more.
    ///
    /// # Errors
    /// When a write fails for another reason.
    pub fn fill(&self) -> anyhow::Result<()> {
        let mut filler = File::options().create(true).append(true).open(self.at.join(FILLER))?;
        for bytes in CHUNKS.map(|length| vec![0xaa; length]) {
            // The blocks are taken by the sync: ext4 delays their allocation.
            let failed = loop {
                if let Err(error) = filler.write_all(&bytes).and_then(|()| filler.sync_data()) {
                    break error;
                }
            };
            ensure!(failed.kind() == ErrorKind::StorageFull, "filling the disk: {failed}");
        }
        Ok(())
    }

    /// Frees the space taken by [`Disk::fill`].
    ///
    /// # Errors
    /// When the filler cannot be removed.
    pub fn free(&self) -> std::io::Result<()> {
        std::fs::remove_file(self.at.join(FILLER))
    }

    /// Lets every write wait until [`Disk::thaw`].
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn freeze(&self) -> anyhow::Result<()> {
        run(Command::new("fsfreeze").arg("-f").arg(&self.at))
    }

    /// Ends [`Disk::freeze`].
    ///
    /// # Errors
    /// When the disk is not frozen.
    pub fn thaw(&self) -> anyhow::Result<()> {
        run(Command::new("fsfreeze").arg("-u").arg(&self.at))
    }

    /// Makes the disk read-only during writes, like the kernel does after an error. Only the emergency
    /// remount does this and can be undone. It affects every disk of the system, so it is only for the
    /// software node.
    ///
    /// # Errors
    /// When this is not the software node, or the kernel refuses.
    ///
    /// # Panics
    /// When the disk stays writable.
    pub async fn make_read_only(&self) -> anyhow::Result<()> {
        ensure!(in_software_node(), "every disk of this system would become read-only");
        // Documentation/admin-guide/sysrq.rst: `u` remounts all mounted file systems read-only.
        std::fs::write("/proc/sysrq-trigger", "u")?;
        until_seen(format!("{} to be read-only", self.at.display()), async || match self.is_read_only() {
            Ok(true) => Ok(()),
            looked => Err(looked),
        })
        .await;
        Ok(())
    }

    /// Ends [`Disk::make_read_only`].
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn make_writable(&self) -> anyhow::Result<()> {
        run(Command::new("mount").args(["-o", "remount,rw"]).arg(&self.at))
    }

    fn is_read_only(&self) -> anyhow::Result<bool> {
        let flags = nix::sys::statvfs::statvfs(&self.at)?.flags();
        Ok(flags.contains(nix::sys::statvfs::FsFlags::ST_RDONLY))
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // The first two fail if there is nothing to end.
        let _ = quiet(Command::new("fsfreeze").arg("-u").arg(&self.at));
        let _ = quiet(Command::new("mount").args(["-o", "remount,rw"]).arg(&self.at));
        // A VM left by a failed test may still hold its scratch disk.
        let _ = quiet(Command::new("umount").arg("-l").arg(&self.at));
    }
}

/// Returns whether this is the software node of `tests/node`.
pub fn in_software_node() -> bool {
    std::env::var_os("PODVISOR_NODE").is_some_and(|node| node == "software")
}

fn quiet(command: &mut Command) -> std::io::Result<std::process::Output> {
    command.output()
}

/// Runs a command to its end. If its status is not zero, returns an error with its output.
pub(crate) fn run(command: &mut Command) -> anyhow::Result<()> {
    let output = quiet(command).with_context(|| format!("running {command:?}"))?;
    ensure!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}
