//! The host's cgroup of a VMM, so the kubelet's accounting sees the pod.
//!
//! | parent | cgroup |
//! |---|---|
//! | `/kubepods/burstable/pod1` | `kubepods/burstable/pod1/podvisor-<id>` |
//! | `kubepods-pod1.slice`, or its whole path | `kubepods.slice/kubepods-pod1.slice/podvisor-<id>.scope` |
//! | none | `podvisor/podvisor-<id>` |
//! | a VM without a pod | `podvisor-unclaimed`, one for all |
//!
//! VMM and share are in a child of this cgroup, `vm`, and it passes its controllers on to the child. Limits
//! and figures are its own. Pods of earlier versions have no child, and go on as they are.
//!
//! Plain writes to the file system, also below a slice: systemd keeps cgroups it does not know, and a VMM
//! outlives the daemon without its help. But systemd takes a slice's controllers away if no unit in the slice
//! needs them, for example at `systemctl daemon-reload`, and our cgroups are no units. The kernel refuses
//! this if a child of the slice passes them on itself (EBUSY). So it is refused for as long as the pod has a
//! VM.
//!
//! The design is for cgroup v2. With v1 the VMM enters the hierarchies for CPU time and memory, without a
//! child. Best effort: without permission, a VMM stays in the daemon's cgroup. The only limits set here are
//! the number of threads and the swap. The limits of the pod's own cgroup above count, and the VM is sized to
//! fit into them.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use runtime_fail_points::{Point, pass};

use super::remove_cgroup;
use crate::id::is_id;

/// The mount point of cgroups on every node.
pub(crate) const ROOT: &str = "/sys/fs/cgroup";

/// Levels of cgroups searched for pods': the kubelet's slices, and as many again.
const DEPTH_MAX: usize = 10;

/// The child with the pod's processes: in v2 a cgroup that passes controllers on has none itself.
const PROCESSES: &str = "vm";

/// Parent of pods without a specified one.
const DEFAULT_PARENT: &str = "podvisor";

/// The cgroup of VMMs without a pod.
const UNCLAIMED: &str = "podvisor-unclaimed";

/// A tenth of a cgroup's initial weight, in v2 and in v1, and no swap. The memory that a VM touches before a
/// pod claims it stays accounted here, and holds the pod's data from then on.
const UNCLAIMED_FILES: [(&str, &str); 3] = [("cpu.weight", "10"), ("cpu.shares", "102"), (SWAP_MAX, "0")];

/// The bound of a cgroup's swap, in bytes.
const SWAP_MAX: &str = "memory.swap.max";

/// Controllers for the pod's accounting in v2, if the levels above pass them on.
const CONTROLLERS: [&str; 4] = ["+cpu", "+memory", "+pids", "+io"];

/// Most threads of a VMM: one for each vCPU, and some for each device. A compromised VMM makes no more.
const TASKS_MAX: &[u8] = b"4096";

/// Hierarchies of v1 that account for a pod. Two may be one, under a link.
const V1_HIERARCHIES: [&str; 3] = ["cpu", "cpuacct", "memory"];

/// The pod's cgroups with its limits and figures, below the mount point: one in v2, one for each hierarchy in
/// v1, none if the node has no cgroups.
pub(crate) fn paths(root: &Path, parent: &str, pod_id: &str) -> Vec<PathBuf> {
    let place = place(parent, pod_id);
    mounts(root).into_iter().map(|mount| mount.join(&place)).collect()
}

/// The pod's cgroup with its limits and figures, and those above it, up to the mount point and without it.
/// None if the node does not have v2.
pub(crate) fn levels(root: &Path, parent: &str, pod_id: &str) -> Vec<PathBuf> {
    if !unified(root) {
        return Vec::new();
    }
    let place = place(parent, pod_id);
    let levels = place.ancestors().filter(|level| !level.as_os_str().is_empty());
    levels.map(|level| root.join(level)).collect()
}

/// A memory limit on one of the pod's cgroups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MemoryLimit {
    pub(crate) bytes: u64,
    /// The cgroup below the mount point, in the kubelet's notation: `/kubepods/pod1`.
    pub(crate) cgroup: String,
}

/// The least limit of memory on the pod's cgroup and those above it; `None` without one, and without v2.
pub(crate) fn memory_limit(root: &Path, parent: &str) -> Option<MemoryLimit> {
    let above = levels(root, parent, "").into_iter().skip(1);
    let limits = above.filter_map(|level| {
        let name = level.strip_prefix(root).unwrap_or(&level).display().to_string();
        Some(MemoryLimit { bytes: memory_max(&level)?, cgroup: format!("/{name}") })
    });
    limits.min_by_key(|limit| limit.bytes)
}

