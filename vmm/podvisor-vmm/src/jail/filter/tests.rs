//! The filters' answers, by an interpreter of their instructions.

use super::*;

/// The program's answer to a call: `SECCOMP_RET_…`.
fn answer(thread: Thread, call: c_long, arguments: [u64; 6]) -> u32 {
    let program = program(thread).unwrap();
    let number = u32::try_from(call).unwrap();
    // `struct seccomp_data`: number, architecture, instruction pointer, arguments.
    let words: Vec<u32> = [number, 0xc000_003e, 0, 0]
        .into_iter()
        .chain(arguments.iter().flat_map(|argument| [*argument as u32, (*argument >> 32) as u32]))
        .collect();
    let (mut at, mut accumulator) = (0, 0);
    loop {
        let sock_filter { code, jt, jf, k } = program[at];
        let jump = |taken| 1 + usize::from(if taken { jt } else { jf });
        at += match code {
            0x20 => {
                accumulator = words[k as usize / 4];
                1
            }
            0x54 => {
                accumulator &= k;
                1
            }
            0x05 => 1 + k as usize,
            0x15 => jump(accumulator == k),
            0x25 => jump(accumulator > k),
            0x35 => jump(accumulator >= k),
            0x06 => return k,
            other => panic!("no such instruction is known: {other:#x}"),
        };
    }
}

const KILL: u32 = 0x8000_0000;
const ALLOW: u32 = 0x7fff_0000;

fn both(call: c_long, arguments: &[u64]) -> [u32; 2] {
    let mut all = [0; 6];
    all[..arguments.len()].copy_from_slice(arguments);
    [Thread::Control, Thread::Share].map(|thread| answer(thread, call, all))
}

#[test]
fn no_signal_goes_to_a_process_by_a_descriptor() {
    for command in [libc::F_SETOWN, 10, 15, libc::F_NOTIFY, libc::F_SETLEASE] {
        assert_eq!(both(libc::SYS_fcntl, &[3, command as u64, 1]), [KILL; 2], "fcntl {command}");
    }
    let asynchronous = (libc::O_ASYNC | libc::O_NONBLOCK) as u64;
    assert_eq!(both(libc::SYS_fcntl, &[3, libc::F_SETFL as u64, asynchronous]), [KILL; 2]);
    assert_eq!(both(libc::SYS_fcntl, &[3, libc::F_SETFL as u64, libc::O_NONBLOCK as u64]), [ALLOW; 2]);
    // FIOASYNC, FIOSETOWN, SIOCSPGRP.
    for number in [0x5452, 0x8901, 0x8902] {
        assert_eq!(both(libc::SYS_ioctl, &[3, number, 1]), [KILL; 2], "ioctl {number:#x}");
    }
    assert_eq!(both(libc::SYS_kill, &[1, 9]), [KILL; 2]);
    assert_eq!(both(libc::SYS_tgkill, &[1, 1, 9]), [KILL; 2]);
}

#[test]
fn both_read_and_write_contents_and_the_share_at_places_alone() {
    for call in [libc::SYS_preadv, libc::SYS_pwritev] {
        assert_eq!(both(call, &[3]), [ALLOW; 2], "{call}");
    }
    for call in [libc::SYS_read, libc::SYS_write, libc::SYS_readv, libc::SYS_writev, libc::SYS_sendto] {
        assert_eq!(both(call, &[3]), [ALLOW, KILL], "{call}");
    }
}

#[test]
fn threads_are_started_and_no_processes() {
    assert_eq!(both(libc::SYS_clone, &[0x3d_0f00]), [ALLOW; 2]);
    assert_eq!(both(libc::SYS_clone, &[libc::SIGCHLD as u64]), [KILL; 2]);
    assert_eq!(both(libc::SYS_clone, &[0x3d_0f00 | libc::CLONE_NEWUSER as u64]), [KILL; 2]);
    assert_eq!(both(libc::SYS_clone, &[0x3d_0f00 | 1 << 32]), [KILL; 2]);
    assert_eq!(both(libc::SYS_clone3, &[]), [0x0005_0000 | libc::ENOSYS as u32; 2]);
    assert_eq!(both(libc::SYS_execve, &[]), [KILL; 2]);
    assert_eq!(both(libc::SYS_unshare, &[libc::CLONE_NEWUSER as u64]), [KILL; 2]);
    assert_eq!(both(libc::SYS_unshare, &[libc::CLONE_FS as u64]), [KILL, ALLOW]);
}

#[test]
fn no_memory_becomes_a_program() {
    for call in [libc::SYS_mmap, libc::SYS_mprotect] {
        assert_eq!(both(call, &[0, 4096, 3]), [ALLOW; 2]);
        assert_eq!(both(call, &[0, 4096, 7]), [KILL; 2]);
    }
    assert_eq!(both(libc::SYS_madvise, &[0, 4096, libc::MADV_MERGEABLE as u64]), [KILL; 2]);
}

#[test]
fn a_newer_c_library_may_guard_the_stacks_of_threads() {
    // MADV_GUARD_INSTALL and MADV_GUARD_REMOVE of include/uapi/asm-generic/mman-common.h.
    for advice in [102, 103] {
        assert_eq!(both(libc::SYS_madvise, &[0, 4096, advice]), [ALLOW; 2]);
    }
}

#[test]
fn kvm_makes_no_vm_and_a_tap_stays_what_it_is() {
    // KVM_RUN is allowed, KVM_CREATE_VM and TUNSETIFF are not.
    assert_eq!(both(libc::SYS_ioctl, &[3, 0xae80]), [ALLOW, KILL]);
    // Interrupts are the VMM's to raise.
    assert_eq!(both(libc::SYS_ioctl, &[3, 0x4008_ae61]), [ALLOW, KILL]);
    assert_eq!(both(libc::SYS_ioctl, &[3, 0xae01]), [KILL; 2]);
    assert_eq!(both(libc::SYS_ioctl, &[3, 0x4004_54ca]), [KILL; 2]);
}

#[test]
fn only_the_share_opens_files() {
    assert_eq!(both(libc::SYS_openat, &[]), [0x0005_0000 | libc::ENOENT as u32, ALLOW]);
    assert_eq!(both(libc::SYS_open, &[]), [KILL; 2]);
    assert_eq!(both(libc::SYS_socket, &[libc::AF_UNIX as u64]), [KILL; 2]);
}

#[test]
fn only_the_share_sends_descriptors_and_only_to_the_vmm() {
    assert_eq!(both(libc::SYS_recvmsg, &[3]), [ALLOW; 2]);
    assert_eq!(both(libc::SYS_sendmsg, &[3]), [KILL, ALLOW]);
    assert_eq!(both(libc::SYS_sendmmsg, &[3]), [KILL; 2]);
    let packets = (libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC) as u64;
    assert_eq!(both(libc::SYS_socketpair, &[libc::AF_UNIX as u64, packets]), [KILL, ALLOW]);
    assert_eq!(both(libc::SYS_socketpair, &[libc::AF_INET as u64, packets]), [KILL; 2]);
    for kind in [libc::SOCK_STREAM, libc::SOCK_DGRAM] {
        assert_eq!(both(libc::SYS_socketpair, &[libc::AF_UNIX as u64, kind as u64]), [KILL; 2]);
    }
}
