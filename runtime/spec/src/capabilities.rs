//! Capability sets.

use std::collections::HashSet;
use std::str::FromStr;

use oci_spec::runtime::{Capabilities, Capability, LinuxCapabilities, LinuxCapabilitiesBuilder};

use crate::{ContainerSecurity, SpecError};

/// Capabilities of a container that asks for no others: the set that Kubernetes users are used to.
const DEFAULT: [Capability; 14] = [
    Capability::Chown,
    Capability::DacOverride,
    Capability::Fsetid,
    Capability::Fowner,
    Capability::Mknod,
    Capability::NetRaw,
    Capability::Setgid,
    Capability::Setuid,
    Capability::Setfcap,
    Capability::Setpcap,
    Capability::NetBindService,
    Capability::SysChroot,
    Capability::Kill,
    Capability::AuditWrite,
];

/// Every capability that Linux 6.12 knows.
const ALL: [Capability; 41] = [
    Capability::AuditControl,
    Capability::AuditRead,
    Capability::AuditWrite,
    Capability::BlockSuspend,
    Capability::Bpf,
    Capability::CheckpointRestore,
    Capability::Chown,
    Capability::DacOverride,
    Capability::DacReadSearch,
    Capability::Fowner,
    Capability::Fsetid,
    Capability::IpcLock,
    Capability::IpcOwner,
    Capability::Kill,
    Capability::Lease,
    Capability::LinuxImmutable,
    Capability::MacAdmin,
    Capability::MacOverride,
    Capability::Mknod,
    Capability::NetAdmin,
    Capability::NetBindService,
    Capability::NetBroadcast,
    Capability::NetRaw,
    Capability::Perfmon,
    Capability::Setgid,
    Capability::Setfcap,
    Capability::Setpcap,
    Capability::Setuid,
    Capability::SysAdmin,
    Capability::SysBoot,
    Capability::SysChroot,
    Capability::SysModule,
    Capability::SysNice,
    Capability::SysPacct,
    Capability::SysPtrace,
    Capability::SysRawio,
    Capability::SysResource,
    Capability::SysTime,
    Capability::SysTtyConfig,
    Capability::Syslog,
    Capability::WakeAlarm,
];

/// The sets for a container. Inheritable stays empty: a program that drops root cannot get them back
/// through file capabilities.
pub(crate) fn capabilities(security: &ContainerSecurity) -> Result<LinuxCapabilities, SpecError> {
    let wishes = &security.capabilities;
    let (add_all, add) = parse(&wishes.add)?;
    let (drop_all, drop) = parse(&wishes.drop)?;
    let (ambient_all, ambient) = parse(&wishes.add_ambient)?;
    let mut set: Capabilities = DEFAULT.into();
    if add_all || security.privileged {
        set = ALL.into();
    }
    if drop_all && !security.privileged {
        set.clear();
    }
    set.extend(add.iter().copied());
    if !security.privileged {
        set.retain(|capability| !drop.contains(capability));
    }
    let ambient: Capabilities = if ambient_all { ALL.into() } else { ambient };
    set.extend(ambient.iter().copied());
    LinuxCapabilitiesBuilder::default()
        .bounding(set.clone())
        .effective(set.clone())
        .permitted(set)
        .inheritable(ambient.clone())
        .ambient(ambient)
        .build()
        .map_err(|error| SpecError::invalid("security_context.capabilities", error.to_string()))
}

/// Whether `ALL` is among the names, and the others.
fn parse(names: &[String]) -> Result<(bool, Capabilities), SpecError> {
    let mut all = false;
    let mut set = HashSet::new();
    for name in names {
        let upper = name.to_ascii_uppercase();
        let bare = upper.strip_prefix("CAP_").unwrap_or(&upper);
        if bare == "ALL" {
            all = true;
            continue;
        }
        let capability = Capability::from_str(bare).map_err(|_| {
            SpecError::invalid("security_context.capabilities", format!("{name:?} is no capability"))
        })?;
        set.insert(capability);
    }
    Ok((all, set))
}
