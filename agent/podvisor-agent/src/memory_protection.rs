//! Protection of memory (`memory.min`, `memory.low`) of the pod's cgroup. A container has the values
//! requested for it, but the kernel protects no more of it than its parent has
//! (`page_counter_calculate_protection`, mm/page_counter.c). So the parent gets the sum of its containers.
//!
//! All of this runs on the serving thread, so the last change counts all changes before it.

use std::fs;
use std::path::Path;

use agent_container::cgroup::CGROUP_ROOT;
use proto_agent::guest_path::CGROUP_PARENT;

use crate::pod::Pod;

/// The files of a cgroup.
const FILES: [&str; 2] = ["memory.min", "memory.low"];

/// Renews the pod's protection, after a change of a container's or its end. A failure is logged: the
/// container works without it.
pub(crate) fn renew(pod: &Pod) {
    let containers = pod.containers.all();
    let parent = Path::new(CGROUP_ROOT).join(CGROUP_PARENT.trim_start_matches('/'));
    for file in FILES {
        let sum = sum(containers.iter().map(|container| container.cgroup().directory()), file);
        if let Err(error) = fs::write(parent.join(file), sum.to_string()) {
            tracing::warn!(%error, file, "the containers' memory is not protected");
        }
    }
}

/// The sum of this file of these cgroups, in bytes. A cgroup with `max` counts with its limit, and without
/// one not at all: a parent with `max` would protect its other children, too. A missing cgroup has no
/// protection.
fn sum<'a>(cgroups: impl Iterator<Item = &'a Path>, file: &str) -> u64 {
    let read = |cgroup: &Path, file| fs::read_to_string(cgroup.join(file)).unwrap_or_default();
    let bytes = |text: &str| text.trim().parse::<u64>().ok();
    let protected = cgroups.filter_map(|cgroup| match read(cgroup, file) {
        text if text.trim() == "max" => bytes(&read(cgroup, "memory.max")),
        text => bytes(&text),
    });
    protected.fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    #[test]
    fn the_pods_protection_is_the_sum_of_its_containers() {
        let directory = tempfile::tempdir().unwrap();
        let cgroups = [("4096", "8192"), ("8192", "max"), ("max", "16384"), ("max", "max"), ("0", "max")];
        let mut paths = vec![directory.path().join("removed")];
        for (number, (min, max)) in cgroups.into_iter().enumerate() {
            let path = directory.path().join(number.to_string());
            fs::create_dir(&path).unwrap();
            fs::write(path.join("memory.min"), format!("{min}\n")).unwrap();
            fs::write(path.join("memory.max"), format!("{max}\n")).unwrap();
            paths.push(path);
        }
        let sum = |file| sum(paths.iter().map(PathBuf::as_path), file);
        assert_eq!((sum("memory.min"), sum("memory.low")), (4096 + 8192 + 16384, 0));
    }
}
