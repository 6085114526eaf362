//! Templates on the disk, for the next daemon: a directory each, named by its key.
//!
//! ```text
//!   <state>/templates/<key>/record    the properties of the other two, as JSON
//!                          /memory    the guest's memory, pages of zeros as holes
//!                          /state
//!                    /.<name>         one being written; removed by the next daemon
//! ```
//!
//! A file is only used if its length and digest match the record, and then from a sealed copy in memory.
//! Files belong to root, and only root may read them: they hold a guest's memory. Blocking work.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nix::errno::Errno;
use proto_vmm::STATE_BYTES_MAX;
use runtime_fail_points::{Point, pass};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::kept::Template;
use super::pages::MEMORY_FILE;
use crate::host::file_data::{self, BLOCK};
use crate::host::memory_file;

const RECORD: &str = "record";
const MEMORY: &str = "memory";
const STATE: &str = "state";

/// First character of the name of an incomplete directory.
const UNFINISHED: char = '.';

/// Longest record in bytes; one has some hundred.
const RECORD_BYTES_MAX: u64 = 4096;

/// Lengths and digests of a template's files.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Record {
    key: String,
    memory_bytes: u64,
    memory_sha256: String,
    state_bytes: u64,
    state_sha256: String,
    made_unix_seconds: u64,
}

