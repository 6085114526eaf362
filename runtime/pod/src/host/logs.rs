//! The log of a pod's VMM and the console of its guest: made with the VMM, and kept for a while after the pod
//! is gone. So the cause of a VM's end can be read after its pod was removed.
//!
//! ```text
//!   <run>/pods/<name>/shared/logs/vmm.log       in memory, while the VMM may write to them: the tmpfs is
//!                                /console.log   small and so limits the writes of a compromised VMM
//!   <state>/pods/<id>/vmm.log                   the first line, from the start on, names the owner; the rest
//!                    /console.log               comes once the VMM is gone
//!   <state>/ended/<id>/…                        both, once the pod is removed: the latest of the node
//! ```
//!
//! A VMM can write only to the first two files: no log can claim another pod as its owner.
//!
//! Keeping them never delays a pod's removal. If it fails, they are lost, and the daemon's log says so.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use proto_vmm::CONSOLE_FILE_BYTES_MAX;
use runtime_fail_points::{Point, pass};
use serde::{Deserialize, Serialize};

/// The VMM's log.
pub(crate) const VMM: &str = "vmm.log";

/// The guest's console.
pub(crate) const CONSOLE: &str = "console.log";

/// The directory of removed pods' logs, below the state directory.
pub(crate) const ENDED: &str = "ended";

/// Number of removed pods with kept logs on a node.
const ENDED_MAX: usize = 64;

/// Bytes of all of them together. Both logs of one pod have half a MiB at most.
const ENDED_BYTES_MAX: u64 = 16 << 20;

/// Most bytes kept of a VMM's log; a well-behaved VMM writes less.
const VMM_BYTES_MAX: u64 = 512 << 10;

/// Longest accepted first line of a log, in bytes: names of Kubernetes have 253.
const OWNER_BYTES_MAX: u64 = 4096;

/// Room for the owner in the log of a VMM without a pod, in bytes.
const UNOWNED_BYTES: usize = 512;

/// The pod a log belongs to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LogOwner {
    pub(crate) pod: String,
    pub(crate) namespace: String,
    pub(crate) name: String,
}

/// Begins the log of a VMM to be started with its owner.
pub(crate) fn make(path: &Path, owner: &LogOwner) -> io::Result<()> {
    pass(Point::VmmLogMake)?;
    let mut line = serde_json::to_vec(owner)?;
    line.push(b'\n');
    File::create(path)?.write_all(&line)
}

/// Begins the log of a VMM without a pod yet, with room for an owner in its first line.
pub(crate) fn make_unowned(path: &Path) -> io::Result<()> {
    pass(Point::VmmLogMake)?;
    File::create(path)?.write_all(&padded(b""))
}

/// Names the owner in the log of a VMM without one. If the name does not fit, the owner stays unnamed.
pub(crate) fn claim(path: &Path, owner: &LogOwner) -> io::Result<()> {
    pass(Point::VmmLogMake)?;
    let line = padded(&serde_json::to_vec(owner)?);
    if line.len() > UNOWNED_BYTES {
        return Err(io::Error::other("its names are too long for the log's first line"));
    }
    File::options().write(true).open(path)?.write_all(&line)
}

/// A first line of [`UNOWNED_BYTES`] at least.
fn padded(owner: &[u8]) -> Vec<u8> {
    let mut line = owner.to_vec();
    line.resize(line.len().max(UNOWNED_BYTES - 1), b' ');
    line.push(b'\n');
    line
}

/// The open files for a VMM's output.
#[derive(Debug)]
pub(crate) struct VmmFiles {
    /// For its standard error.
    pub(crate) log: File,
    /// For the guest's console.
    pub(crate) console: File,
}

/// Makes the files of a VMM to be started, in `dir`.
pub(crate) fn make_files(dir: &Path) -> io::Result<VmmFiles> {
    pass(Point::ConsoleMake)?;
    Ok(VmmFiles { log: File::create(dir.join(VMM))?, console: File::create(dir.join(CONSOLE))? })
}

/// The owner of the logs in `dir`; none if the log does not name it.
pub(crate) fn owner(dir: &Path) -> Option<LogOwner> {
    let mut line = String::new();
    BufReader::new(File::open(dir.join(VMM)).ok()?.take(OWNER_BYTES_MAX)).read_line(&mut line).ok()?;
    serde_json::from_str(&line).ok()
}

