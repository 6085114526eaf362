//! The node's kernel itself. Calls that would end the node are made with senseless arguments: an answer about
//! these shows that the caller has the right.

use nix::errno::Errno;

use crate::attempt::{Attempt, BOTH, attempt};
use crate::hand::{Hand, Refusal, Tried};
use crate::node::Node;

pub(super) const ALL: &[Attempt] = &[
    attempt("load a module", BOTH, load_module),
    attempt("remove a module", BOTH, remove_module),
    attempt("load another kernel", BOTH, load_kernel),
    attempt("restart the node", BOTH, restart),
    attempt("set the clock", BOTH, set_clock),
    attempt("rename the node", BOTH, rename),
    attempt("read the kernel's log", BOTH, read_log),
    attempt("stop accounting", BOTH, stop_accounting),
    attempt("swap to a file", BOTH, swap),
    attempt("load a BPF program's map", BOTH, load_map),
    attempt("count the node's events", BOTH, count_events),
    attempt("handle the kernel's page faults", BOTH, handle_faults),
    attempt("set up an I/O ring", BOTH, set_up_ring),
];

/// Takes an error about an argument for success.
fn reached(result: Tried<u64>, about_argument: Errno) -> Tried {
    match result {
        Err(Refusal::Error(error)) if error == about_argument => Ok(()),
        other => other.map(drop),
    }
}

fn load_module(hand: &mut Hand, _: &Node) -> Tried {
    let (module, options) = (hand.put(&[0; 256])?, hand.text("")?);
    reached(hand.call(libc::SYS_init_module, &[module, 256, options]), Errno::ENOEXEC)
}

fn remove_module(hand: &mut Hand, _: &Node) -> Tried {
    let name = hand.text("red_team_has_no_module")?;
    reached(hand.call(libc::SYS_delete_module, &[name, libc::O_NONBLOCK as u64]), Errno::ENOENT)
}

fn load_kernel(hand: &mut Hand, _: &Node) -> Tried {
    /// More segments than `KEXEC_SEGMENT_MAX`.
    const SEGMENTS: u64 = 1000;
    reached(hand.call(libc::SYS_kexec_load, &[0, SEGMENTS, 0, 0]), Errno::EINVAL)
}

fn restart(hand: &mut Hand, _: &Node) -> Tried {
    reached(hand.call(libc::SYS_reboot, &[0, 0, 0, 0]), Errno::EINVAL)
}

/// Sets neither time nor zone.
fn set_clock(hand: &mut Hand, _: &Node) -> Tried {
    hand.call(libc::SYS_settimeofday, &[0, 0]).map(drop)
}

fn rename(hand: &mut Hand, _: &Node) -> Tried {
    let before = nix::unistd::gethostname().unwrap_or_default();
    let name = hand.text("red-team")?;
    let result = hand.call(libc::SYS_sethostname, &[name, 8]).map(drop);
    let _ = nix::unistd::sethostname(before);
    result
}

fn read_log(hand: &mut Hand, _: &Node) -> Tried {
    /// `SYSLOG_ACTION_READ_CLEAR` would clear it; this only reads.
    const READ_ALL: u64 = 3;
    let room = hand.put(&[0; 256])?;
    hand.call(libc::SYS_syslog, &[READ_ALL, room, 256]).map(drop)
}

fn stop_accounting(hand: &mut Hand, _: &Node) -> Tried {
    hand.call(libc::SYS_acct, &[0]).map(drop)
}

fn swap(hand: &mut Hand, _: &Node) -> Tried {
    let file = hand.text("/red-team-has-no-file")?;
    reached(hand.call(libc::SYS_swapon, &[file, 0]), Errno::ENOENT)
}

fn load_map(hand: &mut Hand, _: &Node) -> Tried {
    /// `BPF_MAP_CREATE`; an array with one entry, keys of four bytes and values of eight.
    const CREATE: u64 = 0;
    let attributes = hand.put(&[2u32, 4, 8, 1, 0].map(u32::to_le_bytes).concat())?;
    hand.call(libc::SYS_bpf, &[CREATE, attributes, 20]).map(drop)
}

/// A software clock of processor 0, for all processes.
fn count_events(hand: &mut Hand, _: &Node) -> Tried {
    const SOFTWARE: u32 = 1;
    const SIZE: u32 = 64;
    let mut attributes = [SOFTWARE, SIZE].map(u32::to_le_bytes).concat();
    attributes.resize(64, 0);
    let attributes = hand.put(&attributes)?;
    hand.call(libc::SYS_perf_event_open, &[attributes, u64::MAX, 0, u64::MAX, 0]).map(drop)
}

fn handle_faults(hand: &mut Hand, _: &Node) -> Tried {
    hand.call(libc::SYS_userfaultfd, &[0]).map(drop)
}

fn set_up_ring(hand: &mut Hand, _: &Node) -> Tried {
    let parameters = hand.put(&[0; 120])?;
    hand.call(libc::SYS_io_uring_setup, &[1, parameters]).map(drop)
}
