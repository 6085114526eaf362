//! The two directories of a daemon, and the paths of each pod below them. Nothing here decides when one is
//! made or removed.

use std::path::{Path, PathBuf};

use runtime_fail_points::{Point, pass};

use crate::host::{logs, scratch, shared_dir};

/// Digits of a pod's id in the name of its run directory: 96 bits, as good as unique.
const RUN_NAME_DIGITS: usize = 24;

/// A daemon's directories.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DaemonDirs {
    /// `store.redb`, `pods/<id>/` with the scratch disks, `ended/<id>/` with logs: survives a reboot.
    pub state_dir: PathBuf,
    /// `pods/<name>/` with sockets: does not survive a reboot.
    pub run_dir: PathBuf,
}

impl DaemonDirs {
    /// The records and statuses of pods and containers.
    pub(crate) fn store(&self) -> PathBuf {
        self.state_dir.join("store.redb")
    }

    /// The directory of all pods' state directories.
    pub(crate) fn state_dirs(&self) -> PathBuf {
        self.state_dir.join("pods")
    }

    /// The directory of all pods' run directories.
    pub(crate) fn run_dirs(&self) -> PathBuf {
        self.run_dir.join("pods")
    }

    pub(crate) fn pod_state_dir(&self, id: &str) -> PathBuf {
        self.state_dirs().join(id)
    }

    /// A pod's run directory, named by the beginning of the id: a socket's path has 107 bytes (unix(7)), and
    /// the run directory needs its share of them.
    pub(crate) fn pod_run_dir(&self, id: &str) -> PathBuf {
        self.run_dirs().join(run_name(id))
    }

    /// The tmpfs of the pod's VM.
    pub(crate) fn pod_shared_dir(&self, id: &str) -> PathBuf {
        self.pod_run_dir(id).join(shared_dir::NAME)
    }

    /// The directory for the log files of the pod's VMM.
    pub(crate) fn pod_logs_dir(&self, id: &str) -> PathBuf {
        self.pod_shared_dir(id).join(shared_dir::LOGS)
    }

    /// The console of a pod's guest, if its VMM is of an earlier release.
    pub(crate) fn former_console(&self, id: &str) -> PathBuf {
        self.pod_run_dir(id).join(logs::CONSOLE)
    }

    /// The control socket of the pod's VMM.
    pub(crate) fn control_socket(&self, id: &str) -> PathBuf {
        self.pod_run_dir(id).join("control.sock")
    }

    pub(crate) fn scratch_path(&self, id: &str) -> PathBuf {
        self.pod_state_dir(id).join(scratch::DISK)
    }

    /// The file of a container's acknowledgements, in memory like the guest's buffers. A full, frozen or
    /// read-only disk does not block output.
    pub(crate) fn acks_path(&self, pod_id: &str, container_id: &str) -> PathBuf {
        self.pod_run_dir(pod_id).join(format!("{container_id}{ACKS}"))
    }

    /// The file's place in the first versions.
    pub(crate) fn former_acks_path(&self, pod_id: &str, container_id: &str) -> PathBuf {
        self.pod_state_dir(pod_id).join(format!("{container_id}{ACKS}"))
    }

    /// The directory of VM templates.
    pub(crate) fn templates_dir(&self) -> PathBuf {
        self.state_dir.join("templates")
    }

    /// The directory of removed pods' logs.
    pub(crate) fn ended_dir(&self) -> PathBuf {
        self.state_dir.join(logs::ENDED)
    }

    /// Removes the run directory with its mounts; keeps the logs. A missing one is no error.
    pub(crate) fn remove_run_dir(&self, id: &str) -> std::io::Result<()> {
        logs::keep_files(&self.pod_logs_dir(id), &self.pod_state_dir(id));
        logs::keep_console(&self.former_console(id), &self.pod_state_dir(id));
        shared_dir::remove(&self.pod_shared_dir(id))?;
        pass(Point::PodRunDirRemove)?;
        remove_dir(&self.pod_run_dir(id))
    }

    /// Removes the state directory; keeps the logs. A missing one is no error.
    pub(crate) fn remove_state_dir(&self, id: &str) -> std::io::Result<()> {
        logs::keep(&self.pod_state_dir(id), &self.ended_dir(), id);
        pass(Point::PodStateDirRemove)?;
        remove_dir(&self.pod_state_dir(id))
    }
}

/// The end of the name of a container's acknowledgements.
pub(crate) const ACKS: &str = ".acks";

/// The name of a current or former pod's run directory.
pub(crate) fn run_name(id: &str) -> &str {
    id.get(..RUN_NAME_DIGITS).unwrap_or(id)
}

fn remove_dir(path: &Path) -> std::io::Result<()> {
    match std::fs::remove_dir_all(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
