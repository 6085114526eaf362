//! Files used as disks of VMs: each begins as a sparse copy of a formatted template.
//!
//! Blocking work; callers run it beside the async threads.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use rustix::fs::ioctl_ficlone;

use super::file_data;
use crate::installed::InstalledFile;

/// A formatted file system, the initial content of disks.
#[derive(Clone, Debug)]
pub(crate) struct DiskTemplate {
    file: InstalledFile,
    /// The places of all non-zero data, in order, once determined. If a template has lost its holes during
    /// installation, this reads the whole file, some hundred times the data of a disk.
    data: Arc<OnceLock<Vec<Range<u64>>>>,
}

impl From<InstalledFile> for DiskTemplate {
    fn from(file: InstalledFile) -> Self {
        DiskTemplate { file, data: Arc::default() }
    }
}

impl DiskTemplate {
    /// Opens the template. A missing one is an error here, and not once there is half a disk.
    pub(crate) fn open(&self) -> io::Result<OpenTemplate<'_>> {
        Ok(OpenTemplate { file: File::open(self.file.path())?, template: self })
    }
}

/// An open template, ready for copying.
#[derive(Debug)]
pub(crate) struct OpenTemplate<'a> {
    file: File,
    template: &'a DiskTemplate,
}

impl OpenTemplate<'_> {
    /// Fills the new file `disk`. Shares the template's blocks if the file system can, else copies everything
    /// except holes. `bytes` is the disk's size unless the template is larger.
    pub(crate) fn fill(&self, disk: &File, bytes: u64) -> io::Result<()> {
        let size = self.file.metadata()?.len();
        if ioctl_ficlone(disk, &self.file).is_err() {
            self.copy(disk)?;
        }
        // A virtio disk has whole sectors.
        disk.set_len(size.max(bytes).next_multiple_of(4096))
    }

    fn copy(&self, disk: &File) -> io::Result<()> {
        let known = self.template.data.get();
        let found;
        let ranges = if let Some(known) = known {
            known
        } else {
            found = file_data::find(&self.file)?;
            // A file opened each time may have changed by then.
            if self.template.file.is_kept() { self.template.data.get_or_init(|| found) } else { &found }
        };
        file_data::copy(ranges, &self.file, disk, |_, _| {})
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{FileExt, MetadataExt};

    use super::*;

    #[test]
    fn a_template_without_holes_becomes_a_disk_with_them_each_time() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("template");
        let mut content = vec![0; (4 << 20) + 1000];
        content[1 << 20] = 7;
        content[(3 << 20) + 5000] = 8;
        content[4 << 20] = 9;
        std::fs::write(&path, &content).unwrap();
        let kept = DiskTemplate::from(InstalledFile::keep(&path).unwrap());
        for template in [&kept, &kept, &DiskTemplate::from(InstalledFile::from(path.clone()))] {
            let disk = tempfile::tempfile().unwrap();
            template.open().unwrap().fill(&disk, 8 << 20).unwrap();
            let mut copied = vec![0; content.len()];
            disk.read_exact_at(&mut copied, 0).unwrap();
            assert!(copied == content);
            let disk = disk.metadata().unwrap();
            assert_eq!(disk.len(), 8 << 20);
            assert!(disk.blocks() * 512 < 1 << 20, "zeros were written");
        }
        assert_eq!(kept.data.get().unwrap().len(), 3);
    }

    #[test]
    fn long_runs_are_copied_in_parts() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("template");
        let content: Vec<u8> = (0..(800 << 10) + 100).map(|n| (n % 251) as u8 + 1).collect();
        std::fs::write(&path, &content).unwrap();
        let disk = tempfile::tempfile().unwrap();
        DiskTemplate::from(InstalledFile::keep(&path).unwrap()).open().unwrap().fill(&disk, 0).unwrap();
        let mut copied = vec![0; content.len()];
        disk.read_exact_at(&mut copied, 0).unwrap();
        assert!(copied == content);
    }
}
