//! Published volumes, in the layout of the kubelet's atomic writer (kubernetes
//! `pkg/volume/util/atomic_writer.go`):
//!
//! ```text
//!  <volume>/..2026_01_31_12_00_00.123456789/<files>      one directory for each version
//!  <volume>/..data -> ..2026_01_31_12_00_00.123456789    renamed over the old one: an atomic switch
//!  <volume>/<name> -> ..data/<name>                      one for each name at the top of a version
//! ```
//!
//! This module reads one version as a whole. The bytes are secrets: they are neither kept nor shown anywhere.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use runtime_fail_points::{Point, pass};
use runtime_guest::PublishedFile;
use runtime_spec::FileAccess;
use rustix::fs::{CWD, Dir, FileType, Mode, OFlags, Stat, fstat, openat, readlinkat};
use rustix::io::Errno;

/// Name of the link to the current version.
pub(crate) const DATA: &str = "..data";

/// Most memory of one volume's copy in the guest, in bytes. Each object has at most 1 MiB in Kubernetes; a
/// projected volume is a sum of several.
pub(crate) const BYTES_MAX: u64 = 8 << 20;

/// Most files and directories of one volume.
const FILES_MAX: usize = 4096;

/// Deepest directory in a volume.
const DEPTH_MAX: usize = 32;

/// The guest's memory for a file is a multiple of this.
const PAGE_BYTES: u64 = 4096;

/// Number of read attempts: the kubelet may remove the version meanwhile.
const TRIES: usize = 4;

/// Name of the only file in the copy of a volume's part, if the part is a file.
pub(crate) const PART: &str = "file";

/// A version of a published volume, or a part of one.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Snapshot {
    /// The name of the version's directory; `None` for a part: parts have no versions.
    pub(crate) version: Option<String>,
    /// Access to the volume's directory.
    pub(crate) root: FileAccess,
    /// Access to the version's directory.
    pub(crate) top: FileAccess,
    /// Parents come before their children.
    pub(crate) files: Vec<PublishedFile>,
    /// Whether the part is one file, named [`PART`].
    pub(crate) is_file: bool,
    /// Memory taken by the copy.
    pub(crate) bytes: u64,
}

impl fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Snapshot")
            .field("version", &self.version)
            .field("files", &self.files.len())
            .finish_non_exhaustive()
    }
}

