//! Files that are disks of VMs: each begins as a sparse copy of a formatted template.
//!
//! Blocking work; callers run it beside the async threads.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use rustix::fs::{SeekFrom, ioctl_ficlone};

/// Bytes copied at a time.
const CHUNK: usize = 256 * 1024;
/// Bytes of the blocks that are left out where they are zeros.
const BLOCK: usize = 4096;

/// Fills the new file `disk`. Shares the template's blocks where the file system can, else copies what is not a hole. `bytes` is
/// the disk's size unless the template is larger.
pub(crate) fn fill(template: &File, disk: &File, bytes: u64) -> io::Result<()> {
    let size = template.metadata()?.len();
    if ioctl_ficlone(disk, template).is_err() {
        copy_sparsely(template, disk, size)?;
    }
    // A virtio disk has whole sectors.
    disk.set_len(size.max(bytes).next_multiple_of(4096))
}

/// Leaves out what is a hole, and what is zero: a template may have lost its holes on its way here.
fn copy_sparsely(source: &File, disk: &File, size: u64) -> io::Result<()> {
    let mut chunk = vec![0; CHUNK];
    let mut at = 0;
    while at < size {
        let start = match rustix::fs::seek(source, SeekFrom::Data(at)) {
            Ok(start) => start,
            // Nothing but a hole is left.
            Err(rustix::io::Errno::NXIO) => break,
            Err(error) => return Err(error.into()),
        };
        at = start;
        let end = rustix::fs::seek(source, SeekFrom::Hole(start))?.max(start + 1);
        while at < end {
            let want = usize::try_from(end - at).unwrap_or(CHUNK).min(CHUNK);
            let got = source.read_at(&mut chunk[..want], at)?;
            if got == 0 {
                return Ok(());
            }
            write_blocks(disk, &chunk[..got], at)?;
            at += got as u64;
        }
    }
    Ok(())
}

/// Writes the blocks that are not all zeros.
fn write_blocks(disk: &File, bytes: &[u8], at: u64) -> io::Result<()> {
    for (block, offset) in bytes.chunks(BLOCK).zip((at..).step_by(BLOCK)) {
        if block.iter().any(|byte| *byte != 0) {
            disk.write_all_at(block, offset)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn a_template_without_holes_becomes_a_disk_with_them() {
        let (template, disk) = (tempfile::tempfile().unwrap(), tempfile::tempfile().unwrap());
        let mut content = vec![0; 4 << 20];
        content[1 << 20] = 7;
        content[(3 << 20) + 5000] = 8;
        template.write_all_at(&content, 0).unwrap();
        copy_sparsely(&template, &disk, content.len() as u64).unwrap();
        disk.set_len(content.len() as u64).unwrap();
        let mut copied = vec![0; content.len()];
        disk.read_exact_at(&mut copied, 0).unwrap();
        assert!(copied == content);
        assert!(disk.metadata().unwrap().blocks() * 512 < 1 << 20, "zeros were written");
        fill(&template, &disk, 8 << 20).unwrap();
        assert_eq!(disk.metadata().unwrap().len(), 8 << 20);
    }
}
