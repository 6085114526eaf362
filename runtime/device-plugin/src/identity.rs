//! The identity of a file, to detect its replacement at the same path.

use std::fs::Metadata;
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Identifies one file among successive files of the same name. Many file systems reuse an inode number at
/// once for the next file, so the creation time is part of it. Nothing writes to a socket's file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    device: u64,
    inode: u64,
    made: (i64, i64),
}

impl Identity {
    /// Returns the identity of the file at a path. `None` if there is no file.
    ///
    /// # Errors
    /// The path cannot be resolved.
    pub(crate) fn at(path: &Path) -> io::Result<Option<Identity>> {
        match path.metadata() {
            Ok(metadata) => Ok(Some(Identity::of(&metadata))),
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn of(metadata: &Metadata) -> Identity {
        Identity {
            device: metadata.dev(),
            inode: metadata.ino(),
            made: (metadata.mtime(), metadata.mtime_nsec()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn a_socket_that_was_made_anew_is_another_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("kubelet.sock");
        assert_eq!(Identity::at(&path).unwrap(), None);
        let _first = UnixListener::bind(&path).unwrap();
        let first = Identity::at(&path).unwrap().unwrap();
        assert_eq!(Identity::at(&path).unwrap(), Some(first));
        std::fs::remove_file(&path).unwrap();
        // A file system's clock has ticks; the sockets of two kubelets are further apart.
        while Identity::at(&path).unwrap().is_none_or(|now| now == first) {
            let _ = std::fs::remove_file(&path);
            drop(UnixListener::bind(&path).unwrap());
        }
        assert_ne!(Identity::at(&path).unwrap(), Some(first));
    }
}
