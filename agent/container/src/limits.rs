//! A container's limits: values for files of its cgroup (v2). Either all are written or none. Here limits are
//! names and text; the host knows their meaning (`runtime/spec`).

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, ErrorKind, Write};
use std::path::Path;

use crate::cgroup::Cgroup;

const MEMORY_MAX: &str = "memory.max";

/// Why limits were not set. Files written before the failure have their old values again.
#[derive(Debug, thiserror::Error)]
pub enum LimitError {
    /// The name is not a plain file name.
    #[error("{0:?} is no name of a cgroup file")]
    Name(String),
    /// The guest's kernel has no such file.
    #[error("{file}: a container's cgroup in the guest has no such file")]
    NoFile {
        /// Name of the file.
        file: String,
    },
    /// The kernel does not take the value.
    #[error("{file}: the guest's kernel does not take {value:?}")]
    Refused {
        /// Name of the file.
        file: String,
        /// The refused value.
        value: String,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The kernel would kill processes until the rest fits (`memory_max_write`, mm/memcontrol.c).
    #[error("memory.max: {limit} bytes are less than the {used} still in use after reclaiming; ask for more")]
    BelowUse {
        /// The limit asked for, in bytes.
        limit: u64,
        /// Bytes in use after the kernel reclaimed as much as it could.
        used: u64,
    },
}

/// Writes the files of a running container. First tries to reclaim memory beyond a new memory limit. If the
/// container still uses more, the limit is refused, because the kernel would kill processes.
pub fn change(cgroup: &Cgroup, files: &BTreeMap<String, String>) -> Result<(), LimitError> {
    if let Some(limit) = files.get(MEMORY_MAX).and_then(|text| text.parse().ok()) {
        reclaim(cgroup.directory(), limit)?;
    }
    apply(cgroup, files)
}

/// Writes the files. On failure the files written before get their old values again.
pub fn apply(cgroup: &Cgroup, files: &BTreeMap<String, String>) -> Result<(), LimitError> {
    let mut written = Vec::new();
    for (file, value) in files {
        let path = cgroup.directory().join(checked(file)?);
        // An unreadable file holds no limit, so there is nothing to restore.
        let before = fs::read_to_string(&path).ok();
        if let Err(error) = write(&path, value) {
            for (path, before) in written.into_iter().rev() {
                restore(path, before);
            }
            return Err(match error.kind() {
                // Only the kernel makes files in its mount.
                ErrorKind::NotFound | ErrorKind::PermissionDenied if !path.exists() => {
                    LimitError::NoFile { file: file.clone() }
                }
                _ => LimitError::Refused { file: file.clone(), value: value.clone(), source: error },
            });
        }
        written.push((path, before));
    }
    Ok(())
}

fn restore(path: impl AsRef<Path>, before: Option<String>) {
    if let Some(before) = before
        && let Err(error) = write(path.as_ref(), before.trim_end())
    {
        tracing::warn!(%error, path = %path.as_ref().display(), "a limit could not be restored");
    }
}

fn checked(file: &str) -> Result<&str, LimitError> {
    if file.is_empty() || file.starts_with('.') || file.contains(['/', '\0']) {
        return Err(LimitError::Name(file.chars().take(64).collect()));
    }
    Ok(file)
}

/// Writes an existing file. In a cgroup's mount only the kernel makes files, and a test's directory behaves
/// alike.
fn write(path: &Path, value: &str) -> io::Result<()> {
    fs::OpenOptions::new().write(true).open(path)?.write_all(value.as_bytes())
}

/// Reclaims the container's memory beyond `limit`, or fails if the kernel cannot.
fn reclaim(directory: &Path, limit: u64) -> Result<(), LimitError> {
    let used = || fs::read_to_string(directory.join("memory.current")).ok()?.trim().parse::<u64>().ok();
    let Some(excess) = used().and_then(|used| used.checked_sub(limit)).filter(|&excess| excess > 0) else {
        return Ok(());
    };
    // EAGAIN if the kernel reclaimed less. The usage afterwards decides.
    let _ = write(&directory.join("memory.reclaim"), &excess.to_string());
    match used() {
        Some(used) if used > limit => Err(LimitError::BelowUse { limit, used }),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cgroup(files: &[(&str, &str)]) -> (tempfile::TempDir, Cgroup) {
        let directory = tempfile::tempdir().unwrap();
        for (file, value) in files {
            fs::write(directory.path().join(file), value).unwrap();
        }
        let cgroup = Cgroup::at(directory.path());
        (directory, cgroup)
    }

    fn map(files: &[(&str, &str)]) -> BTreeMap<String, String> {
        files.iter().map(|(file, value)| ((*file).to_owned(), (*value).to_owned())).collect()
    }

    fn read(cgroup: &Cgroup, file: &str) -> String {
        fs::read_to_string(cgroup.directory().join(file)).unwrap()
    }

    #[test]
    fn values_reach_their_files() {
        let (_dir, cgroup) = cgroup(&[("cpu.max", ""), ("pids.max", "")]);
        apply(&cgroup, &map(&[("cpu.max", "max 100000"), ("pids.max", "7")])).unwrap();
        assert_eq!((read(&cgroup, "cpu.max"), read(&cgroup, "pids.max")), ("max 100000".into(), "7".into()));
    }

    #[test]
    fn a_file_that_is_not_there_is_named_and_the_others_are_as_before() {
        let (_dir, cgroup) = cgroup(&[("cpu.max", "5 5\n")]);
        let error = apply(&cgroup, &map(&[("cpu.max", "9 9"), ("memory.none", "1")])).unwrap_err();
        assert!(matches!(&error, LimitError::NoFile { file } if file == "memory.none"), "{error}");
        assert_eq!(read(&cgroup, "cpu.max"), "5 5\n");
        assert!(!cgroup.directory().join("memory.none").exists());
    }

    #[test]
    fn names_that_lead_elsewhere_are_refused() {
        let (_dir, cgroup) = cgroup(&[]);
        for name in ["", "../x", "a/b", ".", "..", "a\0"] {
            let error = apply(&cgroup, &map(&[(name, "1")])).unwrap_err();
            assert!(matches!(error, LimitError::Name(_)), "{name:?}");
        }
    }

    #[test]
    fn a_limit_below_what_is_used_changes_nothing() {
        let files = [("memory.current", "1000\n"), ("memory.reclaim", ""), ("memory.max", "max\n")];
        let (_dir, cgroup) = cgroup(&files);
        let error = change(&cgroup, &map(&[("memory.max", "999")])).unwrap_err();
        assert!(matches!(error, LimitError::BelowUse { limit: 999, used: 1000 }), "{error}");
        assert_eq!(
            (read(&cgroup, "memory.max"), read(&cgroup, "memory.reclaim")),
            ("max\n".into(), "1".into())
        );
        change(&cgroup, &map(&[("memory.max", "1000")])).unwrap();
        change(&cgroup, &map(&[("memory.max", "max")])).unwrap();
    }
}
