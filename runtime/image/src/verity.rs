//! fs-verity of the store's files: the kernel lets nobody write to such a file any more, checks each of its blocks against a tree of
//! hashes as it is read, and knows the file by the digest of that tree. Owns how a file comes to its digest and is compared
//! with one; which file has which digest is for the index to keep.
//!
//! Linux: Documentation/filesystems/fsverity.rst.

use std::fs::File;
use std::io;
use std::path::Path;
use std::time::Duration;

use composefs_ioctls::fsverity::{
    EnableVerityError, MeasureVerityError, fs_ioc_enable_verity, fs_ioc_measure_verity,
};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::error::ImageError;

/// `FS_VERITY_HASH_ALG_SHA256` of include/uapi/linux/fsverity.h.
const SHA_256: u8 = 1;
const DIGEST_BYTES: usize = 32;

/// Bytes of a block of the tree of hashes: every kernel with fs-verity has this size where its pages are as large.
const BLOCK_BYTES: u32 = 4096;

/// How often a file is tried that is open for writing, and the pause before the next try: a program that the daemon starts has its
/// descriptors, too, until it is executed.
const BUSY_TRIES: usize = 100;
const BUSY_PAUSE: Duration = Duration::from_millis(50);

/// The digest by which fs-verity knows a file, as hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct VerityDigest(pub(crate) String);

/// Seals a file for ever, durably, and returns its digest; none where the file system, or the kernel for it, has no fs-verity. Nobody
/// may have the file open for writing.
pub(crate) fn seal(path: &Path) -> Result<Option<VerityDigest>, ImageError> {
    let failed = ImageError::disk("sealing", path);
    let sealed = File::open(path).and_then(|file| {
        if !enable(&file, path)? {
            return Ok(None);
        }
        file.sync_all()?;
        measure(&file).map(Some)
    });
    sealed.map_err(failed)
}

fn enable(file: &File, path: &Path) -> io::Result<bool> {
    for _ in 0..BUSY_TRIES {
        match fs_ioc_enable_verity(file, SHA_256, BLOCK_BYTES) {
            Ok(()) | Err(EnableVerityError::AlreadyEnabled) => return Ok(true),
            Err(EnableVerityError::FileOpenedForWrite) => std::thread::sleep(BUSY_PAUSE),
            Err(EnableVerityError::FilesystemNotSupported) => return Ok(false),
            Err(EnableVerityError::SignatureVerificationFailed) => return Err(Errno::KEYREJECTED.into()),
            Err(EnableVerityError::Io(error)) if is_unable(&error) => {
                tracing::warn!(%error, path = %path.display(), "fs-verity is there, and not for this file");
                return Ok(false);
            }
            Err(EnableVerityError::Io(error)) => return Err(error),
        }
    }
    Err(Errno::TXTBSY.into())
}

/// Whether the system has fs-verity and none for such a file: its blocks are of another size, SHA-256 is missing, or all files
/// need signatures (fs.verity.require_signatures).
fn is_unable(error: &io::Error) -> bool {
    let unable = [Errno::INVAL, Errno::NOPKG, Errno::PERM];
    unable.iter().any(|one| error.raw_os_error() == Some(one.raw_os_error()))
}

fn measure(file: &File) -> io::Result<VerityDigest> {
    let digest = fs_ioc_measure_verity::<DIGEST_BYTES>(file, SHA_256).map_err(|error| match error {
        MeasureVerityError::Io(error) => error,
        other => altered(&other.to_string()),
    })?;
    Ok(VerityDigest(hex::encode(digest)))
}

/// Compares an open file with the digest that it had when it was stored; one without a digest is not looked at.
///
/// # Errors
/// An error of the kind [`io::ErrorKind::InvalidData`] for another file, and whatever the disk fails with.
pub(crate) fn check(file: &File, stored: Option<&VerityDigest>) -> io::Result<()> {
    let Some(stored) = stored else { return Ok(()) };
    let found = measure(file)?;
    if found != *stored {
        return Err(altered(&format!("its fs-verity digest is {}, not {}", found.0, stored.0)));
    }
    Ok(())
}

fn altered(reason: &str) -> io::Error {
    let text = format!("it is not the file that was stored ({reason}): remove the image, and pull it again");
    io::Error::new(io::ErrorKind::InvalidData, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file on a file system that never has fs-verity.
    fn file() -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new_in("/dev/shm").unwrap();
        std::fs::write(file.path(), b"content").unwrap();
        file
    }

    #[test]
    fn a_file_system_without_it_gives_no_digest_and_a_file_without_a_digest_is_as_it_was() {
        let file = file();
        assert_eq!(seal(file.path()).unwrap(), None);
        check(&File::open(file.path()).unwrap(), None).unwrap();
        std::fs::write(file.path(), b"it is not sealed").unwrap();
    }

    #[test]
    fn a_file_that_had_a_digest_and_has_none_is_another() {
        let file = file();
        let stored = VerityDigest("0".repeat(64));
        let error = check(&File::open(file.path()).unwrap(), Some(&stored)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        assert!(error.to_string().contains("it is not the file that was stored"), "{error}");
    }

    #[test]
    fn a_file_that_is_gone_is_no_file_system_without_fs_verity() {
        let directory = tempfile::tempdir().unwrap();
        assert!(matches!(seal(&directory.path().join("none")), Err(ImageError::Disk { .. })));
    }
}
