//! The guest's root image for VMs: one copy in memory for all of them, in large pages if the node has them. A
//! guest maps 2 MiB of it at its first access, instead of 4 KiB. Its pages never need reads from a disk that
//! may hang. Its memory is charged to the daemon, not to the first pod that touched it. Blocking work.

use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::sync::{Mutex, PoisonError};

use crate::host::{file_data, memory_file};
use crate::installed::InstalledFile;

/// Largest copied image, in bytes; ours has eight MiB. VMs map the file of a larger one.
const COPIED_MAX: u64 = 128 << 20;

/// The image's copy, once a VM has requested it.
#[derive(Debug, Default)]
pub(crate) struct RootImage(Mutex<Option<Copied>>);

#[derive(Debug)]
struct Copied {
    of: Identity,
    file: File,
}

/// The identity of a file's content, according to its metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Identity {
    device: u64,
    inode: u64,
    bytes: u64,
    modified: (i64, i64),
}

impl Identity {
    fn of(metadata: &Metadata) -> Identity {
        Identity {
            device: metadata.dev(),
            inode: metadata.ino(),
            bytes: metadata.len(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
        }
    }
}

impl RootImage {
    /// The currently installed image, for mapping and reading. VMs with an earlier one keep it.
    pub(crate) fn open(&self, installed: &InstalledFile) -> io::Result<File> {
        let file = File::open(installed.path())?;
        let of = Identity::of(&file.metadata()?);
        let mut copied = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(copied) = copied.as_ref().filter(|copied| copied.of == of) {
            return copied.file.try_clone();
        }
        if of.bytes > COPIED_MAX {
            return Ok(file);
        }
        match copy(&file, of.bytes) {
            Ok(made) => {
                let file = made.try_clone();
                *copied = Some(Copied { of, file: made });
                file
            }
            Err(error) => {
                tracing::warn!(%error, "the guests' root image cannot be copied to memory; VMs map the file");
                Ok(file)
            }
        }
    }
}

fn copy(file: &File, bytes: u64) -> io::Result<File> {
    let copy = memory_file::create(c"podvisor-root-image")?;
    copy.set_len(bytes)?;
    file_data::copy(&file_data::find(file)?, file, &copy, |_, _| {})?;
    memory_file::finish(&copy)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::FileExt as _;

    use super::*;

    fn first(file: &File) -> u8 {
        let mut byte = [0];
        file.read_exact_at(&mut byte, 0).unwrap();
        byte[0]
    }

    #[test]
    fn all_vms_have_one_copy_until_the_installation_has_another_image() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("root.erofs");
        let installed = InstalledFile::from(path.clone());
        let image = RootImage::default();
        image.open(&installed).unwrap_err();
        fs::write(&path, vec![1; 3 << 20]).unwrap();
        let [one, other] = [(); 2].map(|()| image.open(&installed).unwrap());
        let inode = |file: &File| file.metadata().unwrap().ino();
        assert_eq!((inode(&one), first(&one)), (inode(&other), 1));
        assert_ne!(inode(&one), fs::metadata(&path).unwrap().ino());
        one.write_all_at(&[9], 0).unwrap_err();

        fs::write(dir.path().join("new"), vec![2; 3 << 20]).unwrap();
        fs::rename(dir.path().join("new"), &path).unwrap();
        assert_eq!(first(&image.open(&installed).unwrap()), 2);
        assert_eq!(first(&one), 1, "a VM keeps what it was started from");
    }

    #[test]
    fn an_image_beyond_the_bound_is_mapped_from_its_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("root.erofs");
        File::create(&path).unwrap().set_len(COPIED_MAX + 1).unwrap();
        let opened = RootImage::default().open(&InstalledFile::from(path.clone())).unwrap();
        assert_eq!(opened.metadata().unwrap().ino(), fs::metadata(&path).unwrap().ino());
    }
}
