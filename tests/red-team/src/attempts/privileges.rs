//! More rights than the process has.

use crate::attempt::{Attempt, BOTH, SHARE, VCPU, attempt, change};
use crate::hand::{Hand, Refusal, Tried};
use crate::node::Node;

pub(super) const ALL: &[Attempt] = &[
    change("become root", VCPU, become_root),
    change("take all capabilities", BOTH, take_capabilities),
    change("enter a user namespace", BOTH, enter_user_namespace),
    change("enter a mount namespace", BOTH, enter_mount_namespace),
    change("enter the node's namespace", BOTH, enter_nodes_namespace),
    change("raise a limit", BOTH, raise_limit),
    change("run in real time", BOTH, run_in_real_time),
    change("read and write disks in real time", BOTH, use_disks_in_real_time),
    attempt("map executable memory", BOTH, map_program),
    attempt("leave a key to the node's root", SHARE, leave_key),
];

fn become_root(hand: &mut Hand, _: &Node) -> Tried {
    hand.call(libc::SYS_setresuid, &[0, 0, 0]).map(drop)
}

fn take_capabilities(hand: &mut Hand, _: &Node) -> Tried {
    /// `_LINUX_CAPABILITY_VERSION_3`, and CAP_SYS_ADMIN in the first word.
    const VERSION: u32 = 0x2008_0522;
    const ADMIN: u32 = 1 << 21;
    let header = hand.put(&[VERSION, 0].map(u32::to_le_bytes).concat())?;
    let sets = hand.put(&[ADMIN, ADMIN, 0, 0, 0, 0].map(u32::to_le_bytes).concat())?;
    hand.call(libc::SYS_capset, &[header, sets]).map(drop)
}

fn enter_user_namespace(hand: &mut Hand, _: &Node) -> Tried {
    hand.call(libc::SYS_clone, &[(libc::CLONE_NEWUSER | libc::SIGCHLD) as u64, 0, 0, 0, 0]).map(drop)
}

fn enter_mount_namespace(hand: &mut Hand, _: &Node) -> Tried {
    hand.call(libc::SYS_unshare, &[libc::CLONE_NEWNS as u64]).map(drop)
}

fn enter_nodes_namespace(hand: &mut Hand, _: &Node) -> Tried {
    let network = hand.open("/proc/1/ns/net", libc::O_RDONLY)?;
    hand.call(libc::SYS_setns, &[network, libc::CLONE_NEWNET as u64]).map(drop)
}

fn raise_limit(hand: &mut Hand, _: &Node) -> Tried {
    let limit = hand.put(&[1_000_000u64, 1_000_000].map(u64::to_le_bytes).concat())?;
    hand.call(libc::SYS_prlimit64, &[0, libc::RLIMIT_NOFILE.into(), limit, 0]).map(drop)
}

fn run_in_real_time(hand: &mut Hand, _: &Node) -> Tried {
    let priority = hand.put(&99u32.to_le_bytes())?;
    hand.call(libc::SYS_sched_setscheduler, &[0, libc::SCHED_FIFO as u64, priority]).map(drop)
}

fn use_disks_in_real_time(hand: &mut Hand, _: &Node) -> Tried {
    /// `IOPRIO_WHO_PROCESS`, and `IOPRIO_CLASS_RT` (include/uapi/linux/ioprio.h).
    const PROCESS: u64 = 1;
    const REAL_TIME: u64 = 1 << 13;
    hand.call(libc::SYS_ioprio_set, &[PROCESS, 0, REAL_TIME]).map(drop)
}

fn map_program(hand: &mut Hand, _: &Node) -> Tried {
    let access = (libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC) as u64;
    let kind = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS) as u64;
    hand.call(libc::SYS_mmap, &[0, 4096, access, kind, u64::MAX, 0]).map(drop)
}

/// A key in root's own keyring (keyrings(7)).
fn leave_key(hand: &mut Hand, _: &Node) -> Tried {
    /// `KEY_SPEC_USER_KEYRING`.
    const OF_USER: u64 = -4i64 as u64;
    let (kind, name, content) = (hand.text("user")?, hand.text("red-team")?, hand.text("content")?);
    let key = hand.call(libc::SYS_add_key, &[kind, name, content, 7, OF_USER])?;
    if key > 0 { Ok(()) } else { Err(Refusal::NoEffect) }
}
