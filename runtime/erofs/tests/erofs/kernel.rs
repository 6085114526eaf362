//! Loop mounts, and checks by others than the writer.

use std::path::{Path, PathBuf};
use std::process::Command;

/// A loop mount, unmounted when dropped.
pub(crate) struct Mount(pub(crate) PathBuf);

impl Mount {
    /// Mounts the image; none where the host cannot mount EROFS.
    pub(crate) fn new(image: &Path, at: &Path) -> Option<Mount> {
        if !nix::unistd::geteuid().is_root() {
            eprintln!("skipped: mounting needs root");
            return None;
        }
        let known = std::fs::read_to_string("/proc/filesystems").unwrap_or_default();
        if !known.contains("erofs") || !Path::new("/dev/loop-control").exists() {
            eprintln!("skipped: this kernel has no EROFS or no loop devices");
            return None;
        }
        std::fs::create_dir_all(at).unwrap();
        let output =
            Command::new("mount").args(["-t", "erofs", "-o", "loop,ro"]).args([image, at]).output().unwrap();
        assert!(output.status.success(), "mount: {}", String::from_utf8_lossy(&output.stderr));
        Some(Mount(at.to_owned()))
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let status = Command::new("umount").arg("-d").arg(&self.0).status();
        assert!(std::thread::panicking() || status.is_ok_and(|status| status.success()), "umount failed");
    }
}

/// Checks the image with `fsck.erofs`, if installed.
pub(crate) fn fsck(image: &Path) {
    match Command::new("fsck.erofs").arg(image).output() {
        Ok(output) => assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr)),
        Err(_) => eprintln!("skipped: fsck.erofs is not installed"),
    }
}
