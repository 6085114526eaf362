//! The guest's cgroups: one for the agent itself, and a pod slice with every controller for all containers.
//! This step sets no limits; [`agent_container::limits`] sets them for each container.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use agent_container::cgroup::CGROUP_ROOT;
use proto_agent::guest_path::CGROUP_PARENT;

/// Name of the agent's own cgroup. It leaves only the kernel's threads in the root.
const AGENT: &str = "agent";

/// Failed to create or write a cgroup file or directory.
#[derive(Debug, thiserror::Error)]
#[error("cannot set up the cgroup {path}")]
pub(crate) struct CgroupError {
    path: PathBuf,
    source: io::Error,
}

pub(super) fn run() -> Result<(), CgroupError> {
    let root = Path::new(CGROUP_ROOT);
    let agent = root.join(AGENT);
    let pod = root.join(CGROUP_PARENT.trim_start_matches('/'));
    make(&agent)?;
    write(&agent.join("cgroup.procs"), &std::process::id().to_string())?;
    enable_all(root)?;
    make(&pod)?;
    enable_all(&pod)
}

/// Enables all of a cgroup's controllers for its children.
fn enable_all(cgroup: &Path) -> Result<(), CgroupError> {
    let file = cgroup.join("cgroup.controllers");
    let controllers = fs::read_to_string(&file).map_err(|source| CgroupError { path: file, source })?;
    let list: Vec<String> = controllers.split_whitespace().map(|name| format!("+{name}")).collect();
    write(&cgroup.join("cgroup.subtree_control"), &list.join(" "))
}

fn make(path: &Path) -> Result<(), CgroupError> {
    match fs::create_dir(path) {
        Err(source) if source.kind() != io::ErrorKind::AlreadyExists => {
            Err(CgroupError { path: path.to_owned(), source })
        }
        _ => Ok(()),
    }
}

fn write(path: &Path, text: &str) -> Result<(), CgroupError> {
    fs::write(path, text).map_err(|source| CgroupError { path: path.to_owned(), source })
}
