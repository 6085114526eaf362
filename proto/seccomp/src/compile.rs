//! Compiles rules to a program, with the same library as runc.

use std::fs::File;
use std::io::{Read, Seek};

use libseccomp::{ScmpAction, ScmpArch, ScmpArgCompare, ScmpCompareOp, ScmpFilterContext, ScmpSyscall};
use oci_spec::runtime::{
    Arch, LinuxSeccomp, LinuxSeccompAction, LinuxSeccompArg, LinuxSeccompFilterFlag, LinuxSeccompOperator,
    LinuxSyscall,
};

use crate::ranges::by_ranges;
use crate::{Filter, FilterError, INSTRUCTION_BYTES, PROGRAM_BYTES_MAX, newer_calls};

/// `SECCOMP_FILTER_FLAG_LOG` and `SECCOMP_FILTER_FLAG_SPEC_ALLOW`, include/uapi/linux/seccomp.h. A filter's
/// loading process has one thread, so `SECCOMP_FILTER_FLAG_TSYNC` would change nothing.
const FLAG_LOG: u64 = 1 << 1;
const FLAG_SPEC_ALLOW: u64 = 1 << 2;

/// `SCMP_FLTATR_CTL_OPTIMIZE`: calls are found by a binary tree instead of one comparison after another. The
/// kernel itself runs a new filter once for each existing call (`seccomp_cache_prepare`, kernel/seccomp.c).
const BINARY_TREE: u32 = 2;

/// Default error number of a rule: EPERM.
const EPERM: u32 = 1;

impl Filter {
    /// Makes the program of these rules.
    ///
    /// # Errors
    /// The rules need a listener, are too long for the kernel, or are refused by the library.
    pub fn compile(rules: &LinuxSeccomp) -> Result<Filter, FilterError> {
        let filter = Filter::compile_as(rules, BINARY_TREE)?;
        Ok(match by_ranges(&filter.program) {
            Some(program) => Filter { program, ..filter },
            None => filter,
        })
    }

    /// Makes the library's own program. `order` is a value of `SCMP_FLTATR_CTL_OPTIMIZE`.
    pub(crate) fn compile_as(rules: &LinuxSeccomp, order: u32) -> Result<Filter, FilterError> {
        let default = action(rules.default_action(), rules.default_errno_ret())?;
        let mut context = ScmpFilterContext::new(default)?;
        context.set_ctl_optimize(order)?;
        for &arch in rules.architectures().iter().flatten() {
            context.add_arch(architecture(arch))?;
        }
        for rule in rules.syscalls().iter().flatten() {
            let action = action(rule.action(), rule.errno_ret())?;
            // A rule with the default action has no effect, and the library refuses it.
            if action != default {
                add(&mut context, rule, action)?;
            }
        }
        let permissive = is_permissive(rules.default_action());
        let mut program = if permissive { Vec::new() } else { newer_calls::refused(rules) };
        append(&context, &mut program)?;
        if program.len() > PROGRAM_BYTES_MAX {
            return Err(FilterError::TooLong(program.len() / INSTRUCTION_BYTES));
        }
        Ok(Filter { program, flags: flags(rules) })
    }
}

/// Appends the library's program.
fn append(context: &ScmpFilterContext, program: &mut Vec<u8>) -> Result<(), FilterError> {
    let memory = rustix::fs::memfd_create("filter", rustix::fs::MemfdFlags::CLOEXEC);
    let mut file = File::from(memory.map_err(std::io::Error::from)?);
    context.export_bpf(&file)?;
    file.rewind()?;
    file.read_to_end(program)?;
    Ok(())
}

fn is_permissive(default: LinuxSeccompAction) -> bool {
    matches!(
        default,
        LinuxSeccompAction::ScmpActAllow | LinuxSeccompAction::ScmpActLog | LinuxSeccompAction::ScmpActTrace
    )
}

