//! The host's cgroup that a monitor runs in, so that the kubelet's accounting sees the pod.
//!
//! cgroup v2 only, and best effort: on a node without it monitors stay where the daemon is. No limits
//! are set here; those of the pod's own cgroup above count.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Where cgroup v2 is mounted on every node that has it.
pub(crate) const ROOT: &str = "/sys/fs/cgroup";

/// Parent for pods that name none.
const DEFAULT_PARENT: &str = "podvisor";

/// The pod's cgroup below `root`.
pub(crate) fn path(root: &Path, parent: &str, pod_id: &str) -> PathBuf {
    let parent = parent.trim_matches('/');
    let parent = if parent.is_empty() { DEFAULT_PARENT } else { parent };
    root.join(parent).join(format!("podvisor-{pod_id}"))
}

/// Makes it. `None` where the node has no cgroup v2, or does not let us.
pub(crate) fn make(root: &Path, parent: &str, pod_id: &str) -> Option<PathBuf> {
    if !root.join("cgroup.controllers").exists() {
        return None;
    }
    let path = path(root, parent, pod_id);
    match fs::create_dir_all(&path) {
        Ok(()) => Some(path),
        Err(error) => {
            tracing::warn!(path = %path.display(), %error, "no cgroup for the pod's VMM; it stays in the daemon's");
            None
        }
    }
}

/// Takes it away; one that is not there is no error.
pub(crate) fn remove(root: &Path, parent: &str, pod_id: &str) -> io::Result<()> {
    match fs::remove_dir(path(root, parent, pod_id)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pods_cgroup_is_a_child_of_the_kubelets() {
        let path = path(Path::new("/cg"), "/kubepods/burstable/pod1", "ab");
        assert_eq!(path, Path::new("/cg/kubepods/burstable/pod1/podvisor-ab"));
    }

    #[test]
    fn without_a_parent_it_is_in_our_own() {
        assert_eq!(super::path(Path::new("/cg"), "", "ab"), Path::new("/cg/podvisor/podvisor-ab"));
    }

    #[test]
    fn a_node_without_cgroup_v2_has_none() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(make(dir.path(), "", "ab"), None);
    }

    #[test]
    fn it_is_made_and_taken_away_again() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("cgroup.controllers"), "cpu").unwrap();
        let made = make(dir.path(), "/kubepods", "ab").unwrap();
        assert!(made.is_dir());
        remove(dir.path(), "/kubepods", "ab").unwrap();
        remove(dir.path(), "/kubepods", "ab").unwrap();
        assert!(!made.exists());
    }
}
