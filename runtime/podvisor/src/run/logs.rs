//! The log directories of pods of `podvisor run`, below the state directory of their daemon. A kubelet makes
//! and removes those of its own pods. Here the command makes one. It is removed with the pod, by the command
//! itself or by `podvisor rm`. A killed command leaves one to the next in its private daemon's place.

use std::io;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::config::Config;

/// The directory of all log directories, below a daemon's state directory.
const RUNS: &str = "runs";

fn all(state: &Path) -> PathBuf {
    state.join(RUNS)
}

/// Makes a directory for a pod's logs, below its daemon's state directory. It is removed when the result is
/// dropped, unless it is kept.
///
/// # Errors
/// It cannot be made.
pub(super) fn make(state: &Path, pod: &str) -> io::Result<TempDir> {
    let all = all(state);
    std::fs::create_dir_all(&all)?;
    tempfile::Builder::new().prefix(&format!("{pod}-")).tempdir_in(all)
}

/// Removes all log directories of a daemon without pods.
///
/// # Errors
/// They cannot be removed.
pub(super) fn clear(state: &Path) -> io::Result<()> {
    match std::fs::remove_dir_all(all(state)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Removes the directory of this log of the node's daemon, if it is a directory made here.
///
/// # Errors
/// It cannot be removed.
pub(crate) fn remove(config: &Config, log: &Path) -> io::Result<()> {
    match log.parent() {
        Some(directory) if directory.parent() == Some(&all(&config.paths.state)) => {
            std::fs::remove_dir_all(directory)
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_directory_of_a_run_is_removed_with_its_log() {
        let dir = tempfile::tempdir().unwrap();
        let mut config = Config::default();
        config.paths.state = dir.path().to_owned();
        let made = make(dir.path(), "web").unwrap().keep();
        let foreign = dir.path().join("pods/web");
        std::fs::create_dir_all(&foreign).unwrap();
        for log in [foreign.join("main.log"), dir.path().join("runs/main.log"), PathBuf::new(), "/".into()] {
            remove(&config, &log).unwrap();
        }
        assert!(foreign.exists() && made.exists());
        remove(&config, &made.join("main.log")).unwrap();
        assert!(!made.exists() && dir.path().join("runs").exists());
        clear(dir.path()).unwrap();
        assert!(!dir.path().join("runs").exists() && foreign.exists());
        clear(dir.path()).unwrap();
    }
}
