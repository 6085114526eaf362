//! The system calls of the VMM's threads, as data. A call in [`ARGUMENTS`] is allowed with these arguments
//! only.

use libc::{c_int, c_long};

use super::ioctls;

/// For every thread.
pub(super) const ALL: &[c_long] = &[
    // The allocator and thread stacks.
    libc::SYS_brk,
    libc::SYS_munmap,
    libc::SYS_mremap,
    // glibc's allocator counts processors before it makes an arena.
    libc::SYS_sched_getaffinity,
    // Threads and locks.
    libc::SYS_set_robust_list,
    libc::SYS_rseq,
    libc::SYS_sched_yield,
    libc::SYS_gettid,
    libc::SYS_getpid,
    libc::SYS_exit,
    libc::SYS_exit_group,
    // Signals: the kick of vCPUs, and Rust's stack overflow handler.
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sigaltstack,
    libc::SYS_restart_syscall,
    // Time.
    libc::SYS_clock_gettime,
    // Descriptors.
    libc::SYS_lseek,
    libc::SYS_fstat,
    libc::SYS_newfstatat,
    libc::SYS_statx,
    libc::SYS_fallocate,
    // The console's file, emptied when it is full, and files shortened by a guest.
    libc::SYS_ftruncate,
    libc::SYS_fdatasync,
    libc::SYS_fsync,
    libc::SYS_close,
    // Packets, with descriptors for the VMM. It sends none itself: whoever it talks to would have to close
    // them, and the last close of a file may wait.
    libc::SYS_recvmsg,
    libc::SYS_getrandom,
];

/// For the VMM's threads besides.
pub(super) const VMM: &[c_long] = &[
    // Contents: of files, disks, taps and sockets.
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
    // Time.
    libc::SYS_gettimeofday,
    libc::SYS_timerfd_create,
    libc::SYS_timerfd_settime,
    // Events.
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_wait,
    libc::SYS_poll,
    libc::SYS_eventfd2,
    // Sockets received as descriptors.
    libc::SYS_accept4,
    libc::SYS_sendto,
    libc::SYS_recvfrom,
    libc::SYS_shutdown,
];

/// For the share's threads besides: work on files by name and by descriptor.
pub(super) const FILES: &[c_long] = &[
    // To the VMM, with the files that it may have.
    libc::SYS_sendmsg,
    // Contents of the files that the VMM must not have: of the kernel's own file systems, and beyond a bound.
    // So are writes that keep a file's set-id bits.
    libc::SYS_preadv,
    libc::SYS_pwritev,
    libc::SYS_openat,
    libc::SYS_dup,
    libc::SYS_fstatfs,
    libc::SYS_getdents64,
    libc::SYS_readlinkat,
    libc::SYS_mkdirat,
    libc::SYS_mknodat,
    libc::SYS_symlinkat,
    libc::SYS_linkat,
    libc::SYS_unlinkat,
    libc::SYS_renameat2,
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    libc::SYS_fchownat,
    libc::SYS_utimensat,
    libc::SYS_umask,
    libc::SYS_fgetxattr,
    libc::SYS_fsetxattr,
    libc::SYS_flistxattr,
    libc::SYS_fremovexattr,
    // Locks of ranges are SYS_fcntl.
    libc::SYS_flock,
    // The caller's user and group for files.
    libc::SYS_setfsuid,
    libc::SYS_setfsgid,
    libc::SYS_setgroups,
    // For a moment without CAP_FSETID, if a write has to take set-user-id bits away.
    libc::SYS_capget,
    libc::SYS_capset,
];

/// Calls that fail with an error and do no harm.
pub(super) const REFUSED: &[(c_long, c_int)] = &[
    // Its flags are in memory, invisible to a filter. glibc uses clone then.
    (libc::SYS_clone3, libc::ENOSYS),
];

/// The same for the VMM's threads.
pub(super) const VMM_REFUSED: &[(c_long, c_int)] = &[
    // glibc's allocator looks at /proc/sys/vm/overcommit_memory before it shrinks an arena.
    (libc::SYS_openat, libc::ENOENT),
];

