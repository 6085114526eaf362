//! The second process of a VMM: the share. The VMM starts it to serve the pod's volumes, and it may start
//! nothing itself. The daemon learns of it from the kernel alone: a VMM under attack could name any
//! process.

use std::fs;
use std::path::Path;

/// Most processes of one VMM to look at. It starts one, and can start none later.
const SHARES_MAX: usize = 4;

/// Returns the process with this VMM's volumes in its mount namespace. It is the share, or the VMM itself
/// if an earlier version serves them by threads.
#[must_use]
pub fn with_volumes(pid: u32) -> u32 {
    shares_of(pid).first().copied().unwrap_or(pid)
}

/// Returns the VMM's share. It is empty if there is none, or if it has ended.
pub(crate) fn shares_of(pid: u32) -> Vec<u32> {
    let mut children = match fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")) {
        Ok(list) => list.split_whitespace().filter_map(|number| number.parse().ok()).collect(),
        Err(_) if !Path::new(&format!("/proc/{pid}")).exists() => Vec::new(),
        // The kernel was built without the list (CONFIG_PROC_CHILDREN).
        Err(_) => found(pid),
    };
    children.truncate(SHARES_MAX);
    children
}

/// Returns the children of a process, found among all processes.
fn found(pid: u32) -> Vec<u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let parent = |one: &u32| parse_parent(&fs::read_to_string(format!("/proc/{one}/stat")).ok()?);
    pids.filter(|one| parent(one) == Some(pid)).collect()
}

/// The parent in `/proc/<pid>/stat`: field 4, the second after the name. The name may hold spaces and
/// brackets (proc(5)).
fn parse_parent(stat: &str) -> Option<u32> {
    stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_children_of_a_process_are_found_with_the_kernels_list_and_without() {
        let mut parent = std::process::Command::new("sh").args(["-c", "sleep 600 & wait"]).spawn().unwrap();
        let mut children = Vec::new();
        while children.is_empty() {
            children = shares_of(parent.id());
            std::thread::yield_now();
        }
        assert_eq!((children.len(), found(parent.id())), (1, children.clone()));
        assert_eq!(shares_of(parent.id()), children);
        parent.kill().unwrap();
        parent.wait().unwrap();
        let _ = nix::sys::signal::kill(
            nix::unistd::Pid::from_raw(children[0].cast_signed()),
            nix::sys::signal::Signal::SIGKILL,
        );
        assert!(shares_of(5_000_000).is_empty());
        assert_eq!(with_volumes(5_000_000), 5_000_000);
        assert_eq!(parse_parent("17 (a) b (c) S 4 5"), Some(4));
    }
}
