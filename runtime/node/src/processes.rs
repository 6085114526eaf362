//! The node's processes, by what `/proc` says of them.

use std::path::{Path, PathBuf};

use crate::root::{HostRoot, RootError};

/// A command line has a few kilobytes.
const BYTES_MAX: u64 = 1 << 20;

/// The name that a VMM gives itself.
const VMM: &str = "podvisor-vmm";

/// The cgroup of VMMs that no pod has: the daemon makes them ahead, and ends them when it stops.
const UNCLAIMED: &str = "/podvisor-unclaimed";

/// Processes that cannot be seen.
#[derive(Debug, thiserror::Error)]
pub enum ProcessesError {
    /// The node's `/proc` cannot be read.
    #[error(transparent)]
    Root(#[from] RootError),
    /// The root has no processes: it is no running node's.
    #[error("the node's /proc shows no processes: mount the node's root with all that is mounted below it")]
    None,
}

/// Returns the process IDs of the VMMs that pods have.
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

/// Returns the arguments of each process whose name begins with `name`. The kernel cuts names at 15 bytes.
pub(crate) fn arguments(root: &HostRoot, name: &str) -> Result<Vec<Vec<String>>, ProcessesError> {
    let of = |pid: u32| {
        // A process that has ended meanwhile has none.
        let text = root.read(&place(pid, "cmdline"), BYTES_MAX).ok().flatten().unwrap_or_default();
        text.split_terminator('\0').map(str::to_owned).collect()
    };
    Ok(all(root)?.into_iter().filter(|(_, found)| found.starts_with(name)).map(|(pid, _)| of(pid)).collect())
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
