//! Other processes of the node: signals, their memory, their scheduling, and new ones.

use crate::attempt::{Attempt, BOTH, VCPU, attempt, change};
use crate::hand::{Hand, Refusal, Tried};
use crate::node::{Bystander, Node};

pub(super) const ALL: &[Attempt] = &[
    attempt("kill a process", BOTH, kill),
    attempt("kill a thread", BOTH, kill_thread),
    attempt("kill by a process descriptor", BOTH, kill_by_descriptor),
    change("kill by the owner of a descriptor", BOTH, kill_by_owner),
    attempt("trace a process", BOTH, trace),
    attempt("read a process's memory", BOTH, read_memory),
    attempt("read a process's environment", BOTH, read_environment),
    attempt("take a process's descriptor", BOTH, take_descriptor),
    attempt("lower a process's priority", BOTH, lower_priority),
    attempt("bind a process to a processor", BOTH, bind_to_processor),
    attempt("change a process's limits", BOTH, change_limits),
    change("send a descriptor", VCPU, send_descriptor),
    change("start a process", BOTH, start),
    change("execute a program", BOTH, execute),
];

const SIGKILL: u64 = libc::SIGKILL as u64;

fn dies(mut bystander: Bystander) -> Tried {
    if bystander.is_dead()? { Ok(()) } else { Err(Refusal::NoEffect) }
}

fn kill(hand: &mut Hand, node: &Node) -> Tried {
    let bystander = node.bystander()?;
    hand.call(libc::SYS_kill, &[bystander.pid(), SIGKILL])?;
    dies(bystander)
}

fn kill_thread(hand: &mut Hand, node: &Node) -> Tried {
    let bystander = node.bystander()?;
    hand.call(libc::SYS_tgkill, &[bystander.pid(), bystander.pid(), SIGKILL])?;
    dies(bystander)
}

fn kill_by_descriptor(hand: &mut Hand, node: &Node) -> Tried {
    let bystander = node.bystander()?;
    let process = hand.call(libc::SYS_pidfd_open, &[bystander.pid(), 0])?;
    hand.call(libc::SYS_pidfd_send_signal, &[process, SIGKILL, 0, 0])?;
    dies(bystander)
}

/// Sets a descriptor to send signals to its owner (fcntl(2)). A byte sends one.
fn kill_by_owner(hand: &mut Hand, node: &Node) -> Tried {
    /// `F_SETSIG` (include/uapi/asm-generic/fcntl.h).
    const SET_SIGNAL: i32 = 10;
    let bystander = node.bystander()?;
    let own = |hand: &mut Hand, descriptor| -> Tried {
        for (command, value) in [
            (libc::F_SETOWN, bystander.pid()),
            (SET_SIGNAL, SIGKILL),
            (libc::F_SETFL, (libc::O_ASYNC | libc::O_NONBLOCK) as u64),
        ] {
            hand.call(libc::SYS_fcntl, &[descriptor, command.cast_unsigned().into(), value])?;
        }
        Ok(())
    };
    // A descriptor that is there needs no other call.
    let present = hand.sockets()?.first().copied().ok_or(Refusal::NoEffect)?;
    own(hand, present)?;
    let pair = hand.put(&[0; 8])?;
    hand.call(libc::SYS_socketpair, &[libc::AF_UNIX as u64, libc::SOCK_STREAM as u64, 0, pair])?;
    let ends = hand.get(pair, 8)?;
    let end = |index: usize| u64::from(ends[index]) | u64::from(ends[index + 1]) << 8;
    own(hand, end(0))?;
    let byte = hand.text("x")?;
    hand.call(libc::SYS_write, &[end(4), byte, 1])?;
    dies(bystander)
}

fn trace(hand: &mut Hand, node: &Node) -> Tried {
    const SEIZE: u64 = 0x4206;
    let bystander = node.bystander()?;
    hand.call(libc::SYS_ptrace, &[SEIZE, bystander.pid(), 0, 0]).map(drop)
}

fn read_memory(hand: &mut Hand, node: &Node) -> Tried {
    let bystander = node.bystander()?;
    let mapped = stack(&bystander)?;
    let room = hand.put(&[0; 16])?;
    let here = hand.put(&[room, 16].map(u64::to_le_bytes).concat())?;
    let there = hand.put(&[mapped, 16].map(u64::to_le_bytes).concat())?;
    let read = hand.call(libc::SYS_process_vm_readv, &[bystander.pid(), here, 1, there, 1, 0])?;
    if read > 0 { Ok(()) } else { Err(Refusal::NoEffect) }
}

