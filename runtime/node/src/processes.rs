//! The node's processes, as shown in `/proc`.

use std::path::{Path, PathBuf};

use crate::root::{HostRoot, RootError};

/// A command line has a few kilobytes.
const BYTES_MAX: u64 = 1 << 20;

/// A VMM's process name.
const VMM: &str = "podvisor-vmm";

/// The cgroup of VMMs without a pod: the daemon makes them in advance, and ends them when it stops.
const UNCLAIMED: &str = "/podvisor-unclaimed";

/// In the cgroup of each of the kubelet's pods, by either of its cgroup drivers. Names are relative to the
/// reader's cgroup namespace: from within a container, with the driver cgroupfs, this one falls away.
const PODS: &str = "kubepods";

/// The beginning of a pod's own cgroup with that driver. The pod's UID follows.
const POD: &str = "pod";

/// The fewest characters of a pod's UID: one without hyphens, as a static pod's is.
const UID_CHARS_MIN: usize = 32;

/// In the cgroup of a pod's VMM.
const OURS: &str = "/podvisor-";

/// The node's processes are not visible.
#[derive(Debug, thiserror::Error)]
pub enum ProcessesError {
    /// The node's `/proc` cannot be read.
    #[error(transparent)]
    Root(#[from] RootError),
    /// The root has no processes, so it does not belong to a running node.
    #[error("the node's /proc shows no processes: mount the node's root with all mounts below it")]
    None,
}

/// Returns the process IDs of the VMMs with a pod. A container's process of that name is none: it is in a
/// pod's cgroup without a VMM's name, or has a process ID namespace of its own, unlike a VMM.
///
/// # Errors
/// The node's `/proc` cannot be read, or shows nothing.
pub fn vmms(root: &HostRoot) -> Result<Vec<u32>, ProcessesError> {
    let has_pod = |pid: u32| {
        let cgroups = cgroups(root, pid);
        let is_of_container = is_of_pod(&cgroups) && !cgroups.contains(OURS);
        !is_of_container && !is_nested(root, pid) && !cgroups.lines().any(|line| line.ends_with(UNCLAIMED))
    };
    let vmms = all(root)?.into_iter().filter(|(pid, name)| name == VMM && has_pod(*pid));
    Ok(vmms.map(|(pid, _)| pid).collect())
}

/// A process of the node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Process {
    pub(crate) pid: u32,
    pub(crate) arguments: Vec<String>,
}

/// Returns each of the node's own processes with this name, as the kernel has it: cut at 15 bytes.
/// Containers' processes are left out: they have a process ID namespace of their own, or are in a pod's
/// cgroup. kind has a kubelet in a container, and any tenant may call a program so.
pub(crate) fn of_node(root: &HostRoot, name: &str) -> Result<Vec<Process>, ProcessesError> {
    let mut processes = named(root, name)?;
    processes.retain(|process| !is_nested(root, process.pid) && !is_of_pod(&cgroups(root, process.pid)));
    Ok(processes)
}

/// Whether cgroups are a pod's of the kubelet.
fn is_of_pod(cgroups: &str) -> bool {
    let is_uid = |uid: &str| {
        uid.len() >= UID_CHARS_MIN && uid.chars().all(|letter| letter.is_ascii_hexdigit() || letter == '-')
    };
    let mut names = cgroups.split(['/', '\n']);
    cgroups.contains(PODS) || names.any(|name| name.strip_prefix(POD).is_some_and(is_uid))
}

/// Whether a process has a process ID namespace of its own, as containers without the node's have.
fn is_nested(root: &HostRoot, pid: u32) -> bool {
    let status = root.read(&place(pid, "status"), BYTES_MAX).ok().flatten().unwrap_or_default();
    let mut ids = status.lines().filter_map(|line| line.strip_prefix("NSpid:"));
    ids.any(|ids| ids.split_whitespace().count() > 1)
}

/// Returns each process with this name, also containers'.
pub(crate) fn named(root: &HostRoot, name: &str) -> Result<Vec<Process>, ProcessesError> {
    let of = |pid: u32| {
        // A process that has ended meanwhile has none.
        let text = root.read(&place(pid, "cmdline"), BYTES_MAX).ok().flatten().unwrap_or_default();
        Process { pid, arguments: text.split_terminator('\0').map(str::to_owned).collect() }
    };
    Ok(all(root)?.into_iter().filter(|(_, found)| found == name).map(|(pid, _)| of(pid)).collect())
}

fn cgroups(root: &HostRoot, pid: u32) -> String {
    root.read(&place(pid, "cgroup"), BYTES_MAX).ok().flatten().unwrap_or_default()
}

fn all(root: &HostRoot) -> Result<Vec<(u32, String)>, ProcessesError> {
    let pids: Vec<u32> =
        root.names(Path::new("/proc"))?.iter().filter_map(|name| name.parse().ok()).collect();
    if pids.is_empty() {
        return Err(ProcessesError::None);
    }
    let named = |pid: u32| {
        let name = root.read(&place(pid, "comm"), BYTES_MAX).ok().flatten()?;
        Some((pid, name.trim_end().to_owned()))
    };
    Ok(pids.into_iter().filter_map(named).collect())
}

fn place(pid: u32, file: &str) -> PathBuf {
    format!("/proc/{pid}/{file}").into()
}
