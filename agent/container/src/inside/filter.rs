//! The filter of system calls, from the specification's rules to a program for the kernel. The program is made before the process gives its
//! privileges away, and loaded by one system call.

use std::fs::File;
use std::io::{self, Read, Seek};

use libseccomp::error::SeccompError;
use libseccomp::{ScmpAction, ScmpArch, ScmpArgCompare, ScmpCompareOp, ScmpFilterContext, ScmpSyscall};
use oci_spec::runtime::{
    Arch, LinuxSeccomp, LinuxSeccompAction, LinuxSeccompArg, LinuxSeccompFilterFlag, LinuxSeccompOperator,
    LinuxSyscall,
};

use crate::launch::Failure;
use crate::syscall;

/// `SECCOMP_FILTER_FLAG_LOG` and `SECCOMP_FILTER_FLAG_SPEC_ALLOW`, include/uapi/linux/seccomp.h. The process has one thread, so that
/// `SECCOMP_FILTER_FLAG_TSYNC` would change nothing.
const FLAG_LOG: u64 = 1 << 1;
const FLAG_SPEC_ALLOW: u64 = 1 << 2;

/// A program for the kernel.
#[derive(Clone, Debug)]
pub(crate) struct Filter {
    program: Vec<u8>,
    flags: u64,
}

impl Filter {
    /// Makes the program of these rules.
    pub(crate) fn compile(rules: &LinuxSeccomp) -> Result<Filter, Failure> {
        compile(rules).map_err(|error| Failure::at("cannot compile the seccomp profile", &error))
    }

    /// Puts the process under the filter. It takes CAP_SYS_ADMIN, or `no_new_privs`.
    pub(super) fn load(&self) -> Result<(), Failure> {
        syscall::load_filter(&self.program, self.flags)
            .map_err(|error| Failure::at("cannot load the seccomp profile", &error))
    }
}

fn compile(rules: &LinuxSeccomp) -> io::Result<Filter> {
    let default = action(rules.default_action(), rules.default_errno_ret())?;
    let mut context = ScmpFilterContext::new(default).map_err(other)?;
    for &arch in rules.architectures().iter().flatten() {
        context.add_arch(architecture(arch)).map_err(other)?;
    }
    for rule in rules.syscalls().iter().flatten() {
        let action = action(rule.action(), rule.errno_ret())?;
        // A rule that does what is done anyway is none, and the library refuses it.
        if action != default {
            add(&mut context, rule, action)?;
        }
    }
    let mut file = File::from(rustix::fs::memfd_create("filter", rustix::fs::MemfdFlags::CLOEXEC)?);
    context.export_bpf(&file).map_err(other)?;
    file.rewind()?;
    let mut program = Vec::new();
    if !is_permissive(rules.default_action()) {
        program = newer_calls(last_call(rules));
    }
    file.read_to_end(&mut program)?;
    Ok(Filter { program, flags: flags(rules) })
}

fn is_permissive(default: LinuxSeccompAction) -> bool {
    matches!(
        default,
        LinuxSeccompAction::ScmpActAllow | LinuxSeccompAction::ScmpActLog | LinuxSeccompAction::ScmpActTrace
    )
}

/// The newest call that the rules name. Calls are numbered in the order in which the kernel got them.
fn last_call(rules: &LinuxSeccomp) -> u32 {
    let names = rules.syscalls().iter().flatten().flat_map(LinuxSyscall::names);
    let numbers = names.filter_map(|name| ScmpSyscall::from_name(name).ok()).map(i32::from);
    // Calls of other architectures have negative numbers.
    numbers.filter_map(|number| u32::try_from(number).ok()).max().unwrap_or_default()
}

