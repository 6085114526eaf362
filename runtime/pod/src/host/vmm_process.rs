//! Unresponsive VMMs: found in `/proc`, and killed.

use std::ffi::OsStr;
use std::fs;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::sys::socket::{UnixAddr, getsockname};
use runtime_fail_points::{Point, pass_async};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, Signal, pidfd_getfd, pidfd_open, pidfd_send_signal};

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

/// VMMs with the control socket `path`: those not yet on record when the daemon died.
pub(crate) fn find(path: &Path) -> Vec<VmmProcess> {
    let here = vmms().filter(|(_, socket)| socket == path);
    here.filter_map(|(pid, _)| Some(VmmProcess::of_this_boot(pid, start_time(pid)?))).collect()
}

/// Processes with a VMM's name and a socket with a path as standard input.
fn vmms() -> impl Iterator<Item = (u32, PathBuf)> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let named = pids.filter(|pid| name(*pid).is_some_and(|name| name == "podvisor-vmm"));
    named.filter_map(|pid| Some((pid, control_socket(pid)?)))
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

/// Every VMM of this node.
pub(crate) fn all() -> Vec<RunningVmm> {
    let vmm = |(pid, control_socket): (u32, PathBuf)| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let process = VmmProcess::of_this_boot(pid, parse(&stat)?);
        let daemon = control_socket.ancestors().nth(3).map(|run_dir| run_dir.join("podvisor.sock"));
        let serves = || daemon.is_some_and(|socket| UnixStream::connect(socket).is_ok());
        let attended = parent(&stat).and_then(name).is_some_and(|name| name == "podvisor") || serves();
        Some(RunningVmm { process, control_socket, attended })
    };
    vmms().filter_map(vmm).collect()
}

/// The path of the socket at a process's standard input. The kernel names it for the descriptor itself: every
/// process can write what it likes into the table of all sockets, as the name of one of its own.
fn control_socket(pid: u32) -> Option<PathBuf> {
    // Not if the first thread has ended, nor with Yama's ptrace_scope 3.
    let named = standard_input(pid).and_then(|input| getsockname::<UnixAddr>(input.as_raw_fd()).ok());
    if let Some(named) = named {
        return named.path().map(Path::to_owned);
    }
    let link = fd_dirs(pid).into_iter().find_map(|dir| fs::read_link(dir.join("0")).ok())?;
    let inode: u64 = link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()?;
    let table = fs::read("/proc/net/unix").ok()?;
    bound(&table).find(|(known, _)| *known == inode).map(|(_, path)| path.to_owned())
}

fn standard_input(pid: u32) -> Option<OwnedFd> {
    let pidfd = pidfd_open(Pid::from_raw(i32::try_from(pid).ok()?)?, PidfdFlags::empty()).ok()?;
    pidfd_getfd(pidfd, 0, PidfdGetfdFlags::empty()).ok()
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

/// Inodes and paths of all sockets with a path, from `/proc/net/unix` (`unix_seq_show`, net/unix/af_unix.c).
/// A name of another process may have newlines and any bytes, so a line counts in its whole form alone:
/// behind a name's newline there is no room for one with a path of ours.
fn bound(table: &[u8]) -> impl Iterator<Item = (u64, &Path)> {
    const WIDTHS: [usize; 5] = [8, 8, 8, 4, 2];
    table.split(|byte| *byte == b'\n').filter_map(|line| {
        let (address, mut rest) = line.split_at_checked(line.iter().position(|byte| *byte == b':')?)?;
        let is_hex = |field: &[u8]| field.iter().all(u8::is_ascii_hexdigit);
        rest = rest.strip_prefix(b": ").filter(|_| address.len() >= 8 && is_hex(address))?;
        for width in WIDTHS {
            let (field, more) = rest.split_at_checked(width)?;
            rest = more.strip_prefix(b" ").filter(|_| is_hex(field))?;
        }
        let rest = rest.trim_ascii_start();
        let (inode, path) = rest.split_at_checked(rest.iter().position(|byte| *byte == b' ')?)?;
        let path = path.strip_prefix(b" ").filter(|path| path.starts_with(b"/"))?;
        Some((std::str::from_utf8(inode).ok()?.parse().ok()?, Path::new(OsStr::from_bytes(path))))
    })
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
    use std::os::linux::net::SocketAddrExt as _;
    use std::os::unix::net::{SocketAddr, UnixListener};
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

    /// Names in the table are anybody's, an abstract one of any bytes.
    #[test]
    fn a_line_that_another_process_has_forged_is_none() {
        let path = "/run/podvisor/pods/0123456789abcdef01234567/control.sock";
        let real = format!("000000009a1b2c3d: 00000002 00000000 00010000 0001 01 3484911 {path}\n");
        let head = "Num       RefCount Protocol Flags    Type St Inode Path\n";
        let found: Vec<_> = bound(format!("{head}{real}").as_bytes()).map(|(inode, _)| inode).collect();
        assert_eq!(found, [3_484_911]);
        let name = format!("x\n3484912 {path}");
        assert!(name.len() < 107, "it fits a socket's name");
        let forged = format!("{head}0000000000000000: 00000002 00000000 00000000 0001 01 3484912 @{name}\n");
        assert_eq!(bound(forged.as_bytes()).count(), 0);
        let short = format!("x\n00000000: 00000002 00000000 00010000 0001 01 3484912 {path}");
        assert!(short.len() > 107, "a whole line does not");
        let odd =
            [b"0000000000000000: 00000002 00000000 00000000 0001 01 7 @\xff\xfe\n", real.as_bytes()].concat();
        assert_eq!(bound(&odd).next(), Some((3_484_911, Path::new(path))));
    }

    #[test]
    fn a_vmm_is_found_by_its_control_socket() {
        let odd = SocketAddr::from_abstract_name(
            [&[0xff, b'\n'], std::process::id().to_string().as_bytes()].concat(),
        );
        let _odd = UnixListener::bind_addr(&odd.unwrap()).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("control.sock");
        let listener = UnixListener::bind(&path).unwrap();
        let stranger = std::os::fd::OwnedFd::from(listener.try_clone().unwrap());
        let mut stranger = Command::new("sleep").arg("600").stdin(Stdio::from(stranger)).spawn().unwrap();
        let stdin = std::os::fd::OwnedFd::from(listener.try_clone().unwrap());
        let program = dir.path().join("podvisor-vmm");
        std::os::unix::fs::symlink("/bin/sleep", &program).unwrap();
        let mut child = Command::new(program).arg("600").stdin(Stdio::from(stdin)).spawn().unwrap();
        // The parent may go on before the kernel has put the new name to the child (`begin_new_exec`).
        while name(child.id()).is_none_or(|name| name != "podvisor-vmm") {
            std::thread::yield_now();
        }
        let found = find(&path);
        let running = all();
        let unsaid = VmmProcess { boot: None, ..process(child.id()) };
        let adopted = of_this_boot(unsaid, &path);
        assert!(!alive(unsaid) && alive(adopted));
        assert_eq!(of_this_boot(unsaid, &dir.path().join("other.sock")), unsaid);
        let vmm = RunningVmm { process: process(child.id()), control_socket: path.clone(), attended: false };
        for child in [&mut child, &mut stranger] {
            child.kill().unwrap();
            child.wait().unwrap();
        }
        assert!(running.contains(&vmm), "{vmm:?} is not among {running:?}");
        assert!(!all().contains(&vmm));
        assert_eq!(found.iter().map(|process| process.pid).collect::<Vec<_>>(), [child.id()]);
        assert_eq!(find(&dir.path().join("other.sock")), []);
    }
}
