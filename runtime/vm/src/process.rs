//! The life of a VMM's process: its identity (pid and start time), its end, and how to kill it.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use nix::errno::Errno;
use runtime_fail_points::{Point, pass};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use tokio::io::unix::AsyncFd;

use crate::VmError;

/// Position of the start time among the fields after the command's name in /proc/<pid>/stat: field 22, and
/// the name is field 2 (proc(5)).
const START_TIME_AFTER_NAME: usize = 22 - 3;

/// A process, held by pidfd: it stays the same process even if its number is used again.
#[derive(Debug)]
pub(crate) struct Process {
    pid: u32,
    start_time: u64,
    pidfd: AsyncFd<OwnedFd>,
}

impl Process {
    /// Opens the process `pid`.
    pub(crate) fn open(pid: u32) -> Result<Process, VmError> {
        let watch = |source| VmError::Watch { pid, source };
        let number = i32::try_from(pid).ok().and_then(Pid::from_raw);
        let number = number.ok_or(VmError::AnotherProcess { pid })?;
        // NONBLOCK does no harm and suits the reactor.
        let pidfd = pidfd_open(number, PidfdFlags::NONBLOCK).map_err(|error| watch(error.into()))?;
        let pidfd = crate::reactor::watch(pidfd).map_err(watch)?;
        // After opening: either the pidfd and the time belong to one process, or the time cannot be read.
        let start_time = start_time(pid).map_err(watch)?;
        Ok(Process { pid, start_time, pidfd })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.pid
    }

    /// The process's start time in clock ticks since the host's boot.
    pub(crate) fn start_time(&self) -> u64 {
        self.start_time
    }

    /// Returns when the process has ended. This does not reap a child.
    pub(crate) async fn ended(&self) {
        // An error could only come from the reactor's shutdown, and then no caller waits any more.
        let _ = self.pidfd.readable().await;
    }

    /// Sends SIGKILL. An ended process is no error.
    pub(crate) fn kill(&self) -> Result<(), VmError> {
        pass(Point::VmmKill).map_err(|source| VmError::Kill { pid: self.pid, source })?;
        match pidfd_send_signal(self.pidfd.get_ref(), Signal::KILL) {
            Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
            Err(error) => Err(VmError::Kill { pid: self.pid, source: error.into() }),
        }
    }
}

/// Returns true if an error of a file in `/proc` means that its process or thread has ended: the file is
/// gone, or its subject.
pub(crate) fn has_ended(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(Errno::ESRCH as i32)
}

fn start_time(pid: u32) -> std::io::Result<u64> {
    let stat = std::fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("stat"))?;
    parse_start_time(&stat).ok_or_else(|| std::io::Error::other("/proc/<pid>/stat without a start time"))
}

fn parse_start_time(stat: &str) -> Option<u64> {
    // The name may hold spaces and brackets. The fields begin after the last bracket.
    let (_, fields) = stat.rsplit_once(") ")?;
    fields.split(' ').nth(START_TIME_AFTER_NAME)?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_start_time_is_found_behind_an_odd_name() {
        let fields: Vec<String> = (3..=52).map(|field| field.to_string()).collect();
        let stat = format!("17 (a) b (c) {}\n", fields.join(" "));
        assert_eq!(parse_start_time(&stat), Some(22));
        assert_eq!(parse_start_time("17 (a) 1 2"), None);
    }

    #[tokio::test]
    async fn the_end_of_a_killed_process_is_seen() {
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let process = Process::open(child.id()).unwrap();
        assert_eq!(process.start_time(), start_time(child.id()).unwrap());
        process.kill().unwrap();
        process.ended().await;
        child.wait().unwrap();
        process.kill().unwrap();
    }
}
