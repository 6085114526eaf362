//! Reads small files of a container's root file system. The file system is hostile: links cannot lead out of
//! it, and only regular files of up to 8 MiB are read. [`crate::users`] parses the text.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

/// Longest readable file, in bytes. /etc/passwd of a site with some ten thousand users has a few MiB.
const FILE_BYTES_MAX: u64 = 8 * 1024 * 1024;

/// Why a file in the image could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ImageFileError {
    /// The kernel refused to open or read it.
    #[error("cannot read {path} in the image")]
    Read {
        /// Path inside the image.
        path: PathBuf,
        /// The kernel's reason.
        source: io::Error,
    },
    /// The path leads to a directory, device, pipe or socket.
    #[error("{0} in the image is no regular file")]
    NotRegular(PathBuf),
    /// The file is longer than 8 MiB.
    #[error("{0} in the image is longer than {FILE_BYTES_MAX} bytes")]
    TooLong(PathBuf),
}

/// Returns the text of `path` (relative to `root`), or `None` if there is no such file. Invalid UTF-8 is
/// replaced.
pub fn read(root: &Path, path: &Path) -> Result<Option<String>, ImageFileError> {
    let failed = |source: io::Error| ImageFileError::Read { path: path.to_owned(), source };
    let directory =
        rustix::fs::openat(CWD, root, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
            .map_err(|errno| failed(errno.into()))?;
    // Without NONBLOCK a named pipe in the image would block the agent.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    let fd = match rustix::fs::openat2(&directory, path, flags, Mode::empty(), resolve) {
        Ok(fd) => fd,
        Err(Errno::NOENT | Errno::NOTDIR) => return Ok(None),
        Err(errno) => return Err(failed(errno.into())),
    };
    let file = File::from(fd);
    let metadata = file.metadata().map_err(failed)?;
    if !metadata.is_file() {
        return Err(ImageFileError::NotRegular(path.to_owned()));
    }
    let mut bytes = Vec::new();
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(ImageFileError::TooLong(path.to_owned()));
    }
    Ok(Some(String::from_utf8_lossy(&bytes).into_owned()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_link_stays_in_the_image() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("root");
        std::fs::create_dir_all(root.join("etc")).unwrap();
        std::fs::write(dir.path().join("secret"), "host").unwrap();
        std::fs::write(root.join("secret"), "image").unwrap();
        symlink("../../../secret", root.join("etc/up")).unwrap();
        symlink("/secret", root.join("etc/absolute")).unwrap();
        for name in ["etc/up", "etc/absolute"] {
            assert_eq!(read(&root, Path::new(name)).unwrap().as_deref(), Some("image"));
        }
    }

    #[test]
    fn a_missing_file_is_none() {
        let dir = tempfile::tempdir().unwrap();
        assert!(read(dir.path(), Path::new("etc/passwd")).unwrap().is_none());
    }

    #[test]
    fn a_directory_and_a_long_file_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("passwd")).unwrap();
        let long = File::create(dir.path().join("group")).unwrap();
        long.set_len(FILE_BYTES_MAX + 1).unwrap();
        assert!(matches!(read(dir.path(), Path::new("passwd")), Err(ImageFileError::NotRegular(_))));
        assert!(matches!(read(dir.path(), Path::new("group")), Err(ImageFileError::TooLong(_))));
    }
}
