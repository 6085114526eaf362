//! The end of a cgroup of the node, with all processes still in it: a compromised VMM may have left some.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use runtime_fail_points::{Point, pass};

/// How long killed processes may take to end: they hold nothing slow.
const GONE_WITHIN: Duration = Duration::from_secs(5);

/// Interval between two checks.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Ends the processes in the cgroup and below it, and removes it with those below. A missing one is no error.
///
/// # Errors
/// It cannot be removed, or its processes do not end within 5 s.
pub(super) fn with_processes(cgroup: &Path) -> io::Result<()> {
    pass(Point::CgroupRemove)?;
    let deadline = Instant::now() + GONE_WITHIN;
    loop {
        match if_empty(cgroup) {
            Err(error) if is_busy(&error) && Instant::now() < deadline => {}
            removed => return removed,
        }
        end_all(cgroup);
        std::thread::sleep(LOOK_EVERY);
    }
}

/// Removes the cgroup and those below it. A missing one is no error.
///
/// # Errors
/// It cannot be removed, for example because a process is in it.
pub(crate) fn if_empty(cgroup: &Path) -> io::Result<()> {
    tree(cgroup).iter().rev().try_for_each(|each| match fs::remove_dir(each) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    })
}

/// The cgroup and those below it, each after its parent.
fn tree(cgroup: &Path) -> Vec<PathBuf> {
    let mut found = vec![cgroup.to_owned()];
    let mut at = 0;
    while let Some(next) = found.get(at) {
        let entries = fs::read_dir(next).into_iter().flatten().flatten();
        let below = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        let below: Vec<PathBuf> = below.map(|entry| entry.path()).collect();
        found.extend(below);
        at += 1;
    }
    found
}

fn is_busy(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::EBUSY as i32)
}

/// Kills the processes in the cgroup and below it: by the kernel's own means, or one by one in v1.
fn end_all(cgroup: &Path) {
    let whole = fs::OpenOptions::new().write(true).open(cgroup.join("cgroup.kill"));
    if whole.and_then(|mut file| file.write_all(b"1")).is_ok() {
        return;
    }
    for pid in processes(cgroup) {
        // If it has ended meanwhile, this is fine.
        let _ = kill(pid, Signal::SIGKILL);
    }
}

/// The processes in the cgroup and below it.
fn processes(cgroup: &Path) -> Vec<Pid> {
    let read = |each: PathBuf| fs::read_to_string(each.join("cgroup.procs")).unwrap_or_default();
    let texts: Vec<String> = tree(cgroup).into_iter().map(read).collect();
    let pids = texts.iter().flat_map(|text| text.lines()).filter_map(|line| line.trim().parse().ok());
    pids.filter(|pid| *pid > 1).map(Pid::from_raw).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::cgroup;

    /// Places of cgroups: the node's own, and v2 beside v1 (systemd's "hybrid" hierarchy).
    fn roots() -> [PathBuf; 2] {
        [cgroup::ROOT.into(), Path::new(cgroup::ROOT).join("unified")]
    }

    fn sleeping_in(cgroup: &Path) -> std::process::Child {
        let sleeper = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        fs::write(cgroup.join("cgroup.procs"), sleeper.id().to_string()).unwrap();
        sleeper
    }

    #[test]
    fn what_is_left_in_a_cgroup_ends_with_it() {
        let (parent, id) = ("podvisor-unit-test", "ef".repeat(32));
        for root in roots() {
            let made = cgroup::make(&root, parent, &id).paths;
            let Some(first) = made.first() else {
                eprintln!("skipped: needs a cgroup that may be written to at {}", root.display());
                continue;
            };
            let mut left = sleeping_in(first);
            // The kernel refuses the directory's removal until the process is gone.
            let reaped = std::thread::spawn(move || left.wait().unwrap());
            cgroup::remove(&root, parent, &id).unwrap();
            cgroup::remove(&root, parent, &id).unwrap();
            for path in cgroup::paths(&root, parent, &id) {
                assert!(!path.exists());
                fs::remove_dir(path.parent().unwrap()).unwrap();
            }
            assert!(!reaped.join().unwrap().success());
        }
    }

    #[test]
    fn a_cgroup_of_an_earlier_version_has_its_processes_itself_and_ends_too() {
        let (parent, id) = ("podvisor-unit-test-earlier", "ef".repeat(32));
        for root in roots() {
            let made = cgroup::make_beside(&root, parent, &id).paths;
            let Some(first) = made.first() else {
                eprintln!("skipped: needs a cgroup that may be written to at {}", root.display());
                continue;
            };
            let mut left = sleeping_in(first);
            assert_eq!(processes(first), [Pid::from_raw(left.id().cast_signed())]);
            let reaped = std::thread::spawn(move || left.wait().unwrap());
            cgroup::remove(&root, parent, &id).unwrap();
            made.iter().for_each(|path| fs::remove_dir(path.parent().unwrap()).unwrap());
            assert!(!reaped.join().unwrap().success());
        }
    }

    #[test]
    fn processes_of_all_levels_are_found_where_the_kernel_cannot_kill_a_cgroup() {
        let dir = tempfile::tempdir().unwrap();
        let below = dir.path().join("vm");
        fs::create_dir(&below).unwrap();
        fs::write(dir.path().join("cgroup.procs"), "7\n").unwrap();
        fs::write(below.join("cgroup.procs"), "1\n8\n9\n").unwrap();
        assert_eq!(processes(dir.path()), [7, 8, 9].map(Pid::from_raw));
    }
}
