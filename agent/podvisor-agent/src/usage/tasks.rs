//! A container's processes and their open descriptors, from `/proc`.

use std::fs;
use std::path::{Path, PathBuf};

use proto_agent::agent::TaskUsage;

use crate::containers::Container;
use crate::usage::cgroup;

/// Most descriptors of one container searched for sockets: some 10 ms of work.
const DESCRIPTORS_MAX: usize = 16384;

pub(super) fn read(container: &Container) -> TaskUsage {
    let directory = container.cgroup().directory();
    let processes = container.cgroup().processes().unwrap_or_default();
    let tables: Vec<PathBuf> = processes.iter().map(|pid| format!("/proc/{pid}/fd").into()).collect();
    TaskUsage {
        processes: count(processes.len()),
        threads: cgroup::tasks(directory),
        threads_max: cgroup::tasks_max(directory),
        file_descriptors: tables.iter().map(|table| descriptors(table)).sum(),
        sockets: count(sockets(&tables)),
        open_files_max: container.first_pid().and_then(open_files_max),
        ..Default::default()
    }
}

fn count(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}

/// The size of a table's directory is the number of open descriptors (proc_pid_fd(5), since 6.2).
fn descriptors(table: &Path) -> u64 {
    fs::metadata(table).map_or(0, |metadata| metadata.len())
}

fn sockets(tables: &[PathBuf]) -> usize {
    let entries = tables.iter().flat_map(|table| fs::read_dir(table).into_iter().flatten().flatten());
    let links = entries.take(DESCRIPTORS_MAX).filter_map(|entry| fs::read_link(entry.path()).ok());
    links.filter(|link| link.as_os_str().as_encoded_bytes().starts_with(b"socket:")).count()
}

/// Soft limit of open files, all ones for no limit.
fn open_files_max(pid: i32) -> Option<u64> {
    soft_limit(&fs::read_to_string(format!("/proc/{pid}/limits")).ok()?, "Max open files")
}

/// The first number behind a limit's name (proc_pid_limits(5)).
fn soft_limit(limits: &str, name: &str) -> Option<u64> {
    let rest = limits.lines().find_map(|line| line.strip_prefix(name))?;
    match rest.split_whitespace().next()? {
        "unlimited" => Some(u64::MAX),
        number => number.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_are_counted_and_files_are_not() {
        let _socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let _file = fs::File::open("/dev/null").unwrap();
        let own = PathBuf::from(format!("/proc/{}/fd", std::process::id()));
        let sockets = count(sockets(std::slice::from_ref(&own)));
        let all = count(fs::read_dir(&own).unwrap().count());
        assert!(sockets >= 1 && sockets < all, "{sockets} of {all}");
    }

    #[test]
    fn a_soft_limit_is_the_first_number() {
        let limits = "Limit                     Soft Limit           Hard Limit           Units\n\
                      Max open files            1024                 4096                 files\n\
                      Max msgqueue size         unlimited            unlimited            bytes\n";
        assert_eq!(soft_limit(limits, "Max open files"), Some(1024));
        assert_eq!(soft_limit(limits, "Max msgqueue size"), Some(u64::MAX));
        assert_eq!(soft_limit(limits, "Max realtime"), None);
    }
}