/// A template on the disk cannot be used.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub(super) enum TemplateFileError {
    #[error("cannot read or copy {file}")]
    Read { file: &'static str, source: io::Error },
    #[error("its record cannot be read")]
    Record(#[from] serde_json::Error),
    #[error("it is the template {found}")]
    Key { found: String },
    #[error("{file} has {has} bytes in place of {expected}")]
    Size { file: &'static str, has: u64, expected: u64 },
    #[error("{file} has changed since it was written")]
    Digest { file: &'static str },
}

fn unreadable(file: &'static str) -> impl FnOnce(io::Error) -> TemplateFileError {
    move |source| TemplateFileError::Read { file, source }
}

/// A file in memory for a part of a template.
pub(super) fn in_memory() -> io::Result<File> {
    memory_file::create(MEMORY_FILE)
}

/// Reads the template of this key, with guests of `memory_bytes`. `None` if there is none.
///
/// # Errors
/// The template has changed since it was written, or has another key: it must not be used.
pub(super) fn load(dir: &Path, key: &str, memory_bytes: u64) -> Result<Option<Template>, TemplateFileError> {
    let place = dir.join(key);
    let record = match open(&place.join(RECORD)) {
        // There is no such directory. If it cannot exist either, writing will report the reason.
        Err(_) if fs::symlink_metadata(&place).is_err() => return Ok(None),
        opened => read_record(opened.map_err(unreadable(RECORD))?)?,
    };
    if record.key != key {
        return Err(TemplateFileError::Key { found: record.key });
    }
    if record.memory_bytes != memory_bytes {
        let (has, expected) = (record.memory_bytes, memory_bytes);
        return Err(TemplateFileError::Size { file: RECORD, has, expected });
    }
    if record.state_bytes > STATE_BYTES_MAX as u64 {
        let (has, expected) = (record.state_bytes, STATE_BYTES_MAX as u64);
        return Err(TemplateFileError::Size { file: RECORD, has, expected });
    }
    let memory = load_file(&place, MEMORY, record.memory_bytes, &record.memory_sha256)?;
    let state = load_file(&place, STATE, record.state_bytes, &record.state_sha256)?;
    let made = UNIX_EPOCH.checked_add(Duration::from_secs(record.made_unix_seconds));
    Ok(Some(Template::new(memory, state, made.unwrap_or(UNIX_EPOCH))))
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags(nix::libc::O_NOFOLLOW | nix::libc::O_NONBLOCK).open(path)
}

fn read_record(file: File) -> Result<Record, TemplateFileError> {
    let mut text = Vec::new();
    file.take(RECORD_BYTES_MAX).read_to_end(&mut text).map_err(unreadable(RECORD))?;
    Ok(serde_json::from_slice(&text)?)
}

/// A sealed copy of the file, if it is unchanged since it was written.
fn load_file(place: &Path, name: &'static str, bytes: u64, sha256: &str) -> Result<File, TemplateFileError> {
    let file = open(&place.join(name)).map_err(unreadable(name))?;
    let has = file.metadata().map_err(unreadable(name))?.len();
    if has != bytes {
        return Err(TemplateFileError::Size { file: name, has, expected: bytes });
    }
    let copy = in_memory().map_err(unreadable(name))?;
    if copy_file(&file, &copy, bytes).map_err(unreadable(name))? != sha256 {
        return Err(TemplateFileError::Digest { file: name });
    }
    memory_file::finish(&copy).map_err(unreadable(name))
}

/// Copies everything except zeros to a file with a final length of `bytes`. Returns the digest of its pages
/// with their places, in hexadecimal.
fn copy_file(from: &File, to: &File, bytes: u64) -> io::Result<String> {
    to.set_len(bytes)?;
    let mut digest = Sha256::new();
    file_data::copy(&file_data::find(from)?, from, to, |at, data| {
        for (page, place) in data.chunks(BLOCK).zip((at..).step_by(BLOCK)) {
            digest.update(place.to_le_bytes());
            digest.update(page);
        }
    })?;
    Ok(hex::encode(digest.finalize()))
}

/// Writes the template beside others and renames it to its place at once. An earlier one there is removed.
/// After an error nothing is left.
pub(super) fn write(dir: &Path, key: &str, template: &Template) -> io::Result<()> {
    pass(Point::TemplateDirectory).and_then(|()| make_dir(dir, true))?;
    let new = dir.join(format!("{UNFINISHED}{key}"));
    remove(&new)?;
    let written = write_new(&new, key, template).and_then(|()| {
        remove(&dir.join(key))?;
        pass(Point::TemplateRename)?;
        fs::rename(&new, dir.join(key))
    });
    if written.is_err() {
        // Leftovers are removed by the next daemon, or by the next attempt.
        let _ = remove(&new);
    }
    written?;
    File::open(dir)?.sync_all()
}

fn write_new(new: &Path, key: &str, template: &Template) -> io::Result<()> {
    make_dir(new, false)?;
    let copy = |name: &str, from: &File| -> io::Result<(u64, String)> {
        let (to, bytes) = (make_file(&new.join(name))?, from.metadata()?.len());
        let sha256 = copy_file(from, &to, bytes)?;
        to.sync_all()?;
        Ok((bytes, sha256))
    };
    let (memory_bytes, memory_sha256) = copy(MEMORY, &template.memory)?;
    let (state_bytes, state_sha256) = copy(STATE, &template.state)?;
    let made = template.made.duration_since(UNIX_EPOCH).unwrap_or_default();
    let record = Record {
        key: key.to_owned(),
        memory_bytes,
        memory_sha256,
        state_bytes,
        state_sha256,
        made_unix_seconds: made.as_secs(),
    };
    let file = make_file(&new.join(RECORD))?;
    file.write_all_at(&serde_json::to_vec(&record)?, 0)?;
    file.sync_all()?;
    File::open(new)?.sync_all()
}

fn make_dir(path: &Path, may_be_there: bool) -> io::Result<()> {
    DirBuilder::new().mode(0o700).recursive(may_be_there).create(path)
}

fn make_file(path: &Path) -> io::Result<File> {
    pass(Point::TemplateWrite)?;
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}

/// Removes a template; a missing one is no error.
pub(super) fn remove(place: &Path) -> io::Result<()> {
    match pass(Point::TemplateRemove).and_then(|()| fs::remove_dir_all(place)) {
        Err(error) if error.raw_os_error() == Some(Errno::ENOTDIR as i32) => fs::remove_file(place),
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Removes unfinished work of an earlier daemon, and the oldest templates beyond `count`.
pub(super) fn prune(dir: &Path, count: usize) -> io::Result<()> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let (unfinished, whole): (Vec<PathBuf>, Vec<PathBuf>) = entries
        .map(|entry| entry.path())
        .partition(|path| path.file_name().is_none_or(|name| name.to_string_lossy().starts_with(UNFINISHED)));
    let written = |path: &PathBuf| fs::symlink_metadata(path).and_then(|file| file.modified());
    let mut whole: Vec<(SystemTime, PathBuf)> =
        whole.into_iter().map(|path| (written(&path).unwrap_or(UNIX_EPOCH), path)).collect();
    whole.sort();
    whole.reverse();
    let old = whole.into_iter().skip(count).map(|(_, path)| path);
    unfinished.into_iter().chain(old).try_for_each(|path| remove(&path))
}

#[cfg(test)]
#[path = "files_tests.rs"]
mod tests;