/// Instructions before a filter that answer calls newer than `last` with ENOSYS: nobody has judged them, and programs that try them first
/// know what to do then. runc does so as well.
fn newer_calls(last: u32) -> Vec<u8> {
    // `struct sock_filter` and its codes, include/uapi/linux/filter.h and bpf_common.h; `struct seccomp_data`, seccomp.h.
    const LOAD_WORD: u16 = 0x20;
    const JUMP_IF_EQUAL: u16 = 0x15;
    const JUMP_IF_GREATER: u16 = 0x25;
    const RETURN: u16 = 0x06;
    const NUMBER: u32 = 0;
    const ARCHITECTURE: u32 = 4;
    const X86_64: u32 = 0xc000_003e;
    const ENOSYS: u32 = libc::SECCOMP_RET_ERRNO | libc::ENOSYS.cast_unsigned();
    let instructions: [(u16, u8, u8, u32); 5] = [
        (LOAD_WORD, 0, 0, ARCHITECTURE),
        (JUMP_IF_EQUAL, 0, 3, X86_64),
        (LOAD_WORD, 0, 0, NUMBER),
        (JUMP_IF_GREATER, 0, 1, last),
        (RETURN, 0, 0, ENOSYS),
    ];
    let bytes = instructions.iter().flat_map(|&(code, if_true, if_false, value)| {
        [&code.to_ne_bytes()[..], &[if_true, if_false], &value.to_ne_bytes()].concat()
    });
    bytes.collect()
}

fn flags(rules: &LinuxSeccomp) -> u64 {
    let flags = rules.flags().iter().flatten();
    flags.fold(0, |flags, flag| {
        flags
            | match flag {
                LinuxSeccompFilterFlag::SeccompFilterFlagLog => FLAG_LOG,
                LinuxSeccompFilterFlag::SeccompFilterFlagSpecAllow => FLAG_SPEC_ALLOW,
                // These are of a listener, and of other threads.
                LinuxSeccompFilterFlag::SeccompFilterFlagTsync
                | LinuxSeccompFilterFlag::SeccompFilterFlagWaitKillableRecv => 0,
            }
    })
}

/// Adds a rule for each of its calls. A call that the library does not know is none of this kernel's either.
fn add(context: &mut ScmpFilterContext, rule: &LinuxSyscall, action: ScmpAction) -> io::Result<()> {
    let arguments = rule.args().as_deref().unwrap_or_default();
    let comparisons: Vec<ScmpArgCompare> = arguments.iter().map(comparison).collect();
    let mut indices: Vec<usize> = arguments.iter().map(LinuxSeccompArg::index).collect();
    indices.sort_unstable();
    // The library takes each argument once for a rule; of one that is there twice runc makes alternatives.
    let has_doubles = indices.windows(2).any(|pair| pair[0] == pair[1]);
    for name in rule.names() {
        let Ok(call) = ScmpSyscall::from_name(name) else { continue };
        if has_doubles {
            for comparison in &comparisons {
                context.add_rule_conditional(action, call, &[*comparison]).map_err(other)?;
            }
        } else {
            context.add_rule_conditional(action, call, &comparisons).map_err(other)?;
        }
    }
    Ok(())
}

fn comparison(argument: &LinuxSeccompArg) -> ScmpArgCompare {
    let mask = argument.value();
    let operator = match argument.op() {
        LinuxSeccompOperator::ScmpCmpNe => ScmpCompareOp::NotEqual,
        LinuxSeccompOperator::ScmpCmpLt => ScmpCompareOp::Less,
        LinuxSeccompOperator::ScmpCmpLe => ScmpCompareOp::LessOrEqual,
        LinuxSeccompOperator::ScmpCmpEq => ScmpCompareOp::Equal,
        LinuxSeccompOperator::ScmpCmpGe => ScmpCompareOp::GreaterEqual,
        LinuxSeccompOperator::ScmpCmpGt => ScmpCompareOp::Greater,
        LinuxSeccompOperator::ScmpCmpMaskedEq => {
            let value = argument.value_two().unwrap_or_default();
            return ScmpArgCompare::new(index(argument), ScmpCompareOp::MaskedEqual(mask), value);
        }
    };
    ScmpArgCompare::new(index(argument), operator, mask)
}

fn index(argument: &LinuxSeccompArg) -> u32 {
    u32::try_from(argument.index()).unwrap_or(u32::MAX)
}

