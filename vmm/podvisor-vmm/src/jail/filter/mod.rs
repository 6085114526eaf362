//! seccomp: the system calls that threads may make, one list for all but the share's threads, which work on
//! files too. Any other ends the process, which the daemon sees as a VMM killed by SIGSYS.
//!
//! A thread inherits the filters of the one that starts it. vCPU threads are started by the control
//! thread and devices' threads by a vCPU (when the driver activates the device), so that
//! what a device needs, a vCPU may do, and the control thread too. None of them has a filter more: the kernel would run each of
//! them for every entry into the guest.

use libc::c_long;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    TargetArch,
};

/// The thread's name, for a person to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Thread {
    /// The control loop, which builds the VM, and the threads that come of it: vCPUs and the devices' own.
    Control,
    /// The one that serves the pod's shared directory, and those that it starts to help it.
    Share,
}

/// A filter could not be installed.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub(crate) enum FilterError {
    #[error("cannot build the seccomp filter for a {thread:?} thread")]
    Build { thread: Thread, source: seccompiler::BackendError },
    #[error("cannot install the seccomp filter for a {thread:?} thread")]
    Install { thread: Thread, source: seccompiler::Error },
}

/// For every thread.
const ALL: &[c_long] = &[
    // The allocator and thread stacks.
    libc::SYS_brk,
    libc::SYS_mmap,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_mprotect,
    libc::SYS_madvise,
    // Harmless in an empty root: glibc's allocator looks at /proc/sys/vm/overcommit_memory and
    // /sys/devices/system/cpu before it shrinks or makes an arena, and is content with an error.
    libc::SYS_openat,
    libc::SYS_sched_getaffinity,
    // Threads and locks.
    libc::SYS_clone,
    libc::SYS_clone3,
    libc::SYS_set_robust_list,
    libc::SYS_rseq,
    libc::SYS_futex,
    libc::SYS_sched_yield,
    libc::SYS_gettid,
    libc::SYS_getpid,
    libc::SYS_exit,
    libc::SYS_exit_group,
    // Thread names.
    libc::SYS_prctl,
    // Signals: the kick of vCPUs, and Rust's stack overflow handler.
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sigaltstack,
    libc::SYS_restart_syscall,
    // Time.
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_gettimeofday,
    libc::SYS_timerfd_create,
    libc::SYS_timerfd_settime,
    // Events.
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_wait,
    libc::SYS_epoll_pwait,
    libc::SYS_poll,
    libc::SYS_ppoll,
    libc::SYS_eventfd2,
    // Descriptors: files, disks, taps, sockets.
    libc::SYS_read,
    libc::SYS_readv,
    libc::SYS_pread64,
    libc::SYS_preadv,
    libc::SYS_preadv2,
    libc::SYS_write,
    libc::SYS_writev,
    libc::SYS_pwrite64,
    libc::SYS_pwritev,
    libc::SYS_pwritev2,
    libc::SYS_lseek,
    libc::SYS_fstat,
    libc::SYS_newfstatat,
    libc::SYS_statx,
    libc::SYS_fallocate,
    // The console's file, which begins anew when it is full.
    libc::SYS_ftruncate,
    libc::SYS_fdatasync,
    libc::SYS_fsync,
    libc::SYS_fcntl,
    libc::SYS_dup,
    libc::SYS_close,
    // Sockets that came as descriptors; none can be made but a pair, for a stream that the guest opens.
    libc::SYS_accept4,
    libc::SYS_socketpair,
    libc::SYS_sendmsg,
    libc::SYS_sendto,
    libc::SYS_recvmsg,
    libc::SYS_recvfrom,
    libc::SYS_shutdown,
    libc::SYS_getsockopt,
    libc::SYS_setsockopt,
    libc::SYS_getsockname,
    libc::SYS_getpeername,
    libc::SYS_getrandom,
];

/// For the share's thread besides: work on files by name and by descriptor.
const FILES: &[c_long] = &[
    libc::SYS_statfs,
    libc::SYS_fstatfs,
    libc::SYS_getdents64,
    libc::SYS_readlinkat,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_mkdirat,
    libc::SYS_mknodat,
    libc::SYS_symlinkat,
    libc::SYS_linkat,
    libc::SYS_unlinkat,
    libc::SYS_renameat2,
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    libc::SYS_fchmodat2,
    libc::SYS_fchownat,
    libc::SYS_utimensat,
    libc::SYS_umask,
    libc::SYS_fgetxattr,
    libc::SYS_fsetxattr,
    libc::SYS_flistxattr,
    libc::SYS_fremovexattr,
    // Locks of ranges are SYS_fcntl.
    libc::SYS_flock,
    // Who it acts as.
    libc::SYS_setfsuid,
    libc::SYS_setfsgid,
    libc::SYS_setgroups,
    // For a moment without CAP_FSETID, where a write is to take set-user-id bits away.
    libc::SYS_capget,
    libc::SYS_capset,
];

/// Types (bits 15:8) of ioctls that are allowed: KVM; taps and FIONBIO; sizes and discard of block devices; copies of pages by
/// userfaultfd, of which no thread can open one more.
const IOCTL_TYPES: [u64; 4] = [0xae, b'T' as u64, 0x12, 0xaa];

/// Installs the filter on the calling thread.
pub(crate) fn filter_this_thread(thread: Thread) -> Result<(), FilterError> {
    let program = program(thread).map_err(|source| FilterError::Build { thread, source })?;
    seccompiler::apply_filter(&program).map_err(|source| FilterError::Install { thread, source })
}

fn program(thread: Thread) -> Result<BpfProgram, seccompiler::BackendError> {
    let more = if thread == Thread::Share { FILES } else { &[] };
    let mut rules: std::collections::BTreeMap<c_long, Vec<SeccompRule>> =
        ALL.iter().chain(more).map(|&call| (call, Vec::new())).collect();
    let ioctls = IOCTL_TYPES.map(|kind| masked(1, 0xff00, kind << 8));
    rules.insert(libc::SYS_ioctl, ioctls.into_iter().collect::<Result<_, _>>()?);
    // Signals to threads of this process only.
    rules.insert(libc::SYS_tgkill, vec![masked(0, u64::from(u32::MAX), u64::from(std::process::id()))?]);
    // Being less urgent than others, or as urgent, for the calling thread.
    let policies = [libc::SCHED_BATCH, libc::SCHED_OTHER].map(|policy| {
        let arguments = [(0, 0), (1, policy as u64)];
        let equal =
            |(index, value)| SeccompCondition::new(index, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, value);
        SeccompRule::new(arguments.into_iter().map(equal).collect::<Result<_, _>>()?)
    });
    rules.insert(libc::SYS_sched_setscheduler, policies.into_iter().collect::<Result<_, _>>()?);
    if thread == Thread::Share {
        // A umask of its own for each thread that the share's first one starts.
        rules.insert(libc::SYS_unshare, vec![masked(0, u64::MAX, libc::CLONE_FS as u64)?]);
    }
    SeccompFilter::new(rules, SeccompAction::KillProcess, SeccompAction::Allow, TargetArch::x86_64)?
        .try_into()
}

/// Allows a call whose argument `index` has the bits `value` under `mask`.
fn masked(index: u8, mask: u64, value: u64) -> Result<SeccompRule, seccompiler::BackendError> {
    let op = SeccompCmpOp::MaskedEq(mask);
    SeccompRule::new(vec![SeccompCondition::new(index, SeccompCmpArgLen::Dword, op, value)?])
}