/// Condition on an argument of a call.
#[derive(Clone, Copy, Debug)]
pub(super) enum Argument {
    /// One of these numbers, of 32 bits.
    OneOf(u8, &'static [u64]),
    /// This number, of 64 bits.
    Is(u8, u64),
    /// None of these bits.
    Without(u8, u64),
    /// Nothing but these bits.
    Only(u8, u64),
}
use Argument::{Is, OneOf, Only, Without};

/// Calls with conditions on their arguments, for every thread.
pub(super) const ARGUMENTS: &[(c_long, &[Argument])] = &[
    (libc::SYS_mmap, &[Without(2, libc::PROT_EXEC as u64)]),
    (libc::SYS_mprotect, &[Without(2, libc::PROT_EXEC as u64)]),
    (
        libc::SYS_madvise,
        &[OneOf(
            2,
            &[
                libc::MADV_DONTNEED as u64,
                // glibc 2.42 guards the stacks of threads so: MADV_GUARD_INSTALL, MADV_GUARD_REMOVE.
                102,
                103,
            ],
        )],
    ),
    (libc::SYS_clone, &[Is(0, THREAD)]),
    (libc::SYS_futex, &[OneOf(1, FUTEX_OPERATIONS)]),
    (libc::SYS_prctl, &[OneOf(0, &[libc::PR_SET_NAME as u64])]),
    (
        libc::SYS_fcntl,
        &[OneOf(1, &[libc::F_GETFD as u64, libc::F_GETFL as u64, libc::F_DUPFD_CLOEXEC as u64])],
    ),
    (libc::SYS_fcntl, &[OneOf(1, &[libc::F_SETFL as u64]), Without(2, libc::O_ASYNC as u64)]),
];

/// The same for the VMM's threads.
pub(super) const VMM_ARGUMENTS: &[(c_long, &[Argument])] = &[
    (libc::SYS_ioctl, &[OneOf(1, ioctls::ALL)]),
    // Guest memory.
    (
        libc::SYS_madvise,
        &[OneOf(
            2,
            &[
                libc::MADV_HUGEPAGE as u64,
                libc::MADV_NOHUGEPAGE as u64,
                libc::MADV_COLD as u64,
                libc::MADV_POPULATE_WRITE as u64,
            ],
        )],
    ),
    (libc::SYS_fcntl, &[OneOf(1, &[libc::F_GET_SEALS as u64])]),
    // The end of a thread, for the one that joins it.
    (libc::SYS_futex, &[OneOf(1, &[(libc::FUTEX_WAIT_BITSET | libc::FUTEX_CLOCK_REALTIME) as u64])]),
    // Lower or normal priority, for the calling thread alone.
    (
        libc::SYS_sched_setscheduler,
        &[Is(0, 0), OneOf(1, &[libc::SCHED_BATCH as u64, libc::SCHED_OTHER as u64])],
    ),
];

/// The same for the share's threads.
pub(super) const FILES_ARGUMENTS: &[(c_long, &[Argument])] = &[
    (libc::SYS_fcntl, &[OneOf(1, &[libc::F_OFD_GETLK as u64, libc::F_OFD_SETLK as u64])]),
    // A channel to the VMM. A datagram could go to any socket. These go to their other end alone.
    (
        libc::SYS_socketpair,
        &[OneOf(0, &[libc::AF_UNIX as u64]), OneOf(1, &[(libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC) as u64])],
    ),
    // A umask of its own for each thread.
    (libc::SYS_unshare, &[Only(0, libc::CLONE_FS as u64)]),
];

/// Flags of clone for a thread in glibc (nptl/pthread_create.c): no process, and no namespace.
const THREAD: u64 = (libc::CLONE_VM
    | libc::CLONE_FS
    | libc::CLONE_FILES
    | libc::CLONE_SIGHAND
    | libc::CLONE_THREAD
    | libc::CLONE_SYSVSEM
    | libc::CLONE_SETTLS
    | libc::CLONE_PARENT_SETTID
    | libc::CLONE_CHILD_CLEARTID) as u64;

/// Waiting and waking, on memory of the process.
const FUTEX_OPERATIONS: &[u64] = &[
    (libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG) as u64,
    (libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG) as u64,
    (libc::FUTEX_WAIT_BITSET | libc::FUTEX_PRIVATE_FLAG) as u64,
];
