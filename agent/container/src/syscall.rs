//! System calls without a wrapper in a safe crate, each behind a safe function. All of the agent's unsafe
//! code is here, and nothing else: this module makes no decisions.

#![allow(unsafe_code, reason = "the one module that makes system calls itself")]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use rustix::mount::OpenTreeFlags;

use crate::bpf::Instruction;

/// Longest random seed for [`add_entropy`], in bytes. The kernel's pool has 256 bits.
const SEED_BYTES_MAX: usize = 64;

/// `struct rand_pool_info` of `include/uapi/linux/random.h`, with room for [`SEED_BYTES_MAX`].
#[repr(C)]
struct PoolInfo {
    entropy_bits: libc::c_int,
    buffer_bytes: libc::c_int,
    buffer: [u8; SEED_BYTES_MAX],
}

// `RNDADDENTROPY` is _IOW('R', 0x03, int[2]) and `RNDRESEEDCRNG` _IO('R', 0x07), same header.
const RNDADDENTROPY: libc::Ioctl = 0x4008_5203;
const RNDRESEEDCRNG: libc::Ioctl = 0x5207;
// `EXT4_IOC_RESIZE_FS` is _IOW('f', 16, __u64), `include/uapi/linux/ext4.h`.
const EXT4_IOC_RESIZE_FS: libc::Ioctl = 0x4008_6610;

/// Mixes `seed` into the kernel's random pool, credits it in full, and makes the kernel reseed from it.
///
/// Needs CAP_SYS_ADMIN. A seed beyond 64 bytes is cut there.
pub fn add_entropy(random: BorrowedFd<'_>, seed: &[u8]) -> io::Result<()> {
    let seed = &seed[..seed.len().min(SEED_BYTES_MAX)];
    let bytes = i32::try_from(seed.len()).expect("the seed was cut to 64 bytes");
    let mut info = PoolInfo { entropy_bits: bytes * 8, buffer_bytes: bytes, buffer: [0; SEED_BYTES_MAX] };
    info.buffer[..seed.len()].copy_from_slice(seed);
    // SAFETY: `info` lives through the call and has the layout of RNDADDENTROPY: two ints, then
    // `buffer_bytes` bytes. `buffer` is at least that long.
    check(unsafe { libc::ioctl(random.as_raw_fd(), RNDADDENTROPY, &raw const info) })?;
    // SAFETY: RNDRESEEDCRNG takes no argument.
    check(unsafe { libc::ioctl(random.as_raw_fd(), RNDRESEEDCRNG) })
}

/// Grows the mounted ext4 file system of `directory` to `blocks` file system blocks.
///
/// Needs CAP_SYS_RESOURCE. The kernel refuses a size beyond the block device.
pub fn ext4_resize(directory: BorrowedFd<'_>, blocks: u64) -> io::Result<()> {
    // SAFETY: the kernel reads one u64 at the pointer. `blocks` lives through the call.
    check(unsafe { libc::ioctl(directory.as_raw_fd(), EXT4_IOC_RESIZE_FS, &raw const blocks) })
}