/// The kubelet's limit of tasks for the pod (`podPidsLimit`), from the pod's own cgroup. Limits above it
/// apply to many pods. `None` without one, and without v2.
pub(crate) fn pids_limit(root: &Path, parent: &str) -> Option<u64> {
    limit(levels(root, parent, "").get(1)?, "pids.max")
}

/// The limit of memory of one cgroup, in bytes; `None` without a limit.
pub(crate) fn memory_max(cgroup: &Path) -> Option<u64> {
    limit(cgroup, "memory.max")
}

/// The number in a file of a cgroup; `None` for `max`, or if there is no such file.
fn limit(cgroup: &Path, file: &str) -> Option<u64> {
    fs::read_to_string(cgroup.join(file)).ok()?.trim().parse().ok()
}

/// The value of a name in the text of a flat-keyed file; 0 if there is none.
pub(crate) fn flat_keyed(text: &str, name: &str) -> u64 {
    let found = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    found.and_then(|value| value.trim().parse().ok()).unwrap_or(0)
}

/// The cgroups made.
#[derive(Debug, Default)]
pub(crate) struct Made {
    /// Those for processes to enter.
    pub(crate) paths: Vec<PathBuf>,
    /// Why there is none, or not one in each hierarchy.
    pub(crate) missing: Option<String>,
}

/// Makes the pod's cgroups. A failure is logged, and the cgroup left out.
pub(crate) fn make(root: &Path, parent: &str, pod_id: &str) -> Made {
    let child = if unified(root) { PROCESSES } else { "" };
    make_with(root, &place(parent, pod_id), child)
}

/// Makes cgroups of this name beside the pod's, without a child: agents of the node read the end of a
/// process's path. The pod's own keeps the controllers for them.
pub(crate) fn make_beside(root: &Path, parent: &str, name: &str) -> Made {
    make_with(root, &place(parent, name), "")
}

/// Makes the cgroup at `place` in each mount, with a child for its processes if `child` is not empty.
fn make_with(root: &Path, place: &Path, child: &str) -> Made {
    let mounts = mounts(root);
    let mut made = Made::default();
    if mounts.is_empty() {
        tracing::warn!(root = %root.display(), "no cgroups here; the pod's VMM is not accounted");
        made.missing = Some(format!("no cgroups are mounted at {}", root.display()));
    }
    let processes = if child.is_empty() { place.to_owned() } else { place.join(child) };
    for mount in mounts {
        let path = mount.join(&processes);
        match pass(Point::CgroupMake).and_then(|()| fs::create_dir_all(&path)) {
            Ok(()) => {
                pass_controllers_down(&mount, &processes);
                limit_tasks(&mount.join(place));
                made.paths.push(path);
            }
            Err(error) => {
                tracing::warn!(path = %path.display(), %error, "no cgroup for the pod's VMM; it stays in the daemon's");
                made.missing = Some(format!("making {}: {error}", path.display()));
            }
        }
    }
    made
}

fn limit_tasks(cgroup: &Path) {
    let file = fs::OpenOptions::new().write(true).open(cgroup.join("pids.max"));
    if let Err(error) = file.and_then(|mut file| file.write_all(TASKS_MAX)) {
        tracing::debug!(cgroup = %cgroup.display(), %error, "no limit of threads for a pod's VMM");
    }
}

/// A bound of the memory that the node may swap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SwapMax {
    Bytes(u64),
    Unbounded,
}

/// Sets the bound of the pod's swap. Does nothing for a pod without a cgroup, with v1, and where the kernel
/// does not account swap.
pub(crate) fn limit_swap(root: &Path, parent: &str, pod_id: &str, max: SwapMax) -> io::Result<()> {
    let Some(own) = levels(root, parent, pod_id).into_iter().next() else { return Ok(()) };
    let value = match max {
        SwapMax::Bytes(bytes) => bytes.to_string(),
        SwapMax::Unbounded => "max".to_owned(),
    };
    match fs::OpenOptions::new().write(true).truncate(true).open(own.join(SWAP_MAX)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        opened => opened?.write_all(value.as_bytes()),
    }
}

