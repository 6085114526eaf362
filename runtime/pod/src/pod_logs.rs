//! The logs of pods, present and removed, found without a daemon: by the directories alone. Their place and
//! lifetime are decided in `host/logs.rs`.

use std::fs;
use std::path::{Path, PathBuf};

use crate::dirs::DaemonDirs;
use crate::host::logs::{self, LogOwner};

/// The logs of one pod's VM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodLogs {
    /// The pod's id.
    pub pod: String,
    /// The pod's namespace and name, joined by a slash; empty if the log does not name it.
    pub name: String,
    /// Whether the pod was removed.
    pub removed: bool,
    dirs: DaemonDirs,
}

/// The copy of a guest's console.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConsolePath {
    /// The file.
    pub path: PathBuf,
    /// Whether a VMM may still write to it.
    pub growing: bool,
}

/// Why there are no logs to show.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PodLogsError {
    /// No present or removed pod has this name or this beginning of its id.
    #[error("no pod has the id or the name {0:?}, and no logs of a removed one are kept")]
    Unknown(String),
    /// More than one present pod matches.
    #[error("{sought:?} means more than one pod: {}", pods.join(", "))]
    Ambiguous {
        /// The name or the beginning of an id.
        sought: String,
        /// The pods' ids.
        pods: Vec<String>,
    },
}

impl PodLogs {
    /// Finds the pod with this name, alone or with its namespace before it ("default/web"), or with this
    /// beginning of its id. A present pod takes precedence over removed ones. Of these, the last one removed
    /// does.
    ///
    /// # Errors
    /// There is none, or more than one is present.
    pub fn find(daemons: &[DaemonDirs], sought: &str) -> Result<PodLogs, PodLogsError> {
        let present: Vec<_> = daemons.iter().flat_map(present).filter(|logs| logs.is(sought)).collect();
        match <[PodLogs; 1]>::try_from(present) {
            Ok([logs]) => return Ok(logs),
            Err(several) if !several.is_empty() => {
                let pods = several.into_iter().map(|logs| logs.pod).collect();
                return Err(PodLogsError::Ambiguous { sought: sought.to_owned(), pods });
            }
            Err(_) => {}
        }
        let mut removed = daemons.iter().flat_map(removed).filter(|logs| logs.is(sought));
        removed.next().ok_or_else(|| PodLogsError::Unknown(sought.to_owned()))
    }

    /// The current path of the console's file; none if the VM never started, or none was kept.
    pub fn console(&self) -> Option<ConsolePath> {
        let at = |dir: PathBuf, growing| ConsolePath { path: dir.join(logs::CONSOLE), growing };
        let places = [
            at(self.dirs.pod_logs_dir(&self.pod), true),
            ConsolePath { path: self.dirs.former_console(&self.pod), growing: true },
            at(self.dirs.pod_state_dir(&self.pod), false),
            at(self.dirs.ended_dir().join(&self.pod), false),
        ];
        places.into_iter().find(|console| console.path.exists())
    }

    fn new(dirs: &DaemonDirs, dir: &Path, removed: bool) -> Option<PodLogs> {
        let pod = dir.file_name()?.to_str()?.to_owned();
        let name = |LogOwner { namespace, name, .. }| format!("{namespace}/{name}");
        let name = logs::owner(dir).map(name).unwrap_or_default();
        Some(PodLogs { pod, name, removed, dirs: dirs.clone() })
    }

    fn is(&self, sought: &str) -> bool {
        let alone = self.name.split_once('/').map(|(_, name)| name);
        !sought.is_empty() && (self.pod.starts_with(sought) || self.name == sought || alone == Some(sought))
    }
}

fn present(dirs: &DaemonDirs) -> impl Iterator<Item = PodLogs> {
    let entries = fs::read_dir(dirs.state_dirs()).into_iter().flatten().flatten();
    entries.filter_map(|entry| PodLogs::new(dirs, &entry.path(), false))
}

/// The latest first.
fn removed(dirs: &DaemonDirs) -> impl Iterator<Item = PodLogs> {
    logs::list(&dirs.ended_dir()).into_iter().filter_map(|(_, dir)| PodLogs::new(dirs, &dir, true))
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::time::{Duration, SystemTime};

    use super::*;

    #[test]
    fn a_pod_is_found_by_its_ids_beginning_and_by_its_name_also_when_it_is_gone() {
        let dir = tempfile::tempdir().unwrap();
        let dirs = DaemonDirs { state_dir: dir.path().join("state"), run_dir: dir.path().join("run") };
        let make = |pod: &str, name: &str| {
            fs::create_dir_all(dirs.pod_state_dir(pod)).unwrap();
            let owner = LogOwner { pod: pod.into(), namespace: "default".into(), name: name.into() };
            logs::make(&dirs.pod_state_dir(pod).join(logs::VMM), &owner).unwrap();
            // Unmounting needs privileges, so removed pods have the place of an earlier release.
            let place = if pod.starts_with('c') { dirs.pod_logs_dir(pod) } else { dirs.pod_run_dir(pod) };
            fs::create_dir_all(&place).unwrap();
            fs::write(place.join(logs::CONSOLE), pod).unwrap();
        };
        let remove = |pod: &str, at: u64| {
            dirs.remove_run_dir(pod).unwrap();
            dirs.remove_state_dir(pod).unwrap();
            let place = File::open(dirs.ended_dir().join(pod)).unwrap();
            place.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(at)).unwrap();
        };
        for (pod, name) in [("a1", "web"), ("a2", "web"), ("b1", "web"), ("c1", "db"), ("c2", "db")] {
            make(pod, name);
        }
        remove("a1", 2);
        remove("a2", 1);
        let find = |sought: &str| PodLogs::find(std::slice::from_ref(&dirs), sought);
        let found = |sought: &str| find(sought).map(|logs| (logs.pod, logs.removed));
        for sought in ["b", "web", "default/web"] {
            assert_eq!(found(sought), Ok(("b1".into(), false)), "{sought}");
        }
        assert_eq!(found("a2"), Ok(("a2".into(), true)));
        assert_eq!(found("a"), Ok(("a1".into(), true)), "the one that was removed last");
        assert!(matches!(find("db"), Err(PodLogsError::Ambiguous { pods, .. }) if pods.len() == 2));
        for sought in ["", "d", "default"] {
            assert_eq!(find(sought), Err(PodLogsError::Unknown(sought.into())));
        }
        let text = |sought: &str| {
            let console = find(sought).unwrap().console().unwrap();
            (fs::read_to_string(console.path).unwrap(), console.growing)
        };
        assert_eq!(text("b1"), ("b1".into(), true));
        assert_eq!(text("c1"), ("c1".into(), true));
        assert_eq!(text("a1"), ("a1".into(), false));
        dirs.remove_run_dir("b1").unwrap();
        assert_eq!(text("b1"), ("b1".into(), false), "a stopped pod has it still");
    }
}