/// Gives the calling process a new session key ring without a name. Other processes cannot find it
/// (keyctl(2)).
pub fn new_session_keyring() -> io::Result<()> {
    // SAFETY: without a name the kernel reads no memory.
    let id = unsafe {
        libc::syscall(libc::SYS_keyctl, libc::KEYCTL_JOIN_SESSION_KEYRING, std::ptr::null::<libc::c_char>())
    };
    if id < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// `struct fsxattr` of `include/uapi/linux/fs.h`.
#[repr(C)]
#[derive(Default)]
struct FileAttributes {
    flags: u32,
    extent_size: u32,
    extents: u32,
    project: u32,
    copy_extent_size: u32,
    padding: [u8; 8],
}

// `FS_IOC_FSGETXATTR` is _IOR('X', 31, struct fsxattr), `FS_IOC_FSSETXATTR` _IOW('X', 32, …), same header.
const FS_IOC_FSGETXATTR: libc::Ioctl = 0x801c_581f;
const FS_IOC_FSSETXATTR: libc::Ioctl = 0x401c_5820;
const FS_XFLAG_PROJINHERIT: u32 = 0x200;

// `QCMD(Q_GETQUOTA, PRJQUOTA)` of `include/uapi/linux/quota.h`, and Q_SETQUOTA, QIF_BLIMITS and QIF_DQBLKSIZE
// there.
const GET_PROJECT_QUOTA: libc::c_uint = 0x80_0007 << 8 | 2;
const SET_PROJECT_QUOTA: libc::c_uint = 0x80_0008 << 8 | 2;
const QIF_BLIMITS: u32 = 1;
const QUOTA_BLOCK_BYTES: u64 = 1024;

/// Puts a directory into the quota project. Everything made in the directory later belongs to the project,
/// too. Existing files stay in their projects.
pub fn set_project(directory: BorrowedFd<'_>, project: u32) -> io::Result<()> {
    let mut attributes = FileAttributes::default();
    // SAFETY: `attributes` lives through the call and has the layout of `struct fsxattr`.
    check(unsafe { libc::ioctl(directory.as_raw_fd(), FS_IOC_FSGETXATTR, &raw mut attributes) })?;
    attributes.project = project;
    attributes.flags |= FS_XFLAG_PROJINHERIT;
    // SAFETY: as above, and the kernel only reads it.
    check(unsafe { libc::ioctl(directory.as_raw_fd(), FS_IOC_FSSETXATTR, &raw const attributes) })
}

/// Bytes and inodes of a quota project on the file system of `directory`.
///
/// Needs CAP_SYS_ADMIN. An empty project has 0 of both.
pub fn project_usage(directory: BorrowedFd<'_>, project: u32) -> io::Result<(u64, u64)> {
    // SAFETY: all fields of a `dqblk` are integers, and zero is valid for them.
    let mut quota: libc::dqblk = unsafe { std::mem::zeroed() };
    // SAFETY: quotactl_fd(2) fills a `struct if_dqblk`, the kernel's name for `dqblk`. `quota` lives through
    // the call.
    let result = unsafe {
        libc::syscall(
            libc::SYS_quotactl_fd,
            directory.as_raw_fd(),
            GET_PROJECT_QUOTA,
            project,
            &raw mut quota,
        )
    };
    check(result)?;
    Ok((quota.dqb_curspace, quota.dqb_curinodes))
}

/// Limits the bytes of a quota project on the file system of `directory`. Writes beyond the limit fail with
/// EDQUOT.
///
/// Needs CAP_SYS_ADMIN. The kernel keeps the limit in blocks of 1 KiB, rounded up.
pub fn limit_project(directory: BorrowedFd<'_>, project: u32, bytes: u64) -> io::Result<()> {
    // SAFETY: all fields of a `dqblk` are integers, and zero is valid for them.
    let mut quota: libc::dqblk = unsafe { std::mem::zeroed() };
    quota.dqb_bhardlimit = bytes.div_ceil(QUOTA_BLOCK_BYTES);
    quota.dqb_valid = QIF_BLIMITS;
    // SAFETY: quotactl_fd(2) reads a `struct if_dqblk`, the kernel's name for `dqblk`. `quota` lives through
    // the call.
    let result = unsafe {
        libc::syscall(
            libc::SYS_quotactl_fd,
            directory.as_raw_fd(),
            SET_PROJECT_QUOTA,
            project,
            &raw const quota,
        )
    };
    check(result)
}

/// Sets a terminal's size in characters, through either side. The kernel signals the foreground processes.
pub fn set_window_size(terminal: BorrowedFd<'_>, columns: u16, rows: u16) -> io::Result<()> {
    let size = libc::winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: the kernel reads one `struct winsize` at the pointer. `size` lives through the call.
    check(unsafe { libc::ioctl(terminal.as_raw_fd(), libc::TIOCSWINSZ, &raw const size) })
}

/// Adds this many nanoseconds to CLOCK_REALTIME at once. Needs CAP_SYS_TIME.
pub fn step_clock(ns: i64) -> io::Result<()> {
    adjust_clock(step(ns))
}

/// Makes CLOCK_REALTIME run faster than the hardware by this many nanoseconds per second, at most 500,000
/// either way. Also sets the clock's state to synchronized with this error, visible to programs through
/// adjtimex(2).
///
/// Needs CAP_SYS_TIME.
pub fn set_clock_rate(ns_per_second: i64, error: Duration) -> io::Result<()> {
    adjust_clock(rate(ns_per_second, error))
}

fn step(ns: i64) -> libc::timex {
    const NS: i64 = 1_000_000_000;
    let mut timex = no_change();
    timex.modes = libc::ADJ_SETOFFSET | libc::ADJ_NANO;
    // With ADJ_NANO `tv_usec` holds nanoseconds. It must not be negative.
    timex.time = libc::timeval { tv_sec: ns.div_euclid(NS), tv_usec: ns.rem_euclid(NS) };
    timex
}

fn rate(ns_per_second: i64, error: Duration) -> libc::timex {
    let error_us = i64::try_from(error.as_micros()).unwrap_or(i64::MAX);
    let mut timex = no_change();
    timex.modes = libc::ADJ_FREQUENCY | libc::ADJ_STATUS | libc::ADJ_MAXERROR | libc::ADJ_ESTERROR;
    // The kernel's unit is a millionth, with 16 binary places.
    timex.freq = ns_per_second * (1 << 16) / 1000;
    (timex.maxerror, timex.esterror) = (error_us, error_us);
    timex
}

fn no_change() -> libc::timex {
    // SAFETY: all fields of a `timex` are integers, and zero is valid for them.
    unsafe { std::mem::zeroed() }
}

fn adjust_clock(mut timex: libc::timex) -> io::Result<()> {
    // SAFETY: the kernel reads and fills a `struct timex`. `timex` lives through the call.
    check(unsafe { libc::clock_adjtime(libc::CLOCK_REALTIME, &raw mut timex) })
}

/// Sends any Linux signal. The signal types of the safe crates have no real-time signals.
///
/// `pid` must be positive: process groups and "everything" are refused here.
pub fn kill(pid: i32, signal: u32) -> io::Result<()> {
    let invalid = || io::Error::from_raw_os_error(libc::EINVAL);
    if pid <= 0 {
        return Err(invalid());
    }
    let signal = libc::c_int::try_from(signal).map_err(|_| invalid())?;
    // SAFETY: kill(2) takes two integers and accesses no memory.
    check(unsafe { libc::kill(pid, signal) })
}

/// Restores the default action of SIGPIPE, because programs expect a broken pipe to end them. Rust's runtime
/// ignores the signal, and an ignored signal stays ignored through exec.
pub(crate) fn restore_broken_pipe() {
    // SAFETY: SIG_DFL installs no handler.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
}

// `enum bpf_cmd`, `bpf_prog_type`, `bpf_attach_type` and a flag, `include/uapi/linux/bpf.h`.
const BPF_PROG_LOAD: libc::c_int = 5;
const BPF_PROG_ATTACH: libc::c_int = 8;
const BPF_PROG_TYPE_CGROUP_DEVICE: u32 = 15;
const BPF_CGROUP_DEVICE: u32 = 6;
const BPF_F_ALLOW_MULTI: u32 = 2;

/// A flag of clone3(2), `include/uapi/linux/sched.h`.
const CLONE_INTO_CGROUP: u64 = 1 << 33;

/// How often loading a program is retried after EAGAIN.
const LOAD_ATTEMPTS: u32 = 32;

/// First members of `union bpf_attr` for BPF_PROG_LOAD. The kernel takes the rest as zero.
#[repr(C)]
struct LoadAttributes {
    program_type: u32,
    instruction_count: u32,
    instructions: u64,
    license: u64,
    log_level: u32,
    log_bytes: u32,
    log: u64,
    kernel_version: u32,
    program_flags: u32,
}

/// First members of `union bpf_attr` for BPF_PROG_ATTACH.
#[repr(C)]
struct AttachAttributes {
    target: u32,
    program: u32,
    attach_type: u32,
    flags: u32,
}

/// Loads a program of device rules and attaches it to the cgroup with this directory. The program lives as
/// long as the cgroup.
///
/// Needs CAP_BPF and CAP_NET_ADMIN, or CAP_SYS_ADMIN.
pub(crate) fn attach_device_program(cgroup: BorrowedFd<'_>, program: &[Instruction]) -> io::Result<()> {
    let count = u32::try_from(program.len()).map_err(io::Error::other)?;
    let load = LoadAttributes {
        program_type: BPF_PROG_TYPE_CGROUP_DEVICE,
        instruction_count: count,
        instructions: program.as_ptr() as u64,
        license: c"Apache-2.0".as_ptr() as u64,
        log_level: 0,
        log_bytes: 0,
        log: 0,
        kernel_version: 0,
        program_flags: 0,
    };
    // The verifier gives up while a signal is pending. The agent has one, because the builder has just ended.
    // The signal is delivered when the call returns.
    let mut attempts = 0;
    let raw = loop {
        match bpf(BPF_PROG_LOAD, &load) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && attempts < LOAD_ATTEMPTS => {
                attempts += 1;
            }
            other => break other?,
        }
    };
    // SAFETY: the kernel has just created this descriptor for this call, and it has no other owner.
    let loaded = unsafe { OwnedFd::from_raw_fd(raw) };
    let number = |fd: libc::c_int| u32::try_from(fd).map_err(io::Error::other);
    let attach = AttachAttributes {
        target: number(cgroup.as_raw_fd())?,
        program: number(loaded.as_raw_fd())?,
        attach_type: BPF_CGROUP_DEVICE,
        flags: BPF_F_ALLOW_MULTI,
    };
    bpf(BPF_PROG_ATTACH, &attach).map(drop)
}

