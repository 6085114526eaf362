//! The node's processes, as shown in `/proc`.

use std::path::{Path, PathBuf};

use crate::root::{HostRoot, RootError};

/// A command line has a few kilobytes.
const BYTES_MAX: u64 = 1 << 20;

/// A VMM's process name.
const VMM: &str = "podvisor-vmm";

/// The cgroup of VMMs without a pod: the daemon makes them in advance, and ends them when it stops.
const UNCLAIMED: &str = "/podvisor-unclaimed";

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

/// Returns the process IDs of the VMMs with a pod.
///
/// # Errors
/// The node's `/proc` cannot be read, or shows nothing.
pub fn vmms(root: &HostRoot) -> Result<Vec<u32>, ProcessesError> {
    let has_pod = |pid: u32| {
        let cgroups = root.read(&place(pid, "cgroup"), BYTES_MAX).ok().flatten().unwrap_or_default();
        !cgroups.lines().any(|line| line.ends_with(UNCLAIMED))
    };
    let vmms = all(root)?.into_iter().filter(|(pid, name)| name == VMM && has_pod(*pid));
    Ok(vmms.map(|(pid, _)| pid).collect())
}

/// Returns the arguments of each process with this name, as the kernel has it: cut at 15 bytes.
pub(crate) fn arguments(root: &HostRoot, name: &str) -> Result<Vec<Vec<String>>, ProcessesError> {
    let of = |pid: u32| {
        // A process that has ended meanwhile has none.
        let text = root.read(&place(pid, "cmdline"), BYTES_MAX).ok().flatten().unwrap_or_default();
        text.split_terminator('\0').map(str::to_owned).collect()
    };
    Ok(all(root)?.into_iter().filter(|(_, found)| found == name).map(|(pid, _)| of(pid)).collect())
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
