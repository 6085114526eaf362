//! Unresponsive VMMs: found in `/proc`, and killed.

use std::fs;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use runtime_fail_points::{Point, pass_async};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::boot_id::BootId;
use crate::record::VmmProcess;

/// How long a killed process may take to go; one in the middle of a disk write takes a moment.
const GONE_WITHIN: Duration = Duration::from_secs(10);

/// Interval between two checks.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Whether the very same process still runs. A zombie does not, nor does a process of an earlier boot.
pub(crate) fn alive(process: VmmProcess) -> bool {
    if process.boot.is_none() || process.boot != BootId::current() {
        return false;
    }
    let stat = fs::read_to_string(format!("/proc/{}/stat", process.pid)).unwrap_or_default();
    matches!(parse(&stat), Some((state, start)) if start == process.start_time && !matches!(state, 'Z' | 'X'))
}

/// Kills a process and waits until it is gone. A process already gone is no error.
pub(crate) async fn kill(process: VmmProcess) -> Result<(), String> {
    let Some(pid) = i32::try_from(process.pid).ok().and_then(Pid::from_raw) else { return Ok(()) };
    // Opened before the check, so the checked process is the one killed.
    let Ok(pidfd) = pidfd_open(pid, PidfdFlags::empty()) else { return Ok(()) };
    if !alive(process) {
        return Ok(());
    }
    pass_async(Point::VmmKill)
        .await
        .map_err(|error| format!("killing VMM process {}: {error}", process.pid))?;
    if let Err(error) = pidfd_send_signal(&pidfd, Signal::KILL)
        && error != rustix::io::Errno::SRCH
    {
        return Err(format!("killing VMM process {}: {error}", process.pid));
    }
    let gone = async {
        while alive(process) {
            tokio::time::sleep(LOOK_EVERY).await;
        }
    };
    match tokio::time::timeout(GONE_WITHIN, gone).await {
        Ok(()) => Ok(()),
        Err(_) => Err(format!("VMM process {} does not end after SIGKILL", process.pid)),
    }
}

/// Processes with the listening socket `path`: VMMs not yet on record when the daemon died.
pub(crate) fn find(path: &Path) -> Vec<VmmProcess> {
    let table = fs::read_to_string("/proc/net/unix").unwrap_or_default();
    let sockets: Vec<String> = inodes(&table, path).map(|inode| format!("socket:[{inode}]")).collect();
    if sockets.is_empty() {
        return Vec::new();
    }
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter(|pid| *pid != std::process::id() && holds(*pid, &sockets))
        .filter_map(|pid| {
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
            parse(&stat).map(|(_, start_time)| VmmProcess::of_this_boot(pid, start_time))
        })
        .collect()
}

/// A running VMM on this node, of any daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RunningVmm {
    pub(crate) process: VmmProcess,
    /// The control socket's path, as the daemon bound it.
    pub(crate) control_socket: PathBuf,
    /// Whether it has a supervisor: the process that started it, or a daemon with its run directory.
    pub(crate) attended: bool,
}

/// Every VMM of this node: processes with its name and a control socket as standard input.
pub(crate) fn all() -> Vec<RunningVmm> {
    let table = fs::read_to_string("/proc/net/unix").unwrap_or_default();
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let vmm = |pid: u32| {
        if name(pid)? != "podvisor-vmm" {
            return None;
        }
        let link = fs::read_link(format!("/proc/{pid}/fd/0")).ok()?;
        let inode = link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?;
        let control_socket = bound(&table).find(|(known, _)| *known == inode)?.1.to_owned();
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let process = VmmProcess::of_this_boot(pid, parse(&stat)?.1);
        let daemon = control_socket.ancestors().nth(3).map(|run_dir| run_dir.join("podvisor.sock"));
        let serves = || daemon.is_some_and(|socket| UnixStream::connect(socket).is_ok());
        let attended = parent(&stat).and_then(name).is_some_and(|name| name == "podvisor") || serves();
        Some(RunningVmm { process, control_socket, attended })
    };
    pids.filter_map(vmm).collect()
}

fn name(pid: u32) -> Option<String> {
    Some(fs::read_to_string(format!("/proc/{pid}/comm")).ok()?.trim().to_owned())
}