/// Calls bpf(2). `attributes` must have the layout of its command, and its pointers must live through the
/// call.
fn bpf<T>(command: libc::c_int, attributes: &T) -> io::Result<libc::c_int> {
    // SAFETY: both callers pass a repr(C) prefix of `union bpf_attr` for their command, with its true size.
    // The instructions and the license in LoadAttributes outlive the call.
    let result = unsafe {
        libc::syscall(libc::SYS_bpf, command, std::ptr::from_ref(attributes), std::mem::size_of::<T>())
    };
    let result = libc::c_int::try_from(result).map_err(io::Error::other)?;
    check(result).map(|()| result)
}

/// Returns a detached mount of the tree at `path`, with the owners of files mapped by `user_namespace`. The
/// mount lives until its last descriptor and mount point are gone.
///
/// Needs CAP_SYS_ADMIN and a file system with ID-mapped mounts (`FS_ALLOW_IDMAP`).
pub fn mapped_mount(path: &Path, user_namespace: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    let tree = rustix::mount::open_tree(rustix::fs::CWD, path, flags)?;
    let attributes = libc::mount_attr {
        attr_set: libc::MOUNT_ATTR_IDMAP,
        attr_clr: 0,
        propagation: 0,
        userns_fd: u64::try_from(user_namespace.as_raw_fd()).map_err(io::Error::other)?,
    };
    // SAFETY: the kernel reads the path, an empty C string, and a mount_attr of the given size. Both live
    // through the call.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            tree.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH,
            &raw const attributes,
            std::mem::size_of::<libc::mount_attr>(),
        )
    };
    check(result)?;
    Ok(tree)
}

