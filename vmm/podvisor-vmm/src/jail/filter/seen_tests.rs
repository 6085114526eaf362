//! The lists, compared with the calls that end-to-end tests were seen to make: `seen.txt`, printed by
//! `tests/suite/seen-calls`. What is allowed and was not seen has its reason here.

use std::collections::BTreeSet;

use super::calls::Argument;
use super::*;

const SEEN: &str = include_str!("seen.txt");

/// Calls that were not seen.
const UNSEEN: &[(Thread, &[c_long], &str)] = &[
    (Thread::Control, ALLOCATOR, "the allocator's, by the sizes that it is asked for"),
    (Thread::Share, ALLOCATOR, "the same"),
    (Thread::Share, &[libc::SYS_brk, libc::SYS_sched_yield], "the allocator's and the threads', under load"),
    (Thread::Control, &[libc::SYS_restart_syscall], "the kernel's, after SIGSTOP and SIGCONT or the freezer"),
    (Thread::Share, &[libc::SYS_restart_syscall, libc::SYS_rt_sigreturn], "the same"),
    (
        Thread::Control,
        &[libc::SYS_clock_gettime, libc::SYS_gettimeofday],
        "if the node's clock is not the TSC",
    ),
    (Thread::Share, &[libc::SYS_clock_gettime], "the same"),
    (
        Thread::Share,
        &[libc::SYS_fchmod],
        "the library's for an open file; guests of ours name none with a mode",
    ),
    (
        Thread::Share,
        &[libc::SYS_preadv, libc::SYS_pwritev],
        "for files of a hostPath /proc, and files with set-id bits: a test has them since the last count",
    ),
    (Thread::Share, &[libc::SYS_flistxattr, libc::SYS_fremovexattr], "no program of the tests asks for them"),
];

const ALLOCATOR: &[c_long] = &[libc::SYS_mremap];

/// Commands and advice that were not seen, by call.
const UNSEEN_ARGUMENTS: &[(Thread, &str, &[u64], &str)] = &[
    (Thread::Control, "ioctl", &[0x9000_aecf], "KVM_GET_XSAVE2: for processors with AMX"),
    (Thread::Control, "ioctl", &[0x1268, 0x1277, 0x127f, 0x8008_1272], "block devices of the node"),
    (Thread::Control, "madvise", &[23], "MADV_POPULATE_WRITE: for kernels without KVM_PRE_FAULT_MEMORY"),
    (Thread::Control, "madvise", &[102, 103], "glibc from 2.42 on"),
    (Thread::Share, "madvise", &[102, 103], "glibc from 2.42 on"),
    (Thread::Share, "fcntl", &[36], "F_OFD_GETLK: no program of the tests asks for a lock in the way"),
];

fn seen(thread: Thread, kind: &str) -> BTreeSet<u64> {
    let process = match thread {
        Thread::Control => "vmm",
        Thread::Share => "share",
    };
    let number = |text: &str| match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).unwrap(),
        None => text.parse().unwrap(),
    };
    let of_line = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        (words[..2] == [process, kind]).then(|| number(words[2]))
    };
    SEEN.lines().filter_map(of_line).collect()
}

/// The calls of a kind of thread, and the conditions on their arguments.
fn lists(thread: Thread) -> (&'static [c_long], &'static [(c_long, &'static [Argument])]) {
    match thread {
        Thread::Control => (calls::VMM, calls::VMM_ARGUMENTS),
        Thread::Share => (calls::FILES, calls::FILES_ARGUMENTS),
    }
}

#[test]
fn what_is_allowed_was_seen_or_has_a_reason() {
    for thread in [Thread::Control, Thread::Share] {
        let seen: BTreeSet<c_long> =
            seen(thread, "call").into_iter().map(|call| c_long::try_from(call).unwrap()).collect();
        assert!(seen.len() > 50, "{thread:?}: the file is read");
        let (own, arguments) = lists(thread);
        let conditional = calls::ARGUMENTS.iter().chain(arguments).map(|(call, _)| call);
        let allowed: BTreeSet<c_long> = calls::ALL.iter().chain(own).chain(conditional).copied().collect();
        let of_thread = UNSEEN.iter().filter(|(of, ..)| *of == thread);
        let reasoned: BTreeSet<c_long> = of_thread.flat_map(|(_, calls, _)| *calls).copied().collect();
        let unseen: BTreeSet<c_long> = allowed.difference(&seen).copied().collect();
        assert_eq!(unseen, reasoned, "{thread:?}: not seen, and those with a reason");
    }
}

#[test]
fn arguments_that_are_allowed_were_seen_or_have_a_reason() {
    for thread in [Thread::Control, Thread::Share] {
        let (_, arguments) = lists(thread);
        for (kind, call) in [
            ("ioctl", libc::SYS_ioctl),
            ("fcntl", libc::SYS_fcntl),
            ("madvise", libc::SYS_madvise),
            ("futex", libc::SYS_futex),
            ("prctl", libc::SYS_prctl),
        ] {
            let of_call = calls::ARGUMENTS.iter().chain(arguments).filter(|(of, _)| *of == call);
            let allowed: BTreeSet<u64> = of_call
                .flat_map(|(_, conditions)| conditions.first())
                .flat_map(|condition| match condition {
                    Argument::OneOf(_, values) => *values,
                    other => panic!("{kind} has {other:?} first"),
                })
                .copied()
                .collect();
            let of_kind = UNSEEN_ARGUMENTS.iter().filter(|(of, name, ..)| *of == thread && *name == kind);
            let reasoned: BTreeSet<u64> = of_kind.flat_map(|(_, _, values, _)| *values).copied().collect();
            let unseen: BTreeSet<u64> = allowed.difference(&seen(thread, kind)).copied().collect();
            assert_eq!(unseen, reasoned, "{kind} of {thread:?}: not seen, and those with a reason");
        }
    }
}
