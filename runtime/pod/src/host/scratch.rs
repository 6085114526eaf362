//! A pod's scratch disk: a sparse copy of a formatted template.
//!
//! Blocking work; callers run it beside the async threads.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use runtime_fail_points::{Point, pass};

use super::disk_image::DiskTemplate;

/// The disk's name in the pod's state directory.
pub(crate) const DISK: &str = "scratch.img";

/// Makes the disk and opens it for the VM. `bytes` is its size unless the template is larger.
pub(crate) fn make(template: &DiskTemplate, path: &Path, bytes: u64) -> io::Result<File> {
    let template = template.open()?;
    pass(Point::ScratchMake)?;
    let disk = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(path)?;
    template.fill(&disk, bytes)?;
    Ok(disk)
}

/// Removes the disk; a missing one is no error.
pub(crate) fn remove(path: &Path) -> io::Result<()> {
    match pass(Point::ScratchRemove).and_then(|()| fs::remove_file(path)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// The space used by scratch disks on their file system.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScratchUsage {
    /// Written blocks, in bytes: the disks are sparse.
    pub bytes: u64,
    /// Files.
    pub inodes: u64,
}

/// Adds up the disks of the pods below `pods`.
pub(crate) fn usage(pods: &Path) -> ScratchUsage {
    const BLOCK_BYTES: u64 = 512;
    let dirs = fs::read_dir(pods).into_iter().flatten().flatten();
    let disks = dirs.filter_map(|dir| fs::symlink_metadata(dir.path().join(DISK)).ok());
    disks.fold(ScratchUsage::default(), |sum, disk| ScratchUsage {
        bytes: sum.bytes.saturating_add(disk.blocks().saturating_mul(BLOCK_BYTES)),
        inodes: sum.inodes + 1,
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;
    use std::path::PathBuf;

    use super::*;
    use crate::installed::InstalledFile;

    fn disk_template(path: &Path) -> DiskTemplate {
        InstalledFile::from(PathBuf::from(path)).into()
    }

    #[test]
    fn the_copy_has_the_templates_bytes_and_stays_sparse() {
        let dir = tempfile::tempdir().unwrap();
        let (template, disk) = (dir.path().join("t"), dir.path().join("d"));
        let file = File::create(&template).unwrap();
        file.set_len(64 << 20).unwrap();
        file.write_all_at(b"super block", 1024).unwrap();
        file.write_all_at(&vec![7; 600_000], 32 << 20).unwrap();
        file.write_all_at(b"end", (64 << 20) - 3).unwrap();
        let made = make(&disk_template(&template), &disk, 100 << 20).unwrap();
        let copied = fs::read(&disk).unwrap();
        let original = fs::read(&template).unwrap();
        assert_eq!(copied.len(), 100 << 20);
        assert!(copied[..64 << 20] == original[..]);
        assert!(made.metadata().unwrap().blocks() * 512 < 8 << 20, "holes were filled");
        remove(&disk).unwrap();
        remove(&disk).unwrap();
        assert!(!disk.exists());
    }

    #[test]
    fn disks_are_counted_by_what_is_written_to_them() {
        let dir = tempfile::tempdir().unwrap();
        for pod in ["p1", "p2", "unmade"] {
            fs::create_dir(dir.path().join(pod)).unwrap();
        }
        for pod in ["p1", "p2"] {
            let disk = File::create(dir.path().join(pod).join(DISK)).unwrap();
            disk.write_all_at(&[7; 8192], 0).unwrap();
            disk.set_len(1 << 30).unwrap();
            disk.sync_all().unwrap();
        }
        let usage = usage(dir.path());
        assert_eq!(usage.inodes, 2);
        assert!((16384..1 << 30).contains(&usage.bytes), "{usage:?}");
        assert_eq!(super::usage(&dir.path().join("none")), ScratchUsage::default());
    }

    #[test]
    fn a_disk_is_never_smaller_than_its_template() {
        let dir = tempfile::tempdir().unwrap();
        let template = dir.path().join("t");
        fs::write(&template, vec![1; 8192]).unwrap();
        assert_eq!(
            make(&disk_template(&template), &dir.path().join("d"), 0).unwrap().metadata().unwrap().len(),
            8192
        );
    }

    #[test]
    fn a_missing_template_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        assert!(make(&disk_template(&dir.path().join("none")), &dir.path().join("d"), 0).is_err());
    }
}
