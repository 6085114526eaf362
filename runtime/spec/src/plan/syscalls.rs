//! The system calls allowed by our default profile: those of containerd's profile
//! (`contrib/seccomp/seccomp_default.go`, as of August 2026), so that containers run here as they do there.
//! Names are libseccomp's, for x86-64 and its 32-bit mode. Names unknown to the guest's kernel do no harm.
//!
//! Left out on purpose: modules, kexec, swap, clock setting, raw ports, mounts, namespaces, keyrings, bpf,
//! perf, userfaultfd, io_uring, quotas, accounting.

/// Allowed in all containers.
#[rustfmt::skip]
pub(super) const ALLOWED: &[&str] = &[
    // Files.
    "access", "chdir", "chmod", "chown", "chown32", "close", "close_range", "copy_file_range", "creat",
    "dup", "dup2", "dup3", "faccessat", "faccessat2", "fadvise64", "fadvise64_64", "fallocate", "fchdir",
    "fchmod", "fchmodat", "fchmodat2", "fchown", "fchown32", "fchownat", "fcntl", "fcntl64", "fdatasync",
    "fgetxattr", "flistxattr", "flock", "fremovexattr", "fsetxattr", "fstat", "fstat64", "fstatat64",
    "fstatfs", "fstatfs64", "fsync", "ftruncate", "ftruncate64", "futimesat", "getcwd", "getdents",
    "getdents64", "getxattr", "getxattrat", "inotify_add_watch", "inotify_init", "inotify_init1",
    "inotify_rm_watch", "ioctl", "lchown", "lchown32", "lgetxattr", "link", "linkat", "listxattr",
    "listxattrat", "llistxattr", "_llseek", "lremovexattr", "lseek", "lsetxattr", "lstat", "lstat64",
    "mkdir", "mkdirat", "mknod", "mknodat", "name_to_handle_at", "newfstatat", "open", "openat", "openat2",
    "pread64", "preadv", "preadv2", "pwrite64", "pwritev", "pwritev2", "read", "readahead", "readlink",
    "readlinkat", "readv", "removexattr", "removexattrat", "rename", "renameat", "renameat2", "rmdir",
    "sendfile", "sendfile64", "setxattr", "setxattrat", "splice", "stat", "stat64", "statfs", "statfs64",
    "statx", "symlink", "symlinkat", "sync", "sync_file_range", "syncfs", "tee", "truncate", "truncate64",
    "umask", "unlink", "unlinkat", "utime", "utimensat", "utimensat_time64", "utimes", "vmsplice", "write",
    "writev", "cachestat", "fanotify_mark", "listmount", "statmount",
    // Pipes, polling, timers and event files.
    "_newselect", "epoll_create", "epoll_create1", "epoll_ctl", "epoll_ctl_old", "epoll_pwait",
    "epoll_pwait2", "epoll_wait", "epoll_wait_old", "eventfd", "eventfd2", "io_cancel", "io_destroy",
    "io_getevents", "io_pgetevents", "io_pgetevents_time64", "io_setup", "io_submit", "pipe", "pipe2",
    "poll", "ppoll", "ppoll_time64", "pselect6", "pselect6_time64", "select", "signalfd", "signalfd4",
    "timerfd_create", "timerfd_gettime", "timerfd_gettime64", "timerfd_settime", "timerfd_settime64",
    // Memory.
    "brk", "madvise", "map_shadow_stack", "membarrier", "memfd_create",
    "memfd_secret", "mincore", "mlock", "mlock2", "mlockall", "mmap", "mmap2", "mprotect", "mremap",
    "mseal", "msync", "munlock", "munlockall", "munmap", "pkey_alloc", "pkey_free", "pkey_mprotect",
    "process_mrelease", "remap_file_pages",
    // Processes and threads.
    "arch_prctl", "capget", "capset", "execve", "execveat", "exit", "exit_group", "fork", "futex",
    "futex_requeue", "futex_time64", "futex_wait", "futex_waitv", "futex_wake", "get_robust_list",
    "get_thread_area", "getcpu", "getpgid", "getpgrp", "getpid", "getppid", "getpriority", "getrlimit",
    "getrusage", "getsid", "gettid", "ioprio_get", "ioprio_set", "kill", "landlock_add_rule",
    "landlock_create_ruleset", "landlock_restrict_self", "modify_ldt", "pidfd_open",
    "pidfd_send_signal", "prctl", "prlimit64", "process_vm_readv", "process_vm_writev", "ptrace",
    "restart_syscall", "rseq", "sched_get_priority_max", "sched_get_priority_min", "sched_getaffinity",
    "sched_getattr", "sched_getparam", "sched_getscheduler", "sched_rr_get_interval",
    "sched_rr_get_interval_time64", "sched_setaffinity", "sched_setattr", "sched_setparam",
    "sched_setscheduler", "sched_yield", "seccomp", "set_robust_list", "set_thread_area",
    "set_tid_address", "setpgid", "setpriority", "setrlimit", "setsid", "tgkill", "times", "tkill",
    "ugetrlimit", "vfork", "wait4", "waitid", "waitpid",
    // Users and groups.
    "getegid", "getegid32", "geteuid", "geteuid32", "getgid", "getgid32", "getgroups", "getgroups32",
    "getresgid", "getresgid32", "getresuid", "getresuid32", "getuid", "getuid32", "setfsgid", "setfsgid32",
    "setfsuid", "setfsuid32", "setgid", "setgid32", "setgroups", "setgroups32", "setregid", "setregid32",
    "setresgid", "setresgid32", "setresuid", "setresuid32", "setreuid", "setreuid32", "setuid", "setuid32",
    // Signals.
    "alarm", "pause", "rt_sigaction", "rt_sigpending", "rt_sigprocmask", "rt_sigqueueinfo", "rt_sigreturn",
    "rt_sigsuspend", "rt_sigtimedwait", "rt_sigtimedwait_time64", "rt_tgsigqueueinfo", "sigaltstack",
    "sigprocmask", "sigreturn",
    // Time, read only.
    "adjtimex", "clock_adjtime", "clock_adjtime64", "clock_getres", "clock_getres_time64", "clock_gettime",
    "clock_gettime64", "clock_nanosleep", "clock_nanosleep_time64", "getitimer", "gettimeofday",
    "nanosleep", "setitimer", "time", "timer_create", "timer_delete", "timer_getoverrun", "timer_gettime",
    "timer_gettime64", "timer_settime", "timer_settime64",
    // Sockets. socket(2) itself has a separate rule.
    "accept", "accept4", "bind", "connect", "getpeername", "getsockname", "getsockopt", "listen", "recv",
    "recvfrom", "recvmmsg", "recvmmsg_time64", "recvmsg", "send", "sendmmsg", "sendmsg", "sendto",
    "setsockopt", "shutdown", "socketcall", "socketpair",
    // Inter-process communication.
    "ipc", "mq_getsetattr", "mq_notify", "mq_open", "mq_timedreceive", "mq_timedreceive_time64",
    "mq_timedsend", "mq_timedsend_time64", "mq_unlink", "msgctl", "msgget", "msgrcv", "msgsnd", "semctl",
    "semget", "semop", "semtimedop", "semtimedop_time64", "shmat", "shmctl", "shmdt", "shmget",
    // The system, read only.
    "getrandom", "lsm_get_self_attr", "lsm_list_modules", "lsm_set_self_attr", "sysinfo", "uname", "uretprobe",
];

