//! Writes files atomically. Owns the order of write, sync, seal and rename.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

use runtime_fail_points::{Point, pass};

use crate::error::ImageError;
use crate::verity::{self, VerityDigest};

/// Replaces the content of `path` by `bytes`. After a crash it holds the old or the new content, and after an
/// error the old one.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> Result<(), ImageError> {
    let new = path.with_extension("new");
    pass(Point::ImageFileMake).map_err(ImageError::disk("creating", &new))?;
    let mut file = File::create(&new).map_err(ImageError::disk("creating", &new))?;
    let written = file.write_all(bytes).map_err(ImageError::disk("writing", &new));
    written.and_then(|()| publish(&file, &new, path)).inspect_err(|_| {
        // Frees the space in case the disk is full. The next replacement starts from nothing.
        let _ = fs::remove_file(&new);
    })
}

/// Moves the finished `file` from `from` to `to`, durably. Both are on one file system.
pub(crate) fn publish(file: &File, from: &Path, to: &Path) -> Result<(), ImageError> {
    file.sync_all().map_err(ImageError::disk("syncing", from))?;
    rename(Point::ImageRename, from, to)
}

/// Like [`publish`], with its own fail point before the rename, for a file that never changes again. If the
/// file system has fs-verity, the file is sealed before the rename, and its digest is returned.
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

/// Removes a file. Succeeds if it is absent.
pub(crate) fn remove(path: &Path) -> Result<(), ImageError> {
    remove_at(Point::ImageRemove, path)
}

/// Like [`remove`], with its own fail point.
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