/// Address of memory of the process's.
fn stack(bystander: &Bystander) -> anyhow::Result<u64> {
    let maps = std::fs::read_to_string(format!("/proc/{}/maps", bystander.pid()))?;
    let stack =
        maps.lines().find(|line| line.ends_with("[stack]")).and_then(|line| line.split(['-', ' ']).nth(1));
    let Some(end) = stack else { anyhow::bail!("the bystander has no stack") };
    Ok(u64::from_str_radix(end, 16)? - 16)
}

fn read_environment(hand: &mut Hand, node: &Node) -> Tried {
    let bystander = node.bystander()?;
    let path = format!("/proc/{}/environ", bystander.pid());
    let file = hand.open(&path, libc::O_RDONLY)?;
    let room = hand.put(&[0; 64])?;
    let read = hand.call(libc::SYS_read, &[file, room, 64])?;
    if read > 0 { Ok(()) } else { Err(Refusal::NoEffect) }
}

fn take_descriptor(hand: &mut Hand, node: &Node) -> Tried {
    let bystander = node.bystander()?;
    let process = hand.call(libc::SYS_pidfd_open, &[bystander.pid(), 0])?;
    hand.call(libc::SYS_pidfd_getfd, &[process, 0, 0]).map(drop)
}

/// Sends a descriptor to whoever is at the other end of a socket. The receiver's close of it may wait.
fn send_descriptor(hand: &mut Hand, _: &Node) -> Tried {
    let byte = hand.text("x")?;
    let part = hand.put(&[byte, 1].map(u64::to_le_bytes).concat())?;
    // `struct cmsghdr`: length, level, type, and the descriptor.
    let rights = [20, 0, libc::SOL_SOCKET, libc::SCM_RIGHTS, 0, 0].map(i32::to_le_bytes).concat();
    let rights_bytes = rights.len() as u64;
    let rights = hand.put(&rights)?;
    // `struct msghdr`: name, parts, control data, and flags.
    let message = hand.put(&[0, 0, part, 1, rights, rights_bytes, 0].map(u64::to_le_bytes).concat())?;
    let flags = (libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT).cast_unsigned();
    for socket in hand.sockets()? {
        match hand.call(libc::SYS_sendmsg, &[socket, message, flags.into()]) {
            // A socket without another end.
            Err(Refusal::Error(_)) => {}
            sent => return sent.map(drop),
        }
    }
    Err(Refusal::NoEffect)
}

fn lower_priority(hand: &mut Hand, node: &Node) -> Tried {
    let bystander = node.bystander()?;
    let process = libc::PRIO_PROCESS;
    hand.call(libc::SYS_setpriority, &[process.into(), bystander.pid(), 19]).map(drop)
}

fn bind_to_processor(hand: &mut Hand, node: &Node) -> Tried {
    let bystander = node.bystander()?;
    let first = hand.put(&1u64.to_le_bytes())?;
    hand.call(libc::SYS_sched_setaffinity, &[bystander.pid(), 8, first]).map(drop)
}

fn change_limits(hand: &mut Hand, node: &Node) -> Tried {
    let bystander = node.bystander()?;
    let few = hand.put(&[3u64, 3].map(u64::to_le_bytes).concat())?;
    let descriptors = libc::RLIMIT_NOFILE;
    hand.call(libc::SYS_prlimit64, &[bystander.pid(), descriptors.into(), few, 0]).map(drop)
}

/// A process that would outlive its VM.
fn start(hand: &mut Hand, _: &Node) -> Tried {
    hand.call(libc::SYS_clone, &[libc::SIGCHLD as u64, 0, 0, 0, 0]).map(drop)
}

/// The node's own program, or else a file of the volume.
fn execute(hand: &mut Hand, node: &Node) -> Tried {
    let [on_node, below_root] = node.volumes();
    let paths = ["/bin/true".to_owned(), format!("{on_node}/program"), format!("{below_root}/program")];
    match hand.first(&paths, |hand, path| hand.call(libc::SYS_execve, &[path, 0, 0])) {
        Err(Refusal::Replaced) => Ok(()),
        other => other.map(drop),
    }
}