/// Makes the cgroups of all VMMs without a pod. They have the lowest priority when the node's processors are
/// short.
pub(crate) fn make_unclaimed(root: &Path) -> Made {
    let mut made = Made::default();
    for mount in mounts(root) {
        let path = mount.join(UNCLAIMED);
        match pass(Point::CgroupMake).and_then(|()| fs::create_dir_all(&path)) {
            Ok(()) => {
                pass_controllers_down(&mount, Path::new(UNCLAIMED));
                for (file, value) in UNCLAIMED_FILES {
                    // Some are the other version's.
                    let _ = fs::write(path.join(file), value);
                }
                made.paths.push(path);
            }
            Err(error) => {
                tracing::warn!(path = %path.display(), %error, "no cgroup for VMMs without a pod; they stay in the daemon's");
                made.missing = Some(format!("making {}: {error}", path.display()));
            }
        }
    }
    made
}

/// Removes the pod's cgroups, with the processes left in them; a missing one is no error.
pub(crate) fn remove(root: &Path, parent: &str, pod_id: &str) -> io::Result<()> {
    paths(root, parent, pod_id).iter().try_for_each(|path| remove_cgroup::with_processes(path))
}

/// Finds the cgroups of pods below the mount point, under any parent, each with the pod's id.
pub(crate) fn find(root: &Path) -> Vec<(String, PathBuf)> {
    let mut found = Vec::new();
    let mut pending: Vec<(PathBuf, usize)> = mounts(root).into_iter().map(|mount| (mount, 0)).collect();
    while let Some((dir, depth)) = pending.pop() {
        let entries = fs::read_dir(&dir).into_iter().flatten().flatten();
        for entry in entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
            let name = entry.file_name();
            let name = name.to_string_lossy();
            let id = name.strip_suffix(".scope").unwrap_or(&name).strip_prefix("podvisor-");
            match id.filter(|id| is_id(id)) {
                Some(id) => found.push((id.to_owned(), entry.path())),
                None if depth < DEPTH_MAX => pending.push((entry.path(), depth + 1)),
                None => {}
            }
        }
    }
    found.sort();
    found
}

/// Whether the node has cgroup v2 here.
pub(crate) fn unified(root: &Path) -> bool {
    root.join("cgroup.controllers").exists()
}

/// The root itself in v2, else the hierarchies of v1, each once.
fn mounts(root: &Path) -> Vec<PathBuf> {
    if unified(root) {
        return vec![root.to_owned()];
    }
    let mut found = Vec::new();
    for hierarchy in V1_HIERARCHIES {
        if let Ok(mount) = root.join(hierarchy).canonicalize()
            && !found.contains(&mount)
        {
            found.push(mount);
        }
    }
    found
}

/// The pod's cgroup below any mount.
fn place(parent: &str, pod_id: &str) -> PathBuf {
    let parent = parent.trim_matches('/');
    if parent.is_empty() {
        return Path::new(DEFAULT_PARENT).join(format!("podvisor-{pod_id}"));
    }
    match parent.strip_suffix(".slice") {
        Some(name) if !parent.contains('/') => slice(name).join(format!("podvisor-{pod_id}.scope")),
        Some(_) => Path::new(parent).join(format!("podvisor-{pod_id}.scope")),
        None => Path::new(parent).join(format!("podvisor-{pod_id}")),
    }
}

/// The path of a slice: its name holds the slices above it (systemd.slice(5)). `-` is the root.
fn slice(name: &str) -> PathBuf {
    if name == "-" {
        return PathBuf::new();
    }
    let dashes = name.match_indices('-').map(|(at, _)| at).chain([name.len()]);
    dashes.map(|end| format!("{}.slice", &name[..end])).collect()
}

/// Gives each level above a cgroup with processes the controllers to pass on. Some it may not have, and one
/// with processes of its own may not pass on any; then the level above accounts for the pod.
fn pass_controllers_down(mount: &Path, place: &Path) {
    let above = place.ancestors().skip(1).map(|level| mount.join(level));
    // From the top.
    for level in above.collect::<Vec<_>>().into_iter().rev() {
        let file = level.join("cgroup.subtree_control");
        for controller in CONTROLLERS {
            let opened = fs::OpenOptions::new().write(true).open(&file);
            if let Err(error) = opened.and_then(|mut file| file.write_all(controller.as_bytes())) {
                tracing::debug!(path = %file.display(), controller, %error, "a cgroup does not pass this controller on");
            }
        }
    }
}

#[cfg(test)]
mod tests;