/// Without a list of flags, the rules leave the processor's speculation unchanged, as in runc: disabling it
/// would cost programs more than the filter itself.
fn flags(rules: &LinuxSeccomp) -> u64 {
    let Some(flags) = rules.flags() else { return FLAG_SPEC_ALLOW };
    flags.iter().fold(0, |flags, flag| {
        flags
            | match flag {
                LinuxSeccompFilterFlag::SeccompFilterFlagLog => FLAG_LOG,
                LinuxSeccompFilterFlag::SeccompFilterFlagSpecAllow => FLAG_SPEC_ALLOW,
                // These belong to a listener, and to other threads.
                LinuxSeccompFilterFlag::SeccompFilterFlagTsync
                | LinuxSeccompFilterFlag::SeccompFilterFlagWaitKillableRecv => 0,
            }
    })
}

/// Adds a rule for each of its calls. This kernel has no call unknown to the library.
fn add(context: &mut ScmpFilterContext, rule: &LinuxSyscall, action: ScmpAction) -> Result<(), FilterError> {
    let arguments = rule.args().as_deref().unwrap_or_default();
    let comparisons: Vec<ScmpArgCompare> = arguments.iter().map(comparison).collect();
    let mut indices: Vec<usize> = arguments.iter().map(LinuxSeccompArg::index).collect();
    indices.sort_unstable();
    // The library accepts each argument once per rule. If one occurs twice, runc makes alternatives.
    let has_doubles = indices.windows(2).any(|pair| pair[0] == pair[1]);
    for name in rule.names() {
        let Ok(call) = ScmpSyscall::from_name(name) else { continue };
        if has_doubles {
            for comparison in &comparisons {
                context.add_rule_conditional(action, call, &[*comparison])?;
            }
        } else {
            context.add_rule_conditional(action, call, &comparisons)?;
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

fn action(action: LinuxSeccompAction, errno: Option<u32>) -> Result<ScmpAction, FilterError> {
    let number = errno.unwrap_or(EPERM);
    let too_large = |_| FilterError::ErrorNumber(number);
    Ok(match action {
        LinuxSeccompAction::ScmpActKill | LinuxSeccompAction::ScmpActKillThread => ScmpAction::KillThread,
        LinuxSeccompAction::ScmpActKillProcess => ScmpAction::KillProcess,
        LinuxSeccompAction::ScmpActTrap => ScmpAction::Trap,
        LinuxSeccompAction::ScmpActErrno => {
            ScmpAction::Errno(u16::try_from(number).map_err(too_large)?.into())
        }
        LinuxSeccompAction::ScmpActTrace => ScmpAction::Trace(u16::try_from(number).map_err(too_large)?),
        LinuxSeccompAction::ScmpActAllow => ScmpAction::Allow,
        LinuxSeccompAction::ScmpActLog => ScmpAction::Log,
        LinuxSeccompAction::ScmpActNotify => return Err(FilterError::Listener),
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

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(json: serde_json::Value) -> LinuxSeccomp {
        serde_json::from_value(json).unwrap()
    }

    #[test]
    fn a_listener_and_a_large_error_number_are_refused() {
        let compiled = |json| Filter::compile(&rules(json)).unwrap_err().to_string();
        let listener = serde_json::json!({ "defaultAction": "SCMP_ACT_NOTIFY" });
        assert!(compiled(listener).contains("SCMP_ACT_NOTIFY"));
        let number = serde_json::json!({ "defaultAction": "SCMP_ACT_ERRNO", "defaultErrnoRet": 65_536 });
        assert!(compiled(number).contains("65536"));
    }

    #[test]
    fn more_than_the_kernel_takes_is_refused() {
        let many: Vec<_> = (0..5000)
            .map(|value| {
                serde_json::json!({ "names": ["prctl"], "action": "SCMP_ACT_ALLOW",
                "args": [{ "index": 1, "value": value, "op": "SCMP_CMP_EQ" }] })
            })
            .collect();
        let refused = Filter::compile(&rules(
            serde_json::json!({ "defaultAction": "SCMP_ACT_ERRNO", "syscalls": many }),
        ));
        assert!(matches!(refused, Err(FilterError::TooLong(_))));
    }

    #[test]
    fn rules_without_flags_leave_speculation_alone() {
        let flags = |json| Filter::compile(&rules(json)).unwrap().flags;
        assert_eq!(flags(serde_json::json!({ "defaultAction": "SCMP_ACT_ALLOW" })), FLAG_SPEC_ALLOW);
        assert_eq!(flags(serde_json::json!({ "defaultAction": "SCMP_ACT_ALLOW", "flags": [] })), 0);
    }
}
