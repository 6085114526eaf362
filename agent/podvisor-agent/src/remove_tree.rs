//! Removes a directory tree filled by a container, in a separate process: a hostile tree of any depth must
//! not exhaust the agent's stack or descriptors.

/// First argument. The second is the directory.
pub(crate) const ARGUMENT: &str = "remove-tree";

/// Removes the tree. A missing one is no error. Returns the process's exit code.
pub(crate) fn run(path: &str) -> i32 {
    match std::fs::remove_dir_all(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            eprintln!("podvisor-agent: cannot remove {path}: {error}");
            1
        }
        _ => 0,
    }
}
