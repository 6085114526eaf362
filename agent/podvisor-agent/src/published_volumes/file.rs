//! Files of a version being sent. They are not visible yet, and only the agent writes them.

use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::{FileExt, PermissionsExt, chown};
use std::path::{Component, Path};

use proto_agent::agent::{FileAccess, PublishedFile};

/// Longest path of a file in a version (`PATH_MAX`, include/uapi/linux/limits.h).
const PATH_BYTES_MAX: usize = 4096;

/// Why a file cannot be written.
#[derive(Debug)]
pub(super) enum FileError {
    /// The path leads elsewhere, or has a name reserved for the volume itself.
    Path(String),
    Io(io::Error),
}

impl From<io::Error> for FileError {
    fn from(error: io::Error) -> Self {
        FileError::Io(error)
    }
}

/// Writes a piece of a file, or makes a directory, in the directory of the version.
pub(super) fn write(incoming: &Path, file: &PublishedFile) -> Result<(), FileError> {
    if !is_inside(&file.path) {
        return Err(FileError::Path(file.path.chars().take(128).collect()));
    }
    let path = incoming.join(&file.path);
    if file.directory {
        fs::create_dir(&path)?;
    } else {
        // The first piece makes the file.
        let opened = File::options().write(true).create_new(file.offset == 0).open(&path)?;
        opened.write_all_at(&file.content, file.offset)?;
    }
    Ok(set_access(&path, &file.access.clone().unwrap_or_default())?)
}

/// Sets owner and mode. Changing the owner clears setgid, so the mode comes last.
pub(super) fn set_access(path: &Path, access: &FileAccess) -> io::Result<()> {
    chown(path, Some(access.uid), Some(access.gid))?;
    fs::set_permissions(path, Permissions::from_mode(access.mode & 0o7777))
}

/// Returns true if the path stays in the version, and its first name is not reserved for the volume.
fn is_inside(path: &str) -> bool {
    let plain = |part: &str| !part.is_empty() && part != "." && part != "..";
    path.len() <= PATH_BYTES_MAX
        && !path.contains('\0')
        && path.split('/').all(plain)
        && !path.starts_with("..")
        && Path::new(path).components().all(|part| matches!(part, Component::Normal(_)))
}
