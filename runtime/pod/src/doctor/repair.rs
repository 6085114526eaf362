//! Removes ownerless objects, one difference at a time. Each removal is repeatable, and the same as the
//! daemon's own.

use std::io;
use std::path::Path;

use runtime_net::{Cni, PodNetworkSpec};
use runtime_store::Store;

use super::differences::{Difference, Leftover};
use crate::error::chain_of;
use crate::host::{remove_cgroup, vmm_process};

/// Removes the ownerless object of a difference, if it has one.
///
/// # Errors
/// The reason why it stays, for people.
pub async fn repair(difference: &Difference, cni: &Cni) -> Result<(), String> {
    let Some(leftover) = difference.leftover.clone() else { return Ok(()) };
    let removing = match leftover {
        Leftover::Vmm(process) => return vmm_process::kill(process).await,
        Leftover::Network(pod_id) => {
            let spec = PodNetworkSpec { pod_id, ..PodNetworkSpec::default() };
            return cni.teardown(&spec).await.map_err(|error| chain_of(&error));
        }
        other => tokio::task::spawn_blocking(move || remove(&other)),
    };
    removing.await.map_err(|error| error.to_string())?
}

fn remove(leftover: &Leftover) -> Result<(), String> {
    let outcome = match leftover {
        Leftover::Vmm(_) | Leftover::Network(_) => Ok(()),
        Leftover::RunDir(dirs, name) => dirs.remove_run_dir(name),
        Leftover::StateDir(dirs, pod) => dirs.remove_state_dir(pod),
        Leftover::Cgroup(path) => remove_cgroup::if_empty(path),
        Leftover::File(path) if path.is_dir() => gone(std::fs::remove_dir_all(path)),
        Leftover::File(path) => gone(std::fs::remove_file(path)),
        Leftover::Place(path) => remove_place(path),
        Leftover::Quarantined(dirs, name) => {
            let removed = Store::open(&dirs.store()).and_then(|store| store.remove_quarantined(name));
            return removed.map_err(|error| chain_of(&error));
        }
    };
    outcome.map_err(|error| error.to_string())
}

/// Removes the run directory of a daemon, once nothing of a pod is in it any more.
fn remove_place(path: &Path) -> io::Result<()> {
    let pods = path.join("pods");
    if std::fs::read_dir(&pods).is_ok_and(|mut entries| entries.next().is_some()) {
        return Err(io::Error::other(format!("{} has something of a pod still", pods.display())));
    }
    gone(std::fs::remove_dir_all(path))
}

fn gone(outcome: io::Result<()>) -> io::Result<()> {
    match outcome {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cgroup_goes_with_the_one_of_its_processes() {
        let dir = tempfile::tempdir().unwrap();
        let cgroup = dir.path().join("podvisor-ab");
        std::fs::create_dir_all(cgroup.join("vm")).unwrap();
        remove(&Leftover::Cgroup(cgroup.clone())).unwrap();
        assert!(!cgroup.exists());
        remove(&Leftover::Cgroup(cgroup)).unwrap();
    }
}
