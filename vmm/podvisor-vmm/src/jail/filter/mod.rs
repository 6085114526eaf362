//! seccomp: the system calls and arguments allowed to threads. One list ([`calls`], [`ioctls`]) is for all
//! threads of the VMM. Another is for the threads of the share's process, because they work on files. Any
//! other call ends the process. The daemon sees a VMM killed by SIGSYS.
//!
//! A thread inherits the filters of its creator. The control thread starts the vCPU threads. A vCPU starts
//! the threads of a device when the driver activates it. A call needed by a device is therefore allowed to
//! vCPUs and to the control thread too. No thread adds another filter: the kernel would run each of them
//! for every entry into the guest.

mod calls;
mod ioctls;

use std::collections::BTreeMap;

use libc::c_long;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    TargetArch, sock_filter,
};

use calls::Argument;

/// Kind of a thread, by its filter. Errors name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Thread {
    /// The control loop, builder of the VM, and all threads started from it: vCPUs and the devices' own.
    Control,
    /// All threads of the share's process.
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

/// Installs the filter on the calling thread.
pub(crate) fn filter_this_thread(thread: Thread) -> Result<(), FilterError> {
    let program = program(thread).map_err(|source| FilterError::Build { thread, source })?;
    seccompiler::apply_filter(&program).map_err(|source| FilterError::Install { thread, source })
}

fn program(thread: Thread) -> Result<BpfProgram, seccompiler::BackendError> {
    let (own, arguments, refused): (&[_], &[_], &[_]) = match thread {
        Thread::Control => (calls::VMM, calls::VMM_ARGUMENTS, calls::VMM_REFUSED),
        Thread::Share => (calls::FILES, calls::FILES_ARGUMENTS, &[]),
    };
    let mut rules: BTreeMap<c_long, Vec<SeccompRule>> =
        calls::ALL.iter().chain(own).map(|&call| (call, Vec::new())).collect();
    for &(call, arguments) in calls::ARGUMENTS.iter().chain(arguments) {
        rules.entry(call).or_default().extend(alternatives(arguments)?);
    }
    // Signals to threads of this process only.
    let own =
        SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, u64::from(std::process::id()))?;
    rules.insert(libc::SYS_tgkill, vec![SeccompRule::new(vec![own])?]);
    let filter =
        SeccompFilter::new(rules, SeccompAction::KillProcess, SeccompAction::Allow, TargetArch::x86_64)?;
    let allowed: BpfProgram = filter.try_into()?;
    let refused = calls::REFUSED.iter().chain(refused).flat_map(|&(call, error)| refusal(call, error));
    Ok(refused.chain(allowed).collect())
}

/// Returns the rules for a call with these arguments. A call has to match one of them.
fn alternatives(arguments: &[Argument]) -> Result<Vec<SeccompRule>, seccompiler::BackendError> {
    let mut rules: Vec<Vec<SeccompCondition>> = vec![Vec::new()];
    for argument in arguments {
        let choices = choices(*argument)?;
        let with = |rule: &Vec<SeccompCondition>| {
            let rule = rule.clone();
            choices
                .iter()
                .map(move |choice| [&rule[..], std::slice::from_ref(choice)].concat())
                .collect::<Vec<_>>()
        };
        rules = rules.iter().flat_map(with).collect();
    }
    rules.into_iter().map(SeccompRule::new).collect()
}

fn choices(argument: Argument) -> Result<Vec<SeccompCondition>, seccompiler::BackendError> {
    use SeccompCmpArgLen::{Dword, Qword};
    use SeccompCmpOp::{Eq, MaskedEq};
    match argument {
        Argument::OneOf(index, values) => {
            values.iter().map(|&value| SeccompCondition::new(index, Dword, Eq, value)).collect()
        }
        Argument::Is(index, value) => Ok(vec![SeccompCondition::new(index, Qword, Eq, value)?]),
        Argument::Without(index, bits) => Ok(vec![SeccompCondition::new(index, Qword, MaskedEq(bits), 0)?]),
        Argument::Only(index, bits) => Ok(vec![SeccompCondition::new(index, Qword, MaskedEq(!bits), 0)?]),
    }
}

/// Returns instructions for the front of a program, to make a call fail. The library knows only one outcome
/// beside "allowed".
fn refusal(call: c_long, error: libc::c_int) -> [sock_filter; 3] {
    // Codes of include/uapi/linux/bpf_common.h; the number is first in `struct seccomp_data`.
    let instruction = |code, jt, jf, k| sock_filter { code, jt, jf, k };
    let error = SeccompAction::Errno(error.unsigned_abs());
    [
        instruction(0x20, 0, 0, 0),
        instruction(0x15, 0, 1, u32::try_from(call).unwrap_or_default()),
        instruction(0x06, 0, 0, error.into()),
    ]
}

#[cfg(test)]
mod seen_tests;
#[cfg(test)]
mod tests;