/// Changes the attributes (`MOUNT_ATTR_*`) and the propagation of a mount (mount_setattr(2)). `propagation`
/// is `MS_PRIVATE` and its like, or 0 to leave it. With `recursive` all mounts below change, too.
pub(crate) fn set_mount_attributes(
    mount: BorrowedFd<'_>,
    recursive: bool,
    set: u64,
    clear: u64,
    propagation: u64,
) -> io::Result<()> {
    let attributes = libc::mount_attr { attr_set: set, attr_clr: clear, propagation, userns_fd: 0 };
    let flags = libc::AT_EMPTY_PATH | if recursive { libc::AT_RECURSIVE } else { 0 };
    // SAFETY: the kernel reads the path, an empty C string, and a mount_attr of the given size. Both live
    // through the call.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            mount.as_raw_fd(),
            c"".as_ptr(),
            flags,
            &raw const attributes,
            std::mem::size_of::<libc::mount_attr>(),
        )
    };
    check(result)
}

/// Creates a process like fork(2), but as a child of this process's parent (clone3(2)). It gets these
/// `CLONE_NEW*` flags and starts in the cgroup with the given directory. Returns the new process's pid here,
/// and `None` in the new process.
///
/// The caller must have one thread: locks of other threads would stay locked in the new process.
pub(crate) fn clone_sibling(flags: u64, cgroup: Option<BorrowedFd<'_>>) -> io::Result<Option<i32>> {
    // SAFETY: all fields of a `clone_args` are integers, and zero is valid for them.
    let mut arguments: libc::clone_args = unsafe { std::mem::zeroed() };
    arguments.flags = flags | u64::from(libc::CLONE_PARENT.cast_unsigned());
    if let Some(cgroup) = cgroup {
        arguments.flags |= CLONE_INTO_CGROUP;
        arguments.cgroup = u64::try_from(cgroup.as_raw_fd()).map_err(io::Error::other)?;
    }
    // SAFETY: the kernel reads a clone_args of the given size. `arguments` lives through the call. Without
    // CLONE_VM the new process has its own memory and stack, as after fork(2), and the caller has one thread.
    let result = unsafe {
        libc::syscall(libc::SYS_clone3, &raw const arguments, std::mem::size_of::<libc::clone_args>())
    };
    check(result)?;
    let pid = i32::try_from(result).map_err(io::Error::other)?;
    Ok((pid > 0).then_some(pid))
}

