//! Inspection of the device nodes named by edits, without opening them.

use std::io::ErrorKind;
use std::path::Path;

use rustix::fs::{FileType, major, minor, stat};

/// The node's own file behind a device node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// Not inspected yet.
    Unseen,
    /// A block device with its major and minor number.
    Block(i64, i64),
    /// A character device with its major and minor number.
    Character(i64, i64),
    /// A file other than a device.
    Other,
    /// No such file.
    Missing,
    /// The file cannot be inspected, for this reason.
    Unknown(String),
}

/// Inspects the file. It follows links, as `/dev/disk/by-id` requires.
pub(crate) fn look(path: &str) -> Found {
    let status = match stat(Path::new(path)) {
        Ok(status) => status,
        Err(errno) => {
            let error = std::io::Error::from(errno);
            return match error.kind() {
                ErrorKind::NotFound | ErrorKind::NotADirectory => Found::Missing,
                _ => Found::Unknown(error.to_string()),
            };
        }
    };
    let (major, minor) = (i64::from(major(status.st_rdev)), i64::from(minor(status.st_rdev)));
    match FileType::from_raw_mode(status.st_mode) {
        FileType::BlockDevice => Found::Block(major, minor),
        FileType::CharacterDevice => Found::Character(major, minor),
        _ => Found::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_the_node_are_known_by_their_kind() {
        let dir = tempfile::tempdir().unwrap();
        let link = dir.path().join("link");
        std::os::unix::fs::symlink("/dev/null", &link).unwrap();
        let circle = dir.path().join("circle");
        std::os::unix::fs::symlink(&circle, &circle).unwrap();
        assert_eq!(look("/dev/null"), Found::Character(1, 3));
        assert_eq!(look(link.to_str().unwrap()), Found::Character(1, 3));
        assert_eq!(look(dir.path().to_str().unwrap()), Found::Other);
        assert_eq!(look("/dev/null/below"), Found::Missing);
        assert!(matches!(look(circle.to_str().unwrap()), Found::Unknown(_)));
    }
}
