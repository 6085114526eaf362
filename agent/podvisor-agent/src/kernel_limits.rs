//! Kernel limits of a grown guest. The kernel computes them once, at boot, from the memory at that time. A
//! guest boots small and grows, so it would keep a tiny computer's limits: some hundred threads, a thousand
//! tracked connections. This module computes them by the kernel's rules from the guest's maximum memory, and
//! raises all lower ones. It never lowers a limit, and a pod's own sysctls are set later.
//!
//! A limit costs memory only when it is used, and then the container pays for it. The exception is the hash
//! table of tracked connections: the kernel also scans it once a minute, even in an idle pod. This table
//! therefore has a 64th of the kernel's size.
//!
//! | limit | the kernel's rule |
//! |---|---|
//! | threads, processes of a user, namespaces | `set_max_threads`, `fork_init`, kernel/fork.c |
//! | open files | `files_maxfiles_init`, fs/file_table.c |
//! | inotify and fanotify | `inotify_user_setup`, fs/notify/inotify/inotify_user.c, and its sister |
//! | epoll | `eventpoll_init`, fs/eventpoll.c |
//! | memory of sockets | `tcp_init_mem`, `tcp_init`, net/ipv4/tcp.c; `udp_init`, net/ipv4/udp.c |
//! | ended connections | `inet_hashinfo`'s size, net/ipv4/tcp.c |
//! | tracked connections | `nf_conntrack_init_start`, net/netfilter/nf_conntrack_core.c |

use std::fs;
use std::io;
use std::path::Path;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

const KIB: u64 = 1024;
const MIB: u64 = 1024 * KIB;
const GIB: u64 = 1024 * MIB;
/// `PAGE_SIZE`.
const PAGE_BYTES: u64 = 4 * KIB;
/// `THREAD_SIZE`: the kernel's stack of one thread.
const STACK_BYTES: u64 = 16 * KIB;
/// `PID_MAX_LIMIT`: the most process ids.
const PIDS_MAX: u64 = 4 << 20;
/// Memory pinned by one inotify watch, about `INOTIFY_WATCH_COST`.
const WATCH_BYTES: u64 = 1280;
/// Memory of one descriptor in an epoll set, about `EP_ITEM_COST`.
const EPOLL_BYTES: u64 = 160;
/// Most bytes of one socket's buffer that a program may ask for: the default since Linux 6.18. The default of
/// the guest's kernel is a twentieth, and QUIC and DDS need more. Only the kernel's first network has this
/// setting, so no container can change it.
const BUFFER_BYTES: u64 = 4 * MIB;
/// Open files of the agent itself: pipes and streams for the most containers, commands and connections.
/// Containers have their own limit.
const AGENT_FILES: u64 = 65536;

/// Limits of a whole guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KernelLimits {
    threads: u64,
    /// Of one user. Also the number of pending signals, and of namespaces of one kind.
    processes: u64,
    open_files: u64,
    watches: u64,
    /// Not by the kernel's rule (128 for any computer), because all programs of a pod share them.
    inotify_instances: u64,
    epoll_watches: u64,
    /// Total pages of all sockets at which memory pressure begins.
    tcp_pages: u64,
    udp_pages: u64,
    /// Bytes of one socket.
    receive_bytes: u64,
    send_bytes: u64,
    /// Connections in TIME-WAIT or without an owner.
    ended_connections: u64,
    tracked_connections: u64,
    tracked_buckets: u64,
}

