//! The log directories of pods of `podvisor run`, below `paths.state`. A kubelet makes and removes those of
//! its own pods. Here the command makes one. It is removed with the pod, by the command itself or by
//! `podvisor rm`.

use std::io;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::config::Config;

/// The directory of all log directories, below `paths.state`.
const RUNS: &str = "runs";

fn all(config: &Config) -> PathBuf {
    config.paths.state.join(RUNS)
}

/// Makes a directory for a pod's logs. It is removed when the result is dropped, unless it is kept.
///
/// # Errors
/// It cannot be made.
pub(super) fn make(config: &Config, pod: &str) -> io::Result<TempDir> {
    let all = all(config);
    std::fs::create_dir_all(&all)?;
    tempfile::Builder::new().prefix(&format!("{pod}-")).tempdir_in(all)
}

/// Removes the directory of this log, if it is a directory made here.
///
/// # Errors
/// It cannot be removed.
pub(crate) fn remove(config: &Config, log: &Path) -> io::Result<()> {
    match log.parent() {
        Some(directory) if directory.parent() == Some(&all(config)) => std::fs::remove_dir_all(directory),
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
        let made = make(&config, "web").unwrap().keep();
        let foreign = dir.path().join("pods/web");
        std::fs::create_dir_all(&foreign).unwrap();
        for log in [foreign.join("main.log"), dir.path().join("runs/main.log"), PathBuf::new(), "/".into()] {
            remove(&config, &log).unwrap();
        }
        assert!(foreign.exists() && made.exists());
        remove(&config, &made.join("main.log")).unwrap();
        assert!(!made.exists() && dir.path().join("runs").exists());
    }
}
