//! Capability sets.

use std::str::FromStr;

use oci_spec::runtime::{Capabilities, Capability, LinuxCapabilities, LinuxCapabilitiesBuilder};

use crate::{ContainerSecurity, SpecError};

/// Capabilities of a container without a request for others: the set familiar to Kubernetes users.
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

/// Every capability of Linux 6.12.
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

/// The sets for a container. Inheritable stays empty: after dropping root, a program cannot regain them
/// through file capabilities.
pub(crate) fn capabilities(security: &ContainerSecurity) -> Result<LinuxCapabilities, SpecError> {
    let wishes = &security.capabilities;
    let (add_all, add) = parse(&wishes.add);
    let (drop_all, drop) = parse(&wishes.drop);
    let (ambient_all, ambient) = parse(&wishes.add_ambient);
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

/// Returns whether `ALL` is among the names, and the other names.
fn parse(names: &[String]) -> (bool, Capabilities) {
    let parsed = || names.iter().filter_map(|name| Wish::of(name));
    let all = parsed().any(|wish| wish == Wish::All);
    let set = parsed().filter_map(|wish| match wish {
        Wish::All => None,
        Wish::One(capability) => Some(capability),
    });
    (all, set.collect())
}

/// A name in a list of capabilities.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wish {
    All,
    One(Capability),
}

impl Wish {
    /// With or without `CAP_`, in any case.
    fn of(name: &str) -> Option<Wish> {
        let upper = name.to_ascii_uppercase();
        let bare = upper.strip_prefix("CAP_").unwrap_or(&upper);
        if bare == "ALL" { Some(Wish::All) } else { Capability::from_str(bare).ok().map(Wish::One) }
    }
}

impl ContainerSecurity {
    /// Names of capabilities unknown to the guest's kernel. A container is created without them, as with
    /// runc: a manifest may name capabilities of another kernel.
    pub fn unknown_capabilities(&self) -> Vec<&str> {
        let wishes = &self.capabilities;
        let names = wishes.add.iter().chain(&wishes.drop).chain(&wishes.add_ambient);
        names.map(String::as_str).filter(|name| Wish::of(name).is_none()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_the_kernel_does_not_know_are_left_out_and_reported() {
        let mut security = ContainerSecurity::default();
        security.capabilities.add = vec!["FLY".into(), "cap_net_admin".into(), String::new()];
        security.capabilities.drop = vec!["CAP_KILL".into(), "SWIM".into()];
        assert_eq!(security.unknown_capabilities(), ["FLY", "", "SWIM"]);
        let sets = capabilities(&security).unwrap();
        let bounding = sets.bounding().clone().unwrap();
        assert!(bounding.contains(&Capability::NetAdmin) && !bounding.contains(&Capability::Kill));
        assert_eq!(bounding.len(), DEFAULT.len());
    }
}