impl KernelLimits {
    /// Limits of a guest with this much memory.
    pub(crate) fn of(memory_bytes: u64) -> KernelLimits {
        let threads = (memory_bytes / (8 * STACK_BYTES)).clamp(20, PIDS_MAX);
        let pages = memory_bytes / PAGE_BYTES;
        let socket_bytes = memory_bytes / 128;
        let tracked_connections = match memory_bytes {
            _ if memory_bytes > 4 * GIB => 262_144,
            _ if memory_bytes > GIB => 65_536,
            _ => (memory_bytes / (16 * KIB) / 8).max(1024),
        };
        KernelLimits {
            threads,
            processes: threads / 2,
            open_files: (memory_bytes / KIB / 10).max(8192),
            watches: (memory_bytes / 100 / WATCH_BYTES).clamp(8192, 1 << 20),
            inotify_instances: (memory_bytes / (4 * MIB)).clamp(128, 8192),
            epoll_watches: memory_bytes / 25 / EPOLL_BYTES,
            tcp_pages: (pages / 16).max(128),
            udp_pages: (pages / 8).max(128),
            receive_bytes: socket_bytes.clamp(128 * KIB, 6 * MIB),
            send_bytes: socket_bytes.clamp(64 * KIB, 4 * MIB),
            ended_connections: (memory_bytes / (256 * KIB)).clamp(256, 262_144),
            tracked_connections,
            tracked_buckets: tracked_connections / 64,
        }
    }

    /// Threads of the whole guest.
    pub(crate) fn threads(&self) -> u64 {
        self.threads
    }

    /// The files below `/proc/sys`, with their values. The values of a file with several are in the file's
    /// order.
    fn settings(&self) -> Vec<(&'static str, Vec<u64>)> {
        let pages = |pressure: u64| vec![pressure / 4 * 3, pressure, pressure / 2 * 3];
        let mut settings = vec![
            // Every thread has a process id.
            ("kernel/pid_max", vec![self.threads.max(32_768)]),
            ("kernel/threads-max", vec![self.threads]),
            ("fs/file-max", vec![self.open_files]),
            ("fs/inotify/max_user_watches", vec![self.watches]),
            ("fs/inotify/max_user_instances", vec![self.inotify_instances]),
            ("fs/fanotify/max_user_marks", vec![self.watches]),
            ("fs/epoll/max_user_watches", vec![self.epoll_watches]),
            ("net/core/rmem_max", vec![BUFFER_BYTES]),
            ("net/core/wmem_max", vec![BUFFER_BYTES]),
            ("net/ipv4/tcp_mem", pages(self.tcp_pages)),
            ("net/ipv4/udp_mem", pages(self.udp_pages)),
            ("net/ipv4/tcp_rmem", vec![4096, 131_072, self.receive_bytes]),
            ("net/ipv4/tcp_wmem", vec![4096, 16_384, self.send_bytes]),
            ("net/ipv4/tcp_max_tw_buckets", vec![self.ended_connections]),
            ("net/ipv4/tcp_max_orphans", vec![self.ended_connections]),
            ("net/netfilter/nf_conntrack_buckets", vec![self.tracked_buckets]),
            ("net/netfilter/nf_conntrack_max", vec![self.tracked_connections]),
        ];
        let namespaces = [
            "user/max_cgroup_namespaces",
            "user/max_ipc_namespaces",
            "user/max_mnt_namespaces",
            "user/max_net_namespaces",
            "user/max_pid_namespaces",
            "user/max_time_namespaces",
            "user/max_user_namespaces",
            "user/max_uts_namespaces",
        ];
        settings.extend(namespaces.map(|file| (file, vec![self.processes])));
        settings
    }

    /// Raises all lower limits. If a limit cannot be raised, it stays, and the reason is logged.
    pub(crate) fn raise(&self) {
        for (file, values) in self.settings() {
            match raise_file(&Path::new("/proc/sys").join(file), &values) {
                Ok(()) => {}
                // This kernel lacks the file, or it is a limit of the whole guest seen from a pod's network.
                Err(error) if is_elsewhere(&error) => tracing::debug!(file, %error, "a limit is not here"),
                Err(error) => tracing::warn!(file, %error, "a limit cannot be raised"),
            }
        }
        // Every process started by the agent inherits these. A container has its own limit of open files.
        for (resource, least) in [
            (Resource::Nproc, self.processes),
            (Resource::Sigpending, self.processes),
            (Resource::Nofile, AGENT_FILES),
        ] {
            if let Err(error) = raise_resource(resource, least) {
                tracing::warn!(?resource, %error, "a limit cannot be raised");
            }
        }
    }
}

