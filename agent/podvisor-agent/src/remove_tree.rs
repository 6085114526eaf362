//! Removes a directory tree that a container filled, in a process of its own: a hostile tree of any depth must not
//! exhaust the agent's stack or descriptors.

/// First argument; the second is the directory.
pub(crate) const ARGUMENT: &str = "remove-tree";

/// Removes the tree; a missing one is no error. Returns the process's exit code.
pub(crate) fn run(path: &str) -> i32 {
    match std::fs::remove_dir_all(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            eprintln!("podvisor-agent: cannot remove {path}: {error}");
            1
        }
        _ => 0,
    }
}