/// Why a directory is not copied.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReadError {
    /// The directory was not made by the atomic writer, or is too large.
    #[error("it {0}")]
    Unlike(&'static str),
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl ReadError {
    /// Whether the volume is not there any more.
    pub(crate) fn is_absent(&self) -> bool {
        match self {
            ReadError::Unlike(_) => true,
            ReadError::Io(error) => error.kind() == io::ErrorKind::NotFound,
        }
    }
}

impl From<Errno> for ReadError {
    fn from(errno: Errno) -> Self {
        ReadError::Io(errno.into())
    }
}

/// The current version of the volume.
///
/// # Errors
/// There is none, or the kernel refused.
pub(crate) fn version(directory: &Path) -> Result<String, ReadError> {
    version_of(&open_directory(CWD, directory)?)
}

/// Reads the current version of the volume.
///
/// # Errors
/// The directory is not laid out by the atomic writer, is too large, or cannot be read.
pub(crate) fn read(directory: &Path) -> Result<Snapshot, ReadError> {
    pass(Point::VolumeRead)?;
    let volume = open_directory(CWD, directory)?;
    check_layout(&volume)?;
    let root = access(&fstat(&volume)?);
    let mut tries = TRIES;
    loop {
        tries -= 1;
        let version = version_of(&volume)?;
        match read_version(&volume, &version) {
            // A version still current was complete all the time: the kubelet removes one only after it has
            // replaced it.
            Ok((top, Reading { files, bytes })) if version_of(&volume)? == version => {
                return Ok(Snapshot { version: Some(version), root, top, files, is_file: false, bytes });
            }
            Ok(_) if tries == 0 => {
                return Err(io::Error::other("its versions change while they are read").into());
            }
            // The version is gone: there is a newer one.
            Err(ReadError::Io(error)) if error.kind() == io::ErrorKind::NotFound && tries > 0 => {}
            Ok(_) => {}
            Err(error) => return Err(error),
        }
    }
}

/// Reads a part of a volume: a file or directory that no longer changes.
///
/// # Errors
/// The part contains an entry of another type, is too large, or cannot be read.
pub(crate) fn read_part(place: &Path) -> Result<Snapshot, ReadError> {
    pass(Point::VolumeRead)?;
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let opened = openat(CWD, place, flags, Mode::empty())?;
    let found = fstat(&opened)?;
    let mut reading = Reading::default();
    let is_file = FileType::from_raw_mode(found.st_mode) == FileType::RegularFile;
    match FileType::from_raw_mode(found.st_mode) {
        FileType::Directory => reading.directory(&opened, "", 0)?,
        FileType::RegularFile => reading.file(opened, PART.to_owned(), &found)?,
        _ => return Err(ReadError::Unlike("is neither a file nor a directory")),
    }
    let Reading { files, bytes } = reading;
    // The directory of a single file's copy is not visible to anyone.
    let access = if is_file { FileAccess { mode: 0o755, uid: 0, gid: 0 } } else { access(&found) };
    Ok(Snapshot { version: None, root: access, top: access, files, is_file, bytes })
}

fn version_of(volume: &OwnedFd) -> Result<String, ReadError> {
    let target = match readlinkat(volume, DATA, Vec::new()) {
        Ok(target) => target,
        Err(Errno::NOENT | Errno::INVAL) => return Err(ReadError::Unlike("has no version")),
        Err(errno) => return Err(errno.into()),
    };
    match target.into_string() {
        Ok(name) if name.starts_with("..") && name.len() > 2 && !name.contains('/') => Ok(name),
        _ => Err(ReadError::Unlike("has a version of another form")),
    }
}

/// Refuses a volume with entries not made by the atomic writer.
fn check_layout(volume: &OwnedFd) -> Result<(), ReadError> {
    for entry in Dir::read_from(volume)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name == b"." || name.starts_with(b"..") {
            continue;
        }
        let wanted = [DATA.as_bytes(), b"/", name].concat();
        match readlinkat(volume, entry.file_name(), Vec::new()) {
            Ok(target) if target.as_bytes() == wanted => {}
            // Removed meanwhile.
            Err(Errno::NOENT) => {}
            Ok(_) | Err(Errno::INVAL) => {
                return Err(ReadError::Unlike("holds an entry outside of a version"));
            }
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}

fn read_version(volume: &OwnedFd, version: &str) -> Result<(FileAccess, Reading), ReadError> {
    let directory = open_directory(volume, version)?;
    let mut reading = Reading::default();
    reading.directory(&directory, "", 0)?;
    Ok((access(&fstat(&directory)?), reading))
}

/// A version as far as it is read.
#[derive(Default)]
struct Reading {
    files: Vec<PublishedFile>,
    bytes: u64,
}

impl Reading {
    /// Reads the whole content of a directory, in the order of the names.
    fn directory(&mut self, directory: &OwnedFd, path: &str, depth: usize) -> Result<(), ReadError> {
        let mut names = Vec::new();
        for entry in Dir::read_from(directory)? {
            let name = entry?.file_name().to_owned();
            if ![&b"."[..], b".."].contains(&name.to_bytes()) {
                names.push(
                    name.into_string().map_err(|_| ReadError::Unlike("has a name with invalid UTF-8"))?,
                );
            }
            if self.files.len() + names.len() > FILES_MAX {
                return Err(ReadError::Unlike("has more files than are copied"));
            }
        }
        names.sort();
        for name in names {
            let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
            let opened = match openat(directory, &name, flags, Mode::empty()) {
                Err(Errno::LOOP | Errno::NXIO) => {
                    return Err(ReadError::Unlike("holds an entry of another type"));
                }
                opened => opened?,
            };
            let found = fstat(&opened)?;
            let path = if path.is_empty() { name } else { format!("{path}/{name}") };
            match FileType::from_raw_mode(found.st_mode) {
                FileType::Directory if depth < DEPTH_MAX => {
                    self.take(PAGE_BYTES)?;
                    let access = access(&found);
                    self.files.push(PublishedFile { path: path.clone(), access, content: None });
                    self.directory(&opened, &path, depth + 1)?;
                }
                FileType::Directory => {
                    return Err(ReadError::Unlike("has too many directories in each other"));
                }
                FileType::RegularFile => self.file(opened, path, &found)?,
                _ => return Err(ReadError::Unlike("holds an entry of another type")),
            }
        }
        Ok(())
    }

    fn file(&mut self, opened: OwnedFd, path: String, found: &Stat) -> Result<(), ReadError> {
        let left = BYTES_MAX.saturating_sub(self.bytes);
        let mut content = Vec::new();
        File::from(opened).take(left + 1).read_to_end(&mut content)?;
        let bytes = u64::try_from(content.len()).unwrap_or(u64::MAX);
        self.take(bytes.div_ceil(PAGE_BYTES) * PAGE_BYTES)?;
        self.files.push(PublishedFile { path, access: access(found), content: Some(content) });
        Ok(())
    }

    fn take(&mut self, bytes: u64) -> Result<(), ReadError> {
        self.bytes += bytes;
        if self.bytes > BYTES_MAX {
            return Err(ReadError::Unlike("is too large to be copied"));
        }
        Ok(())
    }
}

fn access(found: &Stat) -> FileAccess {
    FileAccess { mode: found.st_mode & 0o7777, uid: found.st_uid, gid: found.st_gid }
}

fn open_directory(parent: impl AsFd, name: impl rustix::path::Arg) -> Result<OwnedFd, ReadError> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match openat(parent, name, flags, Mode::empty()) {
        Err(Errno::NOTDIR | Errno::LOOP) => Err(ReadError::Unlike("is no directory")),
        opened => Ok(opened?),
    }
}

#[cfg(test)]
mod tests;
