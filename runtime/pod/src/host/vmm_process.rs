//! Unresponsive VMMs: found in `/proc`, and killed.

use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use runtime_fail_points::{Point, pass_async};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::boot_id::BootId;
use crate::record::VmmProcess;

/// How long a killed process may take to go; one in the middle of a disk write takes a moment.
const GONE_WITHIN: Duration = Duration::from_secs(10);

/// Interval between two checks.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Whether a thread of the very same process still runs. Its first thread may have ended alone: then the
/// process looks like a zombie, and the others run on. A process of an earlier boot does not run.
pub(crate) fn alive(process: VmmProcess) -> bool {
    open(process).is_some()
}

/// The process, if it is alive.
fn open(process: VmmProcess) -> Option<OwnedFd> {
    if process.boot.is_none() || process.boot != BootId::current() {
        return None;
    }
    let pid = Pid::from_raw(i32::try_from(process.pid).ok()?)?;
    // Opened before the check, so the checked process is the one opened.
    let pidfd = pidfd_open(pid, PidfdFlags::empty()).ok()?;
    if start_time(process.pid) != Some(process.start_time) {
        return None;
    }
    let mut end = [PollFd::new(&pidfd, PollFlags::IN)];
    // Readable once the last thread has ended (pidfd_open(2)). A poll that fails is no such sign.
    let ended = poll(&mut end, Some(&Timespec::default())).is_ok_and(|ready| ready > 0);
    (!ended).then_some(pidfd)
}

/// Bytes that the process has written to file systems and disks so far (`write_bytes` of proc_pid_io(5)). 0
/// if the kernel does not say.
pub(crate) fn written_bytes(pid: u32) -> u64 {
    let io = fs::read_to_string(format!("/proc/{pid}/io")).unwrap_or_default();
    let bytes = io.lines().find_map(|line| line.strip_prefix("write_bytes: "));
    bytes.and_then(|bytes| bytes.parse().ok()).unwrap_or(0)
}

/// Kills a process and waits until it is gone. A process already gone is no error.
pub(crate) async fn kill(process: VmmProcess) -> Result<(), String> {
    let Some(pidfd) = open(process) else { return Ok(()) };
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
        .filter_map(|pid| Some(VmmProcess::of_this_boot(pid, start_time(pid)?)))
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
        let link = fd_dirs(pid).into_iter().find_map(|dir| fs::read_link(dir.join("0")).ok())?;
        let inode = link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?;
        let control_socket = bound(&table).find(|(known, _)| *known == inode)?.1.to_owned();
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let process = VmmProcess::of_this_boot(pid, parse(&stat)?);
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
    let entries = fd_dirs(pid).into_iter().filter_map(|dir| fs::read_dir(dir).ok()).flatten().flatten();
    let mut links = entries.filter_map(|entry| fs::read_link(entry.path()).ok());
    links.any(|link| sockets.iter().any(|socket| link.as_os_str() == socket.as_str()))
}

/// Directories with the descriptors of a process. If its first thread has none, it has ended, and those of
/// the other threads count. Else they are the same: a VMM's filter does not let a thread have its own.
fn fd_dirs(pid: u32) -> Vec<PathBuf> {
    let first = PathBuf::from(format!("/proc/{pid}/fd"));
    if fs::read_dir(&first).is_ok_and(|mut entries| entries.next().is_some()) {
        return vec![first];
    }
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    threads.map(|thread| thread.path().join("fd")).collect()
}

fn start_time(pid: u32) -> Option<u64> {
    parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// The start time in `/proc/<pid>/stat` (proc(5)): field 22, after the name. The name may itself hold spaces
/// and parentheses.
fn parse(stat: &str) -> Option<u64> {
    stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;
    use std::os::unix::net::UnixListener;
    use std::process::{Child, Command, Stdio};

    use super::*;

    fn process(pid: u32) -> VmmProcess {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        VmmProcess::of_this_boot(pid, parse(&stat).unwrap())
    }

    #[test]
    fn a_name_with_parentheses_does_not_confuse() {
        let stat = "7 (a) b (c) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4242 20";
        assert_eq!(parse(stat), Some(4242));
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

    /// Instructions: clone(CLONE_THREAD and all it needs); the new thread calls pause for ever, the first one
    /// exit, and not exit_group.
    const EXITS_ALONE: [u8; 36] = [
        0xbf, 0x00, 0x0f, 0x05, 0x00, 0x31, 0xf6, 0xb8, 0x38, 0, 0, 0, 0x0f, 0x05, 0x85, 0xc0, 0x75, 0x09,
        0xb8, 0x22, 0, 0, 0, 0x0f, 0x05, 0xeb, 0xf7, 0xb8, 0x3c, 0, 0, 0, 0x31, 0xff, 0x0f, 0x05,
    ];

    /// A program of this code, as the smallest ELF file.
    fn elf(code: &[u8]) -> Vec<u8> {
        const AT: u64 = 0x40_0000;
        let head = [64u16, 56, 1, 0, 0, 0];
        let length = 120 + code.len() as u64;
        let mut file = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x02\0\x3e\0\x01\0\0\0".to_vec();
        file.extend([AT + 120, 64, 0].iter().flat_map(|field| field.to_le_bytes()));
        file.extend([0; 4]);
        file.extend(head.iter().flat_map(|field| field.to_le_bytes()));
        // One segment to load, readable and executable.
        file.extend([1u32, 5].iter().flat_map(|field| field.to_le_bytes()));
        file.extend([0, AT, AT, length, length, 4096].iter().flat_map(|field| field.to_le_bytes()));
        file.extend(code);
        file
    }

    /// Starts a VMM whose first thread has ended, and another has not.
    fn without_first_thread(program: &Path, stdin: &UnixListener) -> Child {
        use std::os::unix::fs::PermissionsExt as _;

        fs::write(program, elf(&EXITS_ALONE)).unwrap();
        fs::set_permissions(program, fs::Permissions::from_mode(0o755)).unwrap();
        let child = loop {
            let stdin = Stdio::from(OwnedFd::from(stdin.try_clone().unwrap()));
            match Command::new(program).stdin(stdin).spawn() {
                // A child of another test has the file open until it executes its own program.
                Err(error) if error.kind() == ErrorKind::ExecutableFileBusy => std::thread::yield_now(),
                spawned => break spawned.unwrap(),
            }
        };
        let state = || fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap();
        while !state().contains(") Z ") {
            std::thread::yield_now();
        }
        child
    }

    #[tokio::test]
    async fn a_process_whose_first_thread_has_ended_lives_and_is_found_and_killed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("control.sock");
        let listener = UnixListener::bind(&path).unwrap();
        let mut child = without_first_thread(&dir.path().join("podvisor-vmm"), &listener);
        drop(listener);
        let real = process(child.id());
        let vmm = RunningVmm { process: real, control_socket: path.clone(), attended: false };
        assert_eq!((alive(real), find(&path)), (true, vec![real]));
        assert!(all().contains(&vmm));
        kill(real).await.unwrap();
        assert_eq!((alive(real), find(&path)), (false, vec![]));
        assert!(!all().contains(&vmm));
        child.wait().unwrap();
    }

    #[test]
    fn a_vmm_is_found_by_its_control_socket() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("control.sock");
        let listener = UnixListener::bind(&path).unwrap();
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