/// Copies the logs out of a VMM's log directory, before its removal.
pub(crate) fn keep_files(dir: &Path, state_dir: &Path) {
    if let Err(error) = try_keep_log(&dir.join(VMM), &state_dir.join(VMM)) {
        tracing::warn!(path = %state_dir.display(), %error, "the log of a VMM is not kept");
    }
    keep_console(&dir.join(CONSOLE), state_dir);
}

/// Puts the VMM's log after the first line of `to`. The call is idempotent.
fn try_keep_log(from: &Path, to: &Path) -> io::Result<()> {
    let Some(from) = found(File::open(from))? else { return Ok(()) };
    let Some(mut to) = found(File::options().read(true).write(true).open(to))? else { return Ok(()) };
    pass(Point::ConsoleKeep)?;
    let mut line = Vec::new();
    BufReader::new((&mut to).take(OWNER_BYTES_MAX)).read_until(b'\n', &mut line)?;
    to.set_len(line.len() as u64)?;
    to.seek(SeekFrom::End(0))?;
    io::copy(&mut from.take(VMM_BYTES_MAX), &mut to).map(drop)
}

/// Copies a console into the pod's state directory.
pub(crate) fn keep_console(from: &Path, state_dir: &Path) {
    let to = state_dir.join(CONSOLE);
    let copy = || -> io::Result<()> {
        let Some(mut from) = found(File::open(from))? else { return Ok(()) };
        if found(fs::symlink_metadata(state_dir))?.is_none() {
            return Ok(());
        }
        pass(Point::ConsoleKeep)?;
        // A well-behaved VMM never writes more.
        let copied = io::copy(&mut (&mut from).take(2 * CONSOLE_FILE_BYTES_MAX), &mut File::create(&to)?);
        copied.map(drop).inspect_err(|_| drop(fs::remove_file(&to)))
    };
    if let Err(error) = copy() {
        tracing::warn!(path = %to.display(), %error, "the console of a VM is not kept");
    }
}

/// Moves the logs out of a pod's state directory before its removal. If there are too many, removes the
/// oldest of other pods.
pub(crate) fn keep(state_dir: &Path, ended: &Path, id: &str) {
    if let Err(error) = try_keep(state_dir, &ended.join(id)).and_then(|()| prune(ended)) {
        tracing::warn!(path = %ended.display(), %error, "the logs of a removed pod's VM are not kept");
    }
}

fn try_keep(state_dir: &Path, place: &Path) -> io::Result<()> {
    for name in [VMM, CONSOLE] {
        let from = state_dir.join(name);
        if found(fs::symlink_metadata(&from))?.is_some() {
            pass(Point::VmmLogKeep)?;
            fs::create_dir_all(place)?;
            fs::rename(&from, place.join(name))?;
        }
    }
    Ok(())
}

/// Removes the oldest beyond the bounds.
fn prune(ended: &Path) -> io::Result<()> {
    let (mut kept, mut bytes) = (0, 0);
    for (_, place) in list(ended) {
        let entries = fs::read_dir(&place).into_iter().flatten().flatten();
        bytes += entries.filter_map(|entry| entry.metadata().ok()).map(|file| file.len()).sum::<u64>();
        kept += 1;
        if kept > ENDED_MAX || bytes > ENDED_BYTES_MAX {
            pass(Point::VmmLogPrune)?;
            // Another pod's removal may be at it, too.
            found(fs::remove_dir_all(&place))?;
        }
    }
    Ok(())
}

/// The directories of removed pods' logs, each with the time of the removal, the latest first.
pub(crate) fn list(ended: &Path) -> Vec<(SystemTime, PathBuf)> {
    let entries = fs::read_dir(ended).into_iter().flatten().flatten();
    let with_time = |entry: fs::DirEntry| Some((entry.metadata().ok()?.modified().ok()?, entry.path()));
    let mut places: Vec<_> = entries.filter_map(with_time).collect();
    places.sort();
    places.reverse();
    places
}