/// The parent in `/proc/<pid>/stat` (proc(5)): field 4.
fn parent(stat: &str) -> Option<u32> {
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

/// The process, marked as one of this boot if it holds the listening socket `path`: records of the first
/// versions do not name a process's boot.
pub(crate) fn of_this_boot(process: VmmProcess, path: &Path) -> VmmProcess {
    let same = |one: &VmmProcess| (one.pid, one.start_time) == (process.pid, process.start_time);
    find(path).into_iter().find(same).unwrap_or(process)
}

/// Inodes of the sockets bound to `path`: the last two fields of a line of `/proc/net/unix` (unix(7)).
fn inodes<'a>(table: &'a str, path: &'a Path) -> impl Iterator<Item = &'a str> {
    bound(table).filter(move |(_, bound)| *bound == path).map(|(inode, _)| inode)
}

/// Inodes and paths of all sockets with a path.
fn bound(table: &str) -> impl Iterator<Item = (&str, &Path)> {
    table.lines().filter_map(|line| {
        let mut fields = line.split_whitespace().rev();
        let path = fields.next()?;
        Some((fields.next()?, Path::new(path)))
    })
}

fn holds(pid: u32, sockets: &[String]) -> bool {
    let entries = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    let mut links = entries.filter_map(|entry| fs::read_link(entry.path()).ok());
    links.any(|link| sockets.iter().any(|socket| link.as_os_str() == socket.as_str()))
}

/// State and start time in `/proc/<pid>/stat` (proc(5)): fields 3 and 22, after the name. The name may itself
/// hold spaces and parentheses.
fn parse(stat: &str) -> Option<(char, u64)> {
    let rest = stat.rsplit_once(')')?.1;
    let mut fields = rest.split_whitespace();
    let state = fields.next()?.chars().next()?;
    Some((state, fields.nth(18)?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    fn process(pid: u32) -> VmmProcess {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        VmmProcess::of_this_boot(pid, parse(&stat).unwrap().1)
    }

    #[test]
    fn a_name_with_parentheses_does_not_confuse() {
        let stat = "7 (a) b (c) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4242 20";
        assert_eq!(parse(stat), Some(('S', 4242)));
        assert_eq!(parent(stat), Some(1));
        assert_eq!(parse(""), None);
        assert_eq!(parse("7 (x) S 1"), None);
    }

    #[tokio::test]
    async fn a_killed_process_is_gone_and_one_of_another_start_time_or_boot_is_left_alone() {
        let mut child = Command::new("sleep").arg("600").stdin(Stdio::null()).spawn().unwrap();
        let real = process(child.id());
        let other = VmmProcess { start_time: real.start_time + 1, ..real };
        kill(other).await.unwrap();
        assert!(alive(real) && !alive(other));
        // As after a reboot, when the number is a stranger's.
        let boots = [None, Some("0123456789abcdef0123456789abcdef".to_owned().try_into().unwrap())];
        for boot in boots {
            let stranger = VmmProcess { boot, ..real };
            kill(stranger).await.unwrap();
            assert!(alive(real) && !alive(stranger));
        }
        kill(real).await.unwrap();
        assert!(!alive(real));
        kill(real).await.unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn a_vmm_is_found_by_its_control_socket() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("control.sock");
        let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let stdin = std::os::fd::OwnedFd::from(listener.try_clone().unwrap());
        let program = dir.path().join("podvisor-vmm");
        std::os::unix::fs::symlink("/bin/sleep", &program).unwrap();
        let mut child = Command::new(program).arg("600").stdin(Stdio::from(stdin)).spawn().unwrap();
        let found = find(&path);
        let running = all();
        let unsaid = VmmProcess { boot: None, ..process(child.id()) };
        let adopted = of_this_boot(unsaid, &path);
        assert!(!alive(unsaid) && alive(adopted));
        assert_eq!(of_this_boot(unsaid, &dir.path().join("other.sock")), unsaid);
        let vmm = RunningVmm { process: process(child.id()), control_socket: path.clone(), attended: false };
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(running.contains(&vmm), "{vmm:?} is not among {running:?}");
        assert!(!all().contains(&vmm));
        assert_eq!(found.iter().map(|process| process.pid).collect::<Vec<_>>(), [child.id()]);
        assert_eq!(find(&dir.path().join("other.sock")), []);
    }
}