/// System calls added by a capability. The kernel would refuse most of them without the capability anyway,
/// but this way it is not even asked.
pub(super) const BY_CAPABILITY: &[(&str, &[&str])] = &[
    ("DAC_READ_SEARCH", &["open_by_handle_at"]),
    ("SYS_CHROOT", &["chroot"]),
    ("SYS_BOOT", &["reboot"]),
    ("SYS_MODULE", &["delete_module", "init_module", "finit_module"]),
    ("SYS_PACCT", &["acct"]),
    (
        "SYS_PTRACE",
        &["kcmp", "pidfd_getfd", "process_madvise", "process_vm_readv", "process_vm_writev", "ptrace"],
    ),
    ("SYS_RAWIO", &["iopl", "ioperm"]),
    ("SYS_TIME", &["settimeofday", "stime", "clock_settime", "clock_settime64"]),
    ("SYS_TTY_CONFIG", &["vhangup"]),
    ("SYS_NICE", &["get_mempolicy", "mbind", "set_mempolicy", "set_mempolicy_home_node"]),
    ("SYSLOG", &["syslog"]),
    ("BPF", &["bpf"]),
    ("PERFMON", &["perf_event_open"]),
    (
        "SYS_ADMIN",
        &[
            "bpf",
            "clone",
            "clone3",
            "fanotify_init",
            "fsconfig",
            "fsmount",
            "fsopen",
            "fspick",
            "lookup_dcookie",
            "mount",
            "mount_setattr",
            "move_mount",
            "open_tree",
            "perf_event_open",
            "quotactl",
            "quotactl_fd",
            "setdomainname",
            "sethostname",
            "setns",
            "syslog",
            "umount",
            "umount2",
            "unshare",
        ],
    ),
];