fn action(action: LinuxSeccompAction, errno: Option<u32>) -> io::Result<ScmpAction> {
    let number = errno.map_or(Ok(libc::EPERM), i32::try_from).map_err(io::Error::other)?;
    Ok(match action {
        LinuxSeccompAction::ScmpActKill | LinuxSeccompAction::ScmpActKillThread => ScmpAction::KillThread,
        LinuxSeccompAction::ScmpActKillProcess => ScmpAction::KillProcess,
        LinuxSeccompAction::ScmpActTrap => ScmpAction::Trap,
        LinuxSeccompAction::ScmpActErrno => ScmpAction::Errno(number),
        LinuxSeccompAction::ScmpActTrace => {
            ScmpAction::Trace(u16::try_from(number).map_err(io::Error::other)?)
        }
        LinuxSeccompAction::ScmpActAllow => ScmpAction::Allow,
        LinuxSeccompAction::ScmpActLog => ScmpAction::Log,
        LinuxSeccompAction::ScmpActNotify => {
            return Err(io::Error::other("SCMP_ACT_NOTIFY needs a listener, which a guest has not"));
        }
    })
}

fn architecture(arch: Arch) -> ScmpArch {
    match arch {
        Arch::ScmpArchNative => ScmpArch::Native,
        Arch::ScmpArchX86 => ScmpArch::X86,
        Arch::ScmpArchX86_64 => ScmpArch::X8664,
        Arch::ScmpArchX32 => ScmpArch::X32,
        Arch::ScmpArchArm => ScmpArch::Arm,
        Arch::ScmpArchAarch64 => ScmpArch::Aarch64,
        Arch::ScmpArchMips => ScmpArch::Mips,
        Arch::ScmpArchMips64 => ScmpArch::Mips64,
        Arch::ScmpArchMips64n32 => ScmpArch::Mips64N32,
        Arch::ScmpArchMipsel => ScmpArch::Mipsel,
        Arch::ScmpArchMipsel64 => ScmpArch::Mipsel64,
        Arch::ScmpArchMipsel64n32 => ScmpArch::Mipsel64N32,
        Arch::ScmpArchPpc => ScmpArch::Ppc,
        Arch::ScmpArchPpc64 => ScmpArch::Ppc64,
        Arch::ScmpArchPpc64le => ScmpArch::Ppc64Le,
        Arch::ScmpArchS390 => ScmpArch::S390,
        Arch::ScmpArchS390x => ScmpArch::S390X,
        Arch::ScmpArchRiscv64 => ScmpArch::Riscv64,
        Arch::ScmpArchParisc => ScmpArch::Parisc,
        Arch::ScmpArchParisc64 => ScmpArch::Parisc64,
        Arch::ScmpArchLoongarch64 => ScmpArch::Loongarch64,
        Arch::ScmpArchM68k => ScmpArch::M68k,
        Arch::ScmpArchSh => ScmpArch::Sh,
        Arch::ScmpArchSheb => ScmpArch::Sheb,
    }
}

fn other(error: SeccompError) -> io::Error {
    io::Error::other(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(json: serde_json::Value) -> LinuxSeccomp {
        serde_json::from_value(json).unwrap()
    }

    #[test]
    fn the_newest_call_of_all_rules_is_the_last_that_was_judged() {
        let rules = rules(serde_json::json!({ "defaultAction": "SCMP_ACT_ERRNO", "syscalls": [
            { "names": ["read", "no_such_call", "openat2"], "action": "SCMP_ACT_ALLOW" },
            { "names": ["clone3"], "action": "SCMP_ACT_ERRNO" },
        ] }));
        // openat2 is 437, clone3 435.
        assert_eq!(last_call(&rules), 437);
    }

    #[test]
    fn calls_that_nobody_has_judged_come_before_a_filter_that_refuses() {
        let compiled = |action: &str| {
            let rules = rules(serde_json::json!({ "defaultAction": action, "syscalls": [
                { "names": ["mkdir"], "action": "SCMP_ACT_KILL_PROCESS" },
            ] }));
            Filter::compile(&rules).unwrap().program
        };
        let head = newer_calls(83);
        assert_eq!(head.len(), 5 * 8);
        assert!(compiled("SCMP_ACT_ERRNO").starts_with(&head));
        assert!(!compiled("SCMP_ACT_ALLOW").starts_with(&head));
    }

    #[test]
    fn a_listener_is_refused_by_its_action() {
        let rules = rules(serde_json::json!({ "defaultAction": "SCMP_ACT_NOTIFY" }));
        assert!(Filter::compile(&rules).unwrap_err().message.contains("SCMP_ACT_NOTIFY"));
    }
}