fn is_elsewhere(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied)
}

/// Raises each of the file's values to the given one, if it is lower.
fn raise_file(file: &Path, values: &[u64]) -> io::Result<()> {
    match raised(&fs::read_to_string(file)?, values) {
        Some(text) => fs::write(file, text),
        None => Ok(()),
    }
}

/// The new text of a file. `None` if no value is lower, or if the file has an unexpected format.
fn raised(now: &str, values: &[u64]) -> Option<String> {
    let now: Vec<u64> = now.split_whitespace().map(str::parse).collect::<Result<_, _>>().ok()?;
    let higher: Vec<u64> = now.iter().zip(values).map(|(now, value)| *now.max(value)).collect();
    let changes = now.len() == values.len() && higher != now;
    changes.then(|| higher.iter().map(u64::to_string).collect::<Vec<_>>().join(" "))
}

fn raise_resource(resource: Resource, least: u64) -> rustix::io::Result<()> {
    let now = getrlimit(resource);
    // `None` stands for no limit.
    let raised = |limit: Option<u64>| limit.map(|limit| limit.max(least));
    let wanted = Rlimit { current: raised(now.current), maximum: raised(now.maximum) };
    if wanted == now { Ok(()) } else { setrlimit(resource, wanted) }
}

/// The guest's current memory, in bytes.
pub(crate) fn memory_bytes() -> u64 {
    nix::sys::sysinfo::sysinfo().map_or(0, |info| info.ram_total())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn values(memory_bytes: u64) -> Vec<u64> {
        KernelLimits::of(memory_bytes).settings().into_iter().flat_map(|(_, values)| values).collect()
    }

    #[test]
    fn limits_are_those_of_a_computer_with_that_much_memory() {
        // Values of a Linux 6.12 with 4 GiB. The kernel reserves some percent before it computes them.
        let limits = KernelLimits::of(4 * GIB);
        assert_eq!((limits.threads, limits.processes), (32_768, 16_384));
        assert_eq!((limits.open_files, limits.watches), (419_430, 33_554));
        assert_eq!((limits.tcp_pages, limits.receive_bytes, limits.send_bytes), (65_536, 6 * MIB, 4 * MIB));
        assert_eq!((limits.ended_connections, limits.tracked_connections), (16_384, 65_536));
    }

    #[test]
    fn a_value_is_raised_and_never_lowered() {
        assert_eq!(raised("512\n", &[4096]).as_deref(), Some("4096"));
        assert_eq!(raised("4096\n", &[512]), None);
        assert_eq!(raised("4096\t131072\t6291456\n", &[4096, 65_536, 1]), None);
        assert_eq!(raised("1\t200\t3\n", &[10, 20, 30]).as_deref(), Some("10 200 30"));
        // Another kernel's file may have a different format.
        assert_eq!(raised("1 2\n", &[5]), None);
        assert_eq!(raised("max\n", &[5]), None);
    }

    proptest! {
        #[test]
        fn more_memory_never_means_less_of_anything(one: u64, other: u64) {
            let (less, more) = (values(one.min(other)), values(one.max(other)));
            prop_assert!(less.iter().zip(&more).all(|(less, more)| less <= more), "{less:?} {more:?}");
        }

        #[test]
        fn what_the_kernel_takes_in_an_int_fits_one(memory: u64) {
            let limits = KernelLimits::of(memory);
            let ints = [limits.threads, limits.watches, limits.inotify_instances, limits.receive_bytes,
                limits.send_bytes, limits.ended_connections, limits.tracked_connections];
            prop_assert!(ints.iter().all(|value| i32::try_from(*value).is_ok()), "{limits:?}");
        }
    }
}
