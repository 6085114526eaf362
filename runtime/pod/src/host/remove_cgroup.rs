//! The end of a cgroup of the node, with all processes still in it: a compromised VMM may have left some.

use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use runtime_fail_points::{Point, pass};

/// How long killed processes may take to end: they hold nothing slow.
const GONE_WITHIN: Duration = Duration::from_secs(5);

/// Interval between two checks.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Ends the cgroup's processes, and removes it. A missing one is no error.
///
/// # Errors
/// It cannot be removed, or its processes do not end within 5 s.
pub(super) fn with_processes(cgroup: &Path) -> io::Result<()> {
    pass(Point::CgroupRemove)?;
    let deadline = Instant::now() + GONE_WITHIN;
    loop {
        match fs::remove_dir(cgroup) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) if is_busy(&error) && Instant::now() < deadline => {}
            removed => return removed,
        }
        end_all(cgroup);
        std::thread::sleep(LOOK_EVERY);
    }
}

fn is_busy(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::EBUSY as i32)
}

/// Kills the cgroup's processes: by the kernel's own means, or one by one in v1.
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

/// The processes in the cgroup.
fn processes(cgroup: &Path) -> Vec<Pid> {
    let text = fs::read_to_string(cgroup.join("cgroup.procs")).unwrap_or_default();
    text.lines()
        .filter_map(|line| line.trim().parse().ok())
        .filter(|pid| *pid > 1)
        .map(Pid::from_raw)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::cgroup;

    #[test]
    fn what_is_left_in_a_cgroup_ends_with_it() {
        let made = cgroup::make(Path::new(cgroup::ROOT), "podvisor-unit-test", &"ef".repeat(32)).paths;
        let Some(cgroup) = made.first() else {
            eprintln!("skipped: needs a cgroup that may be written to");
            return;
        };
        let mut left = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        fs::write(cgroup.join("cgroup.procs"), left.id().to_string()).unwrap();
        // The kernel refuses the directory's removal until the process is gone.
        let reaped = std::thread::spawn(move || left.wait().unwrap());
        for cgroup in &made {
            with_processes(cgroup).unwrap();
            with_processes(cgroup).unwrap();
            assert!(!cgroup.exists());
            let _ = fs::remove_dir(cgroup.parent().unwrap());
        }
        assert!(!reaped.join().unwrap().success());
    }
}
