//! The free space of a disk. Never frees anything.

use std::path::Path;

use crate::error::ImageError;

/// Fails if the directory's disk has less free space than `wanted` bytes. Blocks on the disk.
pub(crate) fn has(directory: &Path, wanted: u64) -> Result<(), ImageError> {
    let found = rustix::fs::statvfs(directory).map_err(std::io::Error::from);
    let found = found.map_err(ImageError::disk("asking for the room of", directory))?;
    let free = found.f_bavail.saturating_mul(found.f_frsize);
    match free < wanted {
        true => Err(ImageError::NoRoom { path: directory.to_owned(), wanted, free }),
        false => Ok(()),
    }
}