/// `None` if the file is missing.
fn found<T>(outcome: io::Result<T>) -> io::Result<Option<T>> {
    match outcome {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        outcome => outcome.map(Some),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn owned_by(pod: &str) -> LogOwner {
        LogOwner { pod: pod.into(), namespace: "default".into(), name: "web".into() }
    }

    #[test]
    fn logs_outlive_their_pod_with_its_name() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        for name in ["logs", "state"] {
            fs::create_dir(at(name)).unwrap();
        }
        make(&at("state/vmm.log"), &owned_by("ab")).unwrap();
        let VmmFiles { mut log, mut console } = make_files(&at("logs")).unwrap();
        // A compromised VMM may write this, too.
        let other = serde_json::to_string(&owned_by("cd")).unwrap();
        writeln!(log, "{other}\n{{\"fields\":{{\"message\":\"boot\"}}}}").unwrap();
        console.write_all(b"Linux\n").unwrap();
        // Twice, as by a daemon that was killed in between.
        for _ in 0..2 {
            keep_files(&at("logs"), &at("state"));
        }
        let kept = fs::read_to_string(at("state/vmm.log")).unwrap();
        assert_eq!(kept.matches("boot").count(), 1, "{kept}");
        keep(&at("state"), &at("ended"), "ab");
        assert_eq!(fs::read_dir(at("state")).unwrap().count(), 0);
        assert_eq!(owner(&at("ended/ab")), Some(owned_by("ab")));
        assert_eq!(fs::read_to_string(at("ended/ab/console.log")).unwrap(), "Linux\n");
        // A pod without a VMM so far, and a pod already gone.
        keep_files(&at("none"), &at("none"));
        keep_files(&at("logs"), &at("none"));
        keep(&at("none"), &at("ended"), "cd");
        assert_eq!(list(&at("ended")).len(), 1);
    }

    #[test]
    fn a_log_that_was_nobodys_names_its_pod_and_keeps_what_it_had() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(VMM);
        make_unowned(&path).unwrap();
        fs::create_dir(dir.path().join("logs")).unwrap();
        let mut files = make_files(&dir.path().join("logs")).unwrap();
        files.log.write_all(b"restored\n").unwrap();
        assert_eq!(owner(dir.path()), None);
        claim(&path, &owned_by("ab")).unwrap();
        files.log.write_all(b"plugged\n").unwrap();
        assert_eq!(owner(dir.path()), Some(owned_by("ab")));
        keep_files(&dir.path().join("logs"), dir.path());
        assert!(fs::read_to_string(&path).unwrap().ends_with(" \nrestored\nplugged\n"));
        let long = LogOwner { name: "x".repeat(UNOWNED_BYTES), ..owned_by("cd") };
        claim(&path, &long).unwrap_err();
        assert_eq!(owner(dir.path()), Some(owned_by("ab")), "what was there is not damaged");
    }

    #[test]
    fn the_oldest_are_removed_first() {
        let dir = tempfile::tempdir().unwrap();
        let (state, ended) = (dir.path().join("state"), dir.path().join("ended"));
        let end = |number: usize, bytes: u64| {
            fs::create_dir_all(&state).unwrap();
            make(&state.join(VMM), &owned_by("x")).unwrap();
            File::options().write(true).open(state.join(VMM)).unwrap().set_len(bytes).unwrap();
            keep(&state, &ended, &number.to_string());
            let removed = SystemTime::UNIX_EPOCH + Duration::from_secs(number as u64);
            let place = File::open(ended.join(number.to_string()));
            place.map(|place| place.set_modified(removed).unwrap())
        };
        for number in 0..ENDED_MAX + 3 {
            end(number, 100).unwrap();
        }
        let kept = |number: usize| ended.join(number.to_string()).exists();
        assert!(!kept(2) && kept(3) && kept(ENDED_MAX + 2));
        // One as large as all may be leaves itself alone, and a larger one nothing.
        end(1000, ENDED_BYTES_MAX).unwrap();
        assert_eq!(list(&ended).len(), 1);
        end(1001, ENDED_BYTES_MAX + 1).unwrap_err();
        assert_eq!(list(&ended).len(), 0);
    }

    #[test]
    fn logs_that_cannot_be_kept_are_left_behind() {
        let dir = tempfile::tempdir().unwrap();
        let (state, ended) = (dir.path().join("state"), dir.path().join("ended"));
        fs::create_dir(&state).unwrap();
        make(&state.join(VMM), &owned_by("ab")).unwrap();
        // A file in place of the directory, to simulate a failing disk.
        fs::write(&ended, "").unwrap();
        keep(&state, &ended, "ab");
        assert!(state.join(VMM).exists());
        // And in place of the file.
        fs::create_dir(state.join(CONSOLE)).unwrap();
        make_files(dir.path()).unwrap();
        keep_files(dir.path(), &state);
    }
}
