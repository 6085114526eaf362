//! The host's cgroups of containers' connectors, beside the VMM's. The name of each has the ids of its pod
//! and its container. So agents of the node find the container by the peer's cgroup, and all of a pod's
//! cgroups are found from its record alone.
//!
//! | parent | cgroup |
//! |---|---|
//! | `/kubepods/burstable/pod1` | `kubepods/burstable/pod1/podvisor-socket-<pod>-<id>` |
//! | `kubepods-pod1.slice` | `kubepods.slice/kubepods-pod1.slice/podvisor-socket-<pod>-<id>.scope` |
//!
//! `<id>` is the container's id, and `<pod>` the beginning of the pod's: agents take a whole id for the
//! container's.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::{cgroup, remove_cgroup};
use crate::dirs::run_name;

/// Makes the cgroups of a container's connector, one in each hierarchy.
///
/// # Errors
/// A cgroup cannot be made. Unlike a VMM, a connector must not stay in the daemon's cgroup: agents of the
/// node would take it for a part of the daemon.
pub(crate) fn make(root: &Path, parent: &str, pod_id: &str, container_id: &str) -> io::Result<Vec<PathBuf>> {
    let made = cgroup::make_beside(root, parent, &name(pod_id, container_id));
    match made.missing {
        Some(why) => Err(io::Error::other(format!("it has no cgroup: {why}"))),
        None => Ok(made.paths),
    }
}

/// Removes the cgroups of a container's connector, or those of all of the pod's containers, with the
/// processes in them. Missing ones are no error.
pub(crate) fn remove(root: &Path, parent: &str, pod_id: &str, container_id: Option<&str>) -> io::Result<()> {
    // The beginning of the name is the same for all containers.
    let wanted = format!("podvisor-{}", name(pod_id, container_id.unwrap_or_default()));
    for path in cgroup::paths(root, parent, &name(pod_id, "")) {
        let Some(beside) = path.parent() else { continue };
        for entry in fs::read_dir(beside).into_iter().flatten().flatten() {
            if entry.file_name().to_string_lossy().starts_with(&wanted) {
                remove_cgroup::with_processes(&entry.path())?;
            }
        }
    }
    Ok(())
}

fn name(pod_id: &str, container_id: &str) -> String {
    format!("socket-{}-{container_id}", run_name(pod_id))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn v2() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("cgroup.controllers"), "cpu").unwrap();
        dir
    }

    #[test]
    fn a_connectors_cgroup_is_beside_the_vmms_and_has_one_whole_id() {
        let dir = v2();
        let (pod, container) = ("1a".repeat(32), "2b".repeat(32));
        let made = make(dir.path(), "/kubepods/pod1", &pod, &container).unwrap();
        let beside = dir.path().join("kubepods/pod1");
        assert_eq!(made, [beside.join(format!("podvisor-socket-{}-{container}", run_name(&pod)))]);
        let slice = make(dir.path(), "kubepods-pod1.slice", &pod, &container).unwrap();
        assert!(slice[0].to_string_lossy().ends_with(&format!("-{container}.scope")), "{slice:?}");
        // Pods' own are found by another form of name.
        assert_eq!(cgroup::find(dir.path()), []);
    }

    #[test]
    fn those_of_one_container_or_of_all_of_a_pod_are_removed_and_no_others() {
        let dir = v2();
        let (pod, other) = ("1a".repeat(32), "2b".repeat(32));
        let [one, two, others] = [(&pod, "c1"), (&pod, "d2"), (&other, "c1")]
            .map(|(pod, container)| make(dir.path(), "", pod, &container.repeat(32)).unwrap()[0].clone());
        remove(dir.path(), "", &pod, Some(&"c1".repeat(32))).unwrap();
        assert!(!one.exists() && two.exists() && others.exists());
        remove(dir.path(), "", &pod, None).unwrap();
        remove(dir.path(), "", &pod, None).unwrap();
        assert!(!two.exists() && others.exists());
        remove(&dir.path().join("none"), "", &pod, None).unwrap();
    }
}
