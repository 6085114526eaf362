//! The default seccomp profile. Calls outside the list fail with EPERM.

use oci_spec::runtime::{
    Arch, LinuxSeccomp, LinuxSeccompAction, LinuxSeccompArgBuilder, LinuxSeccompBuilder,
    LinuxSeccompOperator, LinuxSyscall, LinuxSyscallBuilder,
};

use super::syscalls::{ALLOWED, BY_CAPABILITY};
use crate::ContainerSecurity;
use crate::capabilities::capabilities;

const EPERM: u32 = 1;
const ENOSYS: u32 = 38;

/// CLONE_NEW{CGROUP,UTS,IPC,USER,PID,NET,NS}: new namespaces need CAP_SYS_ADMIN.
const CLONE_NEW: u64 = 0x7e02_0000;

/// The harmless values of personality(2): the default, 32-bit, UNAME26 and query.
const PERSONALITIES: [u64; 5] = [0x0, 0x8, 0x2_0000, 0x2_0008, 0xffff_ffff];

/// AF_ALG, refused because it gives access to the kernel's ciphers without any right
/// (`include/linux/socket.h`).
const AF_ALG: u64 = 38;

/// AF_VSOCK, refused because such a socket bypasses the network and reaches the VMM.
const AF_VSOCK: u64 = 40;

/// The profile for a container with these capabilities.
pub(super) fn runtime_default(security: &ContainerSecurity) -> LinuxSeccomp {
    let effective = capabilities(security).ok().and_then(|sets| sets.effective().clone()).unwrap_or_default();
    let has = |name: &str| effective.iter().any(|capability| capability.to_string() == name);
    let mut syscalls = vec![allow(ALLOWED)];
    for (capability, names) in BY_CAPABILITY {
        if has(capability) {
            syscalls.push(allow(names));
        }
    }
    for value in PERSONALITIES {
        syscalls.push(allow_if(&["personality"], 0, LinuxSeccompOperator::ScmpCmpEq, value, None));
    }
    // Below, between and above the refused ones. Two conditions of inequality in one rule would be
    // alternatives.
    for (op, family) in [
        (LinuxSeccompOperator::ScmpCmpLt, AF_ALG),
        (LinuxSeccompOperator::ScmpCmpEq, AF_ALG + 1),
        (LinuxSeccompOperator::ScmpCmpGt, AF_VSOCK),
    ] {
        syscalls.push(allow_if(&["socket"], 0, op, family, None));
    }
    if !has("SYS_ADMIN") {
        let masked = LinuxSeccompOperator::ScmpCmpMaskedEq;
        syscalls.push(allow_if(&["clone"], 0, masked, CLONE_NEW, Some(0)));
        // Its flags lie in memory, out of a filter's reach. ENOSYS makes C libraries use clone.
        syscalls.push(
            LinuxSyscallBuilder::default()
                .names(vec!["clone3".to_owned()])
                .action(LinuxSeccompAction::ScmpActErrno)
                .errno_ret(ENOSYS)
                .build()
                .expect("all needed fields are set"),
        );
    }
    LinuxSeccompBuilder::default()
        .default_action(LinuxSeccompAction::ScmpActErrno)
        .default_errno_ret(EPERM)
        .architectures(vec![Arch::ScmpArchX86_64, Arch::ScmpArchX86, Arch::ScmpArchX32])
        .syscalls(syscalls)
        .build()
        .expect("all needed fields are set")
}

fn allow(names: &[&str]) -> LinuxSyscall {
    LinuxSyscallBuilder::default()
        .names(names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>())
        .action(LinuxSeccompAction::ScmpActAllow)
        .build()
        .expect("all needed fields are set")
}

fn allow_if(
    names: &[&str],
    index: usize,
    op: LinuxSeccompOperator,
    value: u64,
    value_two: Option<u64>,
) -> LinuxSyscall {
    let mut arg = LinuxSeccompArgBuilder::default().index(index).value(value).op(op);
    if let Some(second) = value_two {
        arg = arg.value_two(second);
    }
    let arg = arg.build().expect("all needed fields are set");
    let mut rule = allow(names);
    rule.set_args(Some(vec![arg]));
    rule
}
