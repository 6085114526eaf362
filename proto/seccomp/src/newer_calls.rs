//! Calls that are newer than all that the rules name: nobody has judged them, and programs that try them first know what ENOSYS means.
//! runc does so as well.

use libseccomp::{ScmpArch, ScmpSyscall};
use oci_spec::runtime::{Arch, LinuxSeccomp, LinuxSyscall};

// `struct sock_filter` and its codes, include/uapi/linux/filter.h and bpf_common.h; offsets of `struct seccomp_data`, seccomp.h.
const LOAD_WORD: u16 = 0x20;
const JUMP_IF_EQUAL: u16 = 0x15;
const JUMP_IF_GREATER: u16 = 0x25;
const RETURN: u16 = 0x06;
const NUMBER: u32 = 0;
const ARCHITECTURE: u32 = 4;
// `AUDIT_ARCH_X86_64` and `AUDIT_ARCH_I386`, include/uapi/linux/audit.h.
const X86_64: u32 = 0xc000_003e;
const I386: u32 = 0x4000_0003;
/// `SECCOMP_RET_ERRNO` with ENOSYS.
const NO_SUCH_CALL: u32 = 0x0005_0000 | 38;

/// The architectures that a guest's kernel runs programs of.
const ARCHITECTURES: [(ScmpArch, u32); 2] = [(ScmpArch::X8664, X86_64), (ScmpArch::X86, I386)];

/// Instructions in front of a filter, which answer calls newer than the newest that these rules name. They leave out architectures that
/// the rules refuse altogether.
pub(crate) fn refused(rules: &LinuxSeccomp) -> Vec<u8> {
    let also = rules.architectures().as_deref().unwrap_or_default();
    let judged = ARCHITECTURES.iter().filter(|(architecture, ..)| match architecture {
        ScmpArch::X86 => also.contains(&Arch::ScmpArchX86),
        _ => true,
    });
    judged.flat_map(|&(architecture, audit)| part(audit, last_call(rules, architecture))).collect()
}

/// For one architecture: five instructions, behind which comes whatever follows.
fn part(audit: u32, last: u32) -> Vec<u8> {
    let instructions: [(u16, u8, u8, u32); 5] = [
        (LOAD_WORD, 0, 0, ARCHITECTURE),
        (JUMP_IF_EQUAL, 0, 3, audit),
        (LOAD_WORD, 0, 0, NUMBER),
        (JUMP_IF_GREATER, 0, 1, last),
        (RETURN, 0, 0, NO_SUCH_CALL),
    ];
    let bytes = instructions.iter().flat_map(|&(code, if_true, if_false, value)| {
        [&code.to_ne_bytes()[..], &[if_true, if_false], &value.to_ne_bytes()].concat()
    });
    bytes.collect()
}

/// The newest call that the rules name. Calls are numbered in the order in which the kernel got them.
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
