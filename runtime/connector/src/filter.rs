//! seccomp: the system calls allowed to the process. Any other call ends it, and the daemon sees the
//! connector end.

use std::collections::BTreeMap;

use libc::c_long;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    TargetArch,
};

const ALLOWED: &[c_long] = &[
    // The allocator.
    libc::SYS_brk,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_madvise,
    // Locks, and the end.
    libc::SYS_futex,
    libc::SYS_sched_yield,
    libc::SYS_gettid,
    libc::SYS_getpid,
    libc::SYS_exit,
    libc::SYS_exit_group,
    // Signals: Rust's stack overflow handler.
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sigaltstack,
    libc::SYS_restart_syscall,
    // Time and events.
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_gettimeofday,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_wait,
    libc::SYS_epoll_pwait,
    libc::SYS_poll,
    libc::SYS_ppoll,
    // Bytes.
    libc::SYS_read,
    libc::SYS_readv,
    libc::SYS_write,
    libc::SYS_writev,
    libc::SYS_close,
    // The socket's file. Nothing is opened for reading or writing, except by the allocator, which reads /proc
    // and /sys.
    libc::SYS_openat,
    libc::SYS_openat2,
    libc::SYS_fstat,
    libc::SYS_newfstatat,
    libc::SYS_sched_getaffinity,
    // Sockets.
    libc::SYS_connect,
    libc::SYS_recvmsg,
    libc::SYS_sendmsg,
    libc::SYS_recvfrom,
    libc::SYS_sendto,
    libc::SYS_shutdown,
    libc::SYS_getsockopt,
    libc::SYS_setsockopt,
    libc::SYS_getsockname,
    libc::SYS_getpeername,
    libc::SYS_getrandom,
];

/// Failure to install a filter.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub(crate) enum FilterError {
    #[error("cannot build the seccomp filter")]
    Build(#[from] seccompiler::BackendError),
    #[error("cannot install the seccomp filter")]
    Install(#[from] seccompiler::Error),
}

/// Installs the filter on the calling thread, the only one.
pub(crate) fn filter_this_thread() -> Result<(), FilterError> {
    let program = program(SeccompAction::KillProcess)?;
    Ok(seccompiler::apply_filter(&program)?)
}

/// `otherwise` is the action for a forbidden call.
fn program(otherwise: SeccompAction) -> Result<BpfProgram, seccompiler::BackendError> {
    let mut rules: BTreeMap<c_long, Vec<SeccompRule>> =
        ALLOWED.iter().map(|&call| (call, Vec::new())).collect();
    // Unix sockets, and no others.
    rules.insert(libc::SYS_socket, vec![equal(0, libc::AF_UNIX as u64)?]);
    rules.insert(libc::SYS_ioctl, vec![equal(1, libc::FIONBIO)?]);
    // No memory becomes a program.
    for call in [libc::SYS_mmap, libc::SYS_mprotect] {
        rules.insert(call, vec![SeccompRule::new(vec![without(2, libc::PROT_EXEC)?])?]);
    }
    // No signal is sent by a descriptor: no F_SETOWN, no F_SETSIG, no O_ASYNC.
    let commands = [libc::F_GETFD, libc::F_SETFD, libc::F_GETFL, libc::F_DUPFD_CLOEXEC];
    let mut commands: Vec<SeccompRule> =
        commands.into_iter().map(|command| equal(1, command as u64)).collect::<Result<_, _>>()?;
    let set_flags =
        SeccompCondition::new(1, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, libc::F_SETFL as u64)?;
    commands.push(SeccompRule::new(vec![set_flags, without(2, libc::O_ASYNC)?])?);
    rules.insert(libc::SYS_fcntl, commands);
    // A panic's abort.
    rules.insert(libc::SYS_tgkill, vec![equal(0, u64::from(std::process::id()))?]);
    SeccompFilter::new(rules, otherwise, SeccompAction::Allow, TargetArch::x86_64)?.try_into()
}

/// The argument `index` has none of these bits.
fn without(index: u8, bits: libc::c_int) -> Result<SeccompCondition, seccompiler::BackendError> {
    SeccompCondition::new(index, SeccompCmpArgLen::Qword, SeccompCmpOp::MaskedEq(bits as u64), 0)
}

/// Allows a call if its argument `index` is `value`.
fn equal(index: u8, value: u64) -> Result<SeccompRule, seccompiler::BackendError> {
    let condition = SeccompCondition::new(index, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, value)?;
    SeccompRule::new(vec![condition])
}

#[cfg(test)]
mod tests {
    use nix::errno::Errno;
    use nix::fcntl::{FcntlArg, OFlag, fcntl};

    use super::*;

    #[test]
    fn a_descriptor_sends_no_signals() {
        // In a thread of its own: the filter cannot be removed.
        let tried = std::thread::spawn(|| {
            let (pipe, _end) = std::io::pipe().unwrap();
            let program = program(SeccompAction::Errno(nix::libc::EPERM.unsigned_abs())).unwrap();
            seccompiler::apply_filter(&program).unwrap();
            let flags = [OFlag::O_NONBLOCK, OFlag::O_NONBLOCK | OFlag::O_ASYNC];
            let set = flags.map(|flags| fcntl(&pipe, FcntlArg::F_SETFL(flags)).err());
            (set, fcntl(&pipe, FcntlArg::F_SETPIPE_SZ(4096)).err())
        });
        assert_eq!(tried.join().unwrap(), ([None, Some(Errno::EPERM)], Some(Errno::EPERM)));
    }
}
