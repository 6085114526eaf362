//! The state and the run directory of a daemon belong together: pods on record in the one have their VMs in
//! the other. Each names the other one. A daemon with another pair would take running VMs for leftovers, and
//! kill them. This module refuses such a start, and must never remove anything itself.
//!
//! ```text
//!   <state>/run.json    { "id": of this state, "run": its run directory }
//!   <run>/state.json    { "id": of its state, "state": the state's directory }
//! ```
//! The id is random: an empty state in the place of another one has another id, such as the one below a
//! mount. Nothing is refused once no VM runs.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use runtime_fail_points::{Point, pass};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::clock;
use crate::dirs::DaemonDirs;
use crate::error::{PodError, PodErrorKind};
use crate::host::vmm_process;

/// The state's file.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
struct OfState {
    id: String,
    run: PathBuf,
}

/// The run directory's file.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
struct OfRun {
    id: String,
    state: PathBuf,
}

/// Checks that no VM runs which belongs to another state or run directory. Changes nothing.
///
/// # Errors
/// [`PodErrorKind::Unavailable`]: such VMs run. The text names both directories and the remedy.
pub fn check_belonging(dirs: &DaemonDirs) -> Result<(), PodError> {
    check(dirs, running_below)
}

/// Writes down which directories belong together. A full disk is no reason not to start.
pub(crate) fn note(dirs: &DaemonDirs) {
    if let Err(error) = write(dirs) {
        tracing::warn!(%error, "the state and the run directory are not noted as belonging together");
    }
}

fn check(dirs: &DaemonDirs, running_below: impl Fn(&Path) -> usize) -> Result<(), PodError> {
    let (state, run) = (dirs.state_dir.display(), dirs.run_dir.display());
    let of_state = read::<OfState>(&state_file(dirs));
    if let Some(OfState { run: former, .. }) = of_state.as_ref().filter(|file| file.run != dirs.run_dir) {
        let running = running_below(&former.join("pods"));
        if running > 0 {
            return Err(refusal(format!(
                "VMs of the state in {state} run in {}, and not in {run}: {running}. Set paths.run back, or end them \
                 first (`podvisor rm --all-vms --force` with the former configuration)",
                former.display()
            )));
        }
    }
    let id = of_state.map(|file| file.id).unwrap_or_default();
    if let Some(OfRun { state: former, .. }) = read::<OfRun>(&run_file(dirs)).filter(|file| file.id != id) {
        let running = running_below(&dirs.run_dirs());
        if running > 0 {
            return Err(refusal(format!(
                "VMs in {run} belong to the state that was in {}, and the one in {state} does not know them: \
                 {running}. Set paths.state back or mount its disk, or give these VMs up: `systemctl stop podvisor; podvisor doctor --repair`",
                former.display()
            )));
        }
    }
    Ok(())
}

fn refusal(text: String) -> PodError {
    PodError::new(PodErrorKind::Unavailable, text)
}

/// The number of VMMs with their sockets in this directory.
fn running_below(dir: &Path) -> usize {
    vmm_process::all().into_iter().filter(|vmm| vmm.control_socket.starts_with(dir)).count()
}

fn write(dirs: &DaemonDirs) -> io::Result<()> {
    let found = read::<OfState>(&state_file(dirs));
    let id = found.as_ref().map_or_else(clock::new_id, |file| file.id.clone());
    let of_state = OfState { id: id.clone(), run: dirs.run_dir.clone() };
    // First: an id in the run directory alone would be taken for another state's.
    if found.as_ref() != Some(&of_state) {
        replace(&state_file(dirs), &of_state)?;
    }
    let of_run = OfRun { id, state: dirs.state_dir.clone() };
    if read(&run_file(dirs)).as_ref() != Some(&of_run) {
        replace(&run_file(dirs), &of_run)?;
    }
    Ok(())
}

fn state_file(dirs: &DaemonDirs) -> PathBuf {
    dirs.state_dir.join("run.json")
}

fn run_file(dirs: &DaemonDirs) -> PathBuf {
    dirs.run_dir.join("state.json")
}

/// An unreadable file is as good as none: it says nothing about VMs.
fn read<T: DeserializeOwned>(path: &Path) -> Option<T> {
    serde_json::from_slice(&fs::read(path).ok()?).ok()
}

fn replace(path: &Path, value: &impl Serialize) -> io::Result<()> {
    pass(Point::PodBelonging)?;
    let new = path.with_extension("json.new");
    let mut file = File::create(&new)?;
    serde_json::to_writer(&mut file, value)?;
    file.flush()?;
    file.sync_all()?;
    fs::rename(new, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(root: &Path, state: &str, run: &str) -> DaemonDirs {
        let dirs = DaemonDirs { state_dir: root.join(state), run_dir: root.join(run) };
        fs::create_dir_all(&dirs.state_dir).unwrap();
        fs::create_dir_all(&dirs.run_dir).unwrap();
        dirs
    }

    fn refused(dirs: &DaemonDirs, running: usize) -> Option<String> {
        check(dirs, |_| running).err().map(|error| error.to_string())
    }

    #[test]
    fn another_state_or_run_directory_is_refused_while_vms_run() {
        let root = tempfile::tempdir().unwrap();
        let first = pair(root.path(), "state", "run");
        assert_eq!(refused(&first, 3), None, "an earlier release noted nothing");
        note(&first);
        assert_eq!(refused(&first, 3), None);
        let text = refused(&pair(root.path(), "new", "run"), 3).unwrap();
        assert!(text.contains("/state, ") && text.contains("/new does") && text.contains(": 3. "), "{text}");
        let text = refused(&pair(root.path(), "state", "new-run"), 2).unwrap();
        assert!(text.contains("/run, ") && text.contains("/new-run: 2. "), "{text}");
        for (state, run) in [("new", "run"), ("state", "new-run")] {
            let other = pair(root.path(), state, run);
            assert_eq!(refused(&other, 0), None);
            note(&other);
            assert_eq!(refused(&other, 3), None);
        }
    }

    #[test]
    fn a_state_that_was_moved_is_the_same_and_an_empty_one_in_its_place_is_another() {
        let root = tempfile::tempdir().unwrap();
        let first = pair(root.path(), "state", "run");
        note(&first);
        fs::rename(&first.state_dir, root.path().join("moved")).unwrap();
        assert_eq!(refused(&pair(root.path(), "moved", "run"), 3), None);
        assert!(refused(&pair(root.path(), "state", "run"), 3).is_some());
    }

    #[test]
    fn damaged_files_refuse_nothing_and_are_written_anew() {
        let root = tempfile::tempdir().unwrap();
        let dirs = pair(root.path(), "state", "run");
        note(&dirs);
        fs::write(state_file(&dirs), "{").unwrap();
        fs::write(run_file(&dirs), "").unwrap();
        assert_eq!(refused(&dirs, 3), None);
        note(&dirs);
        assert_eq!(
            read::<OfState>(&state_file(&dirs)).unwrap().id,
            read::<OfRun>(&run_file(&dirs)).unwrap().id
        );
    }

    #[test]
    fn a_state_that_takes_no_file_leaves_no_note_in_the_run_directory() {
        let root = tempfile::tempdir().unwrap();
        let dirs = pair(root.path(), "state", "run");
        fs::create_dir(state_file(&dirs).with_extension("json.new")).unwrap();
        note(&dirs);
        assert!(!run_file(&dirs).exists());
        assert_eq!(refused(&dirs, 3), None);
    }
}
