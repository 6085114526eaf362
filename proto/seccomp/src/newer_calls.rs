//! Refuses system calls newer than all calls named in the rules, with ENOSYS. The rules' author could not
//! judge them, and programs handle ENOSYS for new calls. runc does the same.

use libseccomp::{ScmpArch, ScmpSyscall};
use oci_spec::runtime::{Arch, LinuxSeccomp, LinuxSyscall};

use crate::instruction::{
    ARCHITECTURE, I386, Instruction, JUMP_IF_EQUAL, JUMP_IF_GREATER, LOAD_WORD, NUMBER, RETURN, X86_64,
};

/// `SECCOMP_RET_ERRNO` with ENOSYS.
const NO_SUCH_CALL: u32 = 0x0005_0000 | 38;

/// Architectures of programs supported by a guest's kernel.
const ARCHITECTURES: [(ScmpArch, u32); 2] = [(ScmpArch::X8664, X86_64), (ScmpArch::X86, I386)];

/// Returns instructions for the front of a filter. They answer calls newer than the newest one in these
/// rules. Architectures refused by the rules as a whole are left out.
pub(crate) fn refused(rules: &LinuxSeccomp) -> Vec<u8> {
    let also = rules.architectures().as_deref().unwrap_or_default();
    let judged = ARCHITECTURES.iter().filter(|(architecture, ..)| match architecture {
        ScmpArch::X86 => also.contains(&Arch::ScmpArchX86),
        _ => true,
    });
    judged.flat_map(|&(architecture, audit)| part(audit, last_call(rules, architecture))).collect()
}

/// Five instructions for one architecture. Execution continues behind them for all other calls.
fn part(audit: u32, last: u32) -> Vec<u8> {
    let jump = |code, if_true, if_false, value| Instruction { code, if_true, if_false, value };
    let instructions = [
        Instruction::plain(LOAD_WORD, ARCHITECTURE),
        jump(JUMP_IF_EQUAL, 0, 3, audit),
        Instruction::plain(LOAD_WORD, NUMBER),
        jump(JUMP_IF_GREATER, 0, 1, last),
        Instruction::plain(RETURN, NO_SUCH_CALL),
    ];
    instructions.into_iter().flat_map(Instruction::to_bytes).collect()
}

/// The newest call named in the rules. The kernel numbers calls in the order of their introduction.
fn last_call(rules: &LinuxSeccomp, architecture: ScmpArch) -> u32 {
    let names = rules.syscalls().iter().flatten().flat_map(LinuxSyscall::names);
    let numbers = names.filter_map(|name| ScmpSyscall::from_name_by_arch(name, architecture).ok());
    // Calls of other architectures have negative numbers.
    numbers.filter_map(|number| u32::try_from(i32::from(number)).ok()).max().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_call_of_all_rules_is_the_last_that_was_judged() {
        let rules =
            serde_json::from_value(serde_json::json!({ "defaultAction": "SCMP_ACT_ERRNO", "syscalls": [
            { "names": ["read", "no_such_call", "openat2"], "action": "SCMP_ACT_ALLOW" },
            { "names": ["clone3", "arch_prctl"], "action": "SCMP_ACT_ERRNO" },
        ] }));
        let rules = rules.unwrap();
        // openat2 is 437 for both, clone3 435.
        assert_eq!(ARCHITECTURES.map(|(architecture, _)| last_call(&rules, architecture)), [437, 437]);
    }
}
