//! fs-verity for the store's files. The kernel makes such a file immutable and checks each block on reading
//! against a tree of hashes. The digest of this tree identifies the file. Owns sealing files and comparing
//! their digests; the index stores the digest of each file.
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

/// Bytes of a block in the hash tree. Every kernel with fs-verity supports this size if its pages are as
/// large.
const BLOCK_BYTES: u32 = 4096;

/// How often sealing is retried while a file is open for writing, and the pause in between. A program started
/// by the daemon also holds its descriptors until it is executed.
const BUSY_TRIES: usize = 100;
const BUSY_PAUSE: Duration = Duration::from_millis(50);

/// The fs-verity digest of a file, as hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct VerityDigest(pub(crate) String);

/// Seals a file permanently and durably, and returns its digest. Returns `None` if the file system, or the
/// kernel's support for it, lacks fs-verity. The file must not be open for writing anywhere.
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

/// Returns true if the system has fs-verity, but not for such a file: its block size differs, SHA-256 is
/// missing, or all files need signatures (fs.verity.require_signatures).
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

/// Compares an open file with its stored digest. Without a digest there is no check.
///
/// # Errors
/// An error of the kind [`io::ErrorKind::InvalidData`] for another file, and any error of the disk.
pub(crate) fn check(file: &File, stored: Option<&VerityDigest>) -> io::Result<()> {
    let Some(stored) = stored else { return Ok(()) };
    let found = measure(file)?;
    if found != *stored {
        return Err(altered(&format!("its fs-verity digest is {}, not {}", found.0, stored.0)));
    }
    Ok(())
}

fn altered(reason: &str) -> io::Error {
    let text = format!("it is not the stored file ({reason}): remove the image, and pull it again");
    io::Error::new(io::ErrorKind::InvalidData, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file on a file system without fs-verity.
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
        assert!(error.to_string().contains("it is not the stored file"), "{error}");
    }

    #[test]
    fn a_file_that_is_gone_is_no_file_system_without_fs_verity() {
        let directory = tempfile::tempdir().unwrap();
        assert!(matches!(seal(&directory.path().join("none")), Err(ImageError::Disk { .. })));
    }
}
