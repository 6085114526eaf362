//! Files that are there whole or not at all. Owns the order of write, sync, seal and rename.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

use runtime_fail_points::{Point, pass};

use crate::error::ImageError;
use crate::verity::{self, VerityDigest};

/// Replaces `path` by `bytes`: after a crash it holds the old or the new content, and after an error the old one alone.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> Result<(), ImageError> {
    let new = path.with_extension("new");
    pass(Point::ImageFileMake).map_err(ImageError::disk("creating", &new))?;
    let mut file = File::create(&new).map_err(ImageError::disk("creating", &new))?;
    let written = file.write_all(bytes).map_err(ImageError::disk("writing", &new));
    written.and_then(|()| publish(&file, &new, path)).inspect_err(|_| {
        // A full disk has a use for its room, and the next replacement starts anew.
        let _ = fs::remove_file(&new);
    })
}

/// Makes the finished `file` at `from` appear at `to`, durably. Both are on one file system.
pub(crate) fn publish(file: &File, from: &Path, to: &Path) -> Result<(), ImageError> {
    file.sync_all().map_err(ImageError::disk("syncing", from))?;
    rename(Point::ImageRename, from, to)
}

/// As [`publish`], with a point of its own before the rename, for a file that never changes again: where the file system has
/// fs-verity, the file is sealed before it appears, and its digest is returned.
pub(crate) fn publish_sealed(
    point: Point,
    file: File,
    from: &Path,
    to: &Path,
) -> Result<Option<VerityDigest>, ImageError> {
    file.sync_all().map_err(ImageError::disk("syncing", from))?;
    drop(file);
    pass(Point::ImageSeal).map_err(ImageError::disk("sealing", from))?;
    let digest = verity::seal(from)?;
    rename(point, from, to)?;
    Ok(digest)
}

fn rename(point: Point, from: &Path, to: &Path) -> Result<(), ImageError> {
    pass(point).map_err(ImageError::disk("renaming", from))?;
    fs::rename(from, to).map_err(ImageError::disk("renaming", from))?;
    if let Some(parent) = to.parent() {
        let directory = File::open(parent).map_err(ImageError::disk("opening", parent))?;
        directory.sync_all().map_err(ImageError::disk("syncing", parent))?;
    }
    Ok(())
}

/// Removes a file that may be gone already.
pub(crate) fn remove(path: &Path) -> Result<(), ImageError> {
    remove_at(Point::ImageRemove, path)
}

/// As [`remove`], with a point of its own.
pub(crate) fn remove_at(point: Point, path: &Path) -> Result<(), ImageError> {
    match pass(point).and_then(|()| fs::remove_file(path)) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(ImageError::disk("removing", path)(error))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_cannot_be_replaced_leaves_nothing_beside_it() {
        let directory = tempfile::tempdir().unwrap();
        // No file can be renamed onto a directory.
        let path = directory.path().join("index.json");
        fs::create_dir(&path).unwrap();
        replace(&path, b"new").unwrap_err();
        let left: Vec<_> =
            fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert_eq!(left, [path]);
    }
}