/// Ends the process without a library's exit handlers, because the process is a copy of another one.
pub(crate) fn exit_at_once(code: i32) -> ! {
    // SAFETY: _exit(2) takes a number, and does not return.
    unsafe { libc::_exit(code) }
}

/// Puts the process under a system call filter. `program` is an array of `struct sock_filter` (seccomp(2)).
pub(crate) fn load_filter(program: &[u8], flags: u64) -> io::Result<()> {
    const INSTRUCTION_BYTES: usize = std::mem::size_of::<libc::sock_filter>();
    let length = u16::try_from(program.len() / INSTRUCTION_BYTES).map_err(io::Error::other)?;
    // The kernel copies the instructions. They need no alignment.
    let filter = libc::sock_fprog { len: length, filter: program.as_ptr().cast_mut().cast() };
    // SAFETY: the kernel reads `length` instructions at the pointer. `program` has that many and lives
    // through the call.
    check(unsafe {
        libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, &raw const filter)
    })
}

/// Runs `work` with this effective user in this thread alone. The C library would change all threads. The
/// thread must be root before, and is root again afterwards.
pub fn as_user<T>(uid: u32, work: impl FnOnce() -> T) -> io::Result<T> {
    set_effective_user(uid)?;
    let done = work();
    set_effective_user(0)?;
    Ok(done)
}

fn set_effective_user(uid: u32) -> io::Result<()> {
    // setresuid(2): -1 leaves an id unchanged.
    const SAME: u32 = u32::MAX;
    // SAFETY: the system call takes only numbers and accesses no memory.
    let result = unsafe { libc::syscall(libc::SYS_setresuid, SAME, uid, SAME) };
    check(result)
}

/// Turns a negative result of a C library function or of syscall(2) into an error from errno.
fn check(result: impl Into<libc::c_long>) -> io::Result<()> {
    if result.into() < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn a_group_or_everything_is_no_target_for_a_signal() {
        assert_eq!(kill(0, 0).unwrap_err().raw_os_error(), Some(libc::EINVAL));
        assert_eq!(kill(-1, 0).unwrap_err().raw_os_error(), Some(libc::EINVAL));
    }

    #[test]
    fn a_terminal_has_the_size_that_it_was_given() {
        // SAFETY: posix_openpt takes only flags. The returned descriptor has no other owner.
        let master = unsafe { OwnedFd::from_raw_fd(libc::posix_openpt(libc::O_RDWR | libc::O_NOCTTY)) };
        set_window_size(master.as_fd(), 100, 30).unwrap();
        let mut size = libc::winsize { ws_row: 0, ws_col: 0, ws_xpixel: 0, ws_ypixel: 0 };
        // SAFETY: the kernel writes one `struct winsize` at the pointer, and it lives through the call.
        check(unsafe { libc::ioctl(master.as_raw_fd(), libc::TIOCGWINSZ, &raw mut size) }).unwrap();
        assert_eq!((size.ws_col, size.ws_row), (100, 30));
        let file = std::fs::File::open("/dev/null").unwrap();
        set_window_size(file.as_fd(), 100, 30).unwrap_err();
    }

    #[test]
    fn a_clock_s_step_and_rate_are_in_the_kernel_s_units() {
        let parts = |ns| (step(ns).time.tv_sec, step(ns).time.tv_usec);
        assert_eq!(parts(1_500_000_000), (1, 500_000_000));
        assert_eq!(parts(-1), (-1, 999_999_999));
        let fastest = rate(500_000, Duration::from_millis(2));
        // MAXFREQ_SCALED of include/linux/timex.h.
        assert_eq!((fastest.freq, fastest.maxerror, fastest.status), (500 << 16, 2000, 0));
        assert_eq!(rate(-1000, Duration::ZERO).freq, -65536);
    }

    #[test]
    fn signal_0_finds_this_process() {
        kill(i32::try_from(std::process::id()).unwrap(), 0).unwrap();
    }
}
