//! The identity of a process: user, groups, capabilities.

use nix::unistd::{Gid, Uid, setgroups, setresgid, setresuid};
use oci_spec::runtime::{Capabilities, Capability, LinuxCapabilities, Process};
use rustix::io::Errno;
use rustix::thread::{
    CapabilitySet, CapabilitySets, capability_is_in_bounding_set, clear_ambient_capability_set,
    configure_capability_in_ambient_set, remove_capability_from_bounding_set, set_capabilities,
    set_keep_capabilities, set_no_new_privs,
};

use crate::launch::Failure;

/// Most capabilities to check: those of a 64-bit set. The kernel reports the end of its own.
const CAPABILITIES_MAX: u32 = 64;

/// Becomes the process's user with its capabilities. `lend_admin` leaves CAP_SYS_ADMIN until execve(2), for
/// loading a filter. execve(2) drops it unless the bounding or the ambient set has it (capabilities(7)).
pub(super) fn become_user(process: &Process, lend_admin: bool) -> Result<(), Failure> {
    let failed = |what: &'static str| move |error: std::io::Error| Failure::at(what, &error);
    let none = LinuxCapabilities::default();
    let wanted = process.capabilities().as_ref().unwrap_or(&none);
    let set =
        |capabilities: &Option<Capabilities>| capabilities.as_ref().map_or(CapabilitySet::empty(), bits);
    let capabilities = "cannot set the capabilities";
    let bounding = set(wanted.bounding());
    bound(bounding).map_err(|errno| failed(capabilities)(errno.into()))?;
    let change = |errno: Errno| failed(capabilities)(errno.into());
    set_keep_capabilities(true).map_err(change)?;
    become_ids(process).map_err(|errno| failed("cannot become the user")(errno.into()))?;
    set_keep_capabilities(false).map_err(change)?;
    let lent = if lend_admin { CapabilitySet::SYS_ADMIN } else { CapabilitySet::empty() };
    let inheritable = set(wanted.inheritable());
    let sets = CapabilitySets {
        effective: set(wanted.effective()) | lent,
        permitted: set(wanted.permitted()) | lent,
        inheritable,
    };
    set_capabilities(None, sets).map_err(change)?;
    clear_ambient_capability_set().map_err(change)?;
    for one in set(wanted.ambient()).iter() {
        configure_capability_in_ambient_set(one, true).map_err(change)?;
    }
    if process.no_new_privileges() == Some(true) {
        set_no_new_privs(true).map_err(|errno| failed("cannot set no_new_privs")(errno.into()))?;
    }
    Ok(())
}

/// Gives up every capability of the calling thread, for good.
///
/// # Errors
/// The kernel refuses.
pub fn give_up_capabilities() -> rustix::io::Result<()> {
    bound(CapabilitySet::empty())?;
    let none = CapabilitySet::empty();
    set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })?;
    clear_ambient_capability_set()?;
    set_no_new_privs(true)
}

fn become_ids(process: &Process) -> nix::Result<()> {
    let user = process.user();
    let groups: Vec<Gid> = user.additional_gids().iter().flatten().map(|gid| Gid::from_raw(*gid)).collect();
    setgroups(&groups)?;
    let (uid, gid) = (Uid::from_raw(user.uid()), Gid::from_raw(user.gid()));
    setresgid(gid, gid, gid)?;
    setresuid(uid, uid, uid)
}

/// Drops all other capabilities from the bounding set.
fn bound(wanted: CapabilitySet) -> rustix::io::Result<()> {
    for number in 0..CAPABILITIES_MAX {
        let one = CapabilitySet::from_bits_retain(1 << number);
        match capability_is_in_bounding_set(one) {
            // The kernel has no such capability, and none above.
            Err(Errno::INVAL) => break,
            Ok(true) if !wanted.contains(one) => remove_capability_from_bounding_set(one)?,
            other => drop(other?),
        }
    }
    Ok(())
}

fn bits(capabilities: &Capabilities) -> CapabilitySet {
    capabilities.iter().fold(CapabilitySet::empty(), |set, one| set | bit(*one))
}

fn bit(capability: Capability) -> CapabilitySet {
    match capability {
        Capability::AuditControl => CapabilitySet::AUDIT_CONTROL,
        Capability::AuditRead => CapabilitySet::AUDIT_READ,
        Capability::AuditWrite => CapabilitySet::AUDIT_WRITE,
        Capability::BlockSuspend => CapabilitySet::BLOCK_SUSPEND,
        Capability::Bpf => CapabilitySet::BPF,
        Capability::CheckpointRestore => CapabilitySet::CHECKPOINT_RESTORE,
        Capability::Chown => CapabilitySet::CHOWN,
        Capability::DacOverride => CapabilitySet::DAC_OVERRIDE,
        Capability::DacReadSearch => CapabilitySet::DAC_READ_SEARCH,
        Capability::Fowner => CapabilitySet::FOWNER,
        Capability::Fsetid => CapabilitySet::FSETID,
        Capability::IpcLock => CapabilitySet::IPC_LOCK,
        Capability::IpcOwner => CapabilitySet::IPC_OWNER,
        Capability::Kill => CapabilitySet::KILL,
        Capability::Lease => CapabilitySet::LEASE,
        Capability::LinuxImmutable => CapabilitySet::LINUX_IMMUTABLE,
        Capability::MacAdmin => CapabilitySet::MAC_ADMIN,
        Capability::MacOverride => CapabilitySet::MAC_OVERRIDE,
        Capability::Mknod => CapabilitySet::MKNOD,
        Capability::NetAdmin => CapabilitySet::NET_ADMIN,
        Capability::NetBindService => CapabilitySet::NET_BIND_SERVICE,
        Capability::NetBroadcast => CapabilitySet::NET_BROADCAST,
        Capability::NetRaw => CapabilitySet::NET_RAW,
        Capability::Perfmon => CapabilitySet::PERFMON,
        Capability::Setgid => CapabilitySet::SETGID,
        Capability::Setfcap => CapabilitySet::SETFCAP,
        Capability::Setpcap => CapabilitySet::SETPCAP,
        Capability::Setuid => CapabilitySet::SETUID,
        Capability::SysAdmin => CapabilitySet::SYS_ADMIN,
        Capability::SysBoot => CapabilitySet::SYS_BOOT,
        Capability::SysChroot => CapabilitySet::SYS_CHROOT,
        Capability::SysModule => CapabilitySet::SYS_MODULE,
        Capability::SysNice => CapabilitySet::SYS_NICE,
        Capability::SysPacct => CapabilitySet::SYS_PACCT,
        Capability::SysPtrace => CapabilitySet::SYS_PTRACE,
        Capability::SysRawio => CapabilitySet::SYS_RAWIO,
        Capability::SysResource => CapabilitySet::SYS_RESOURCE,
        Capability::SysTime => CapabilitySet::SYS_TIME,
        Capability::SysTtyConfig => CapabilitySet::SYS_TTY_CONFIG,
        Capability::Syslog => CapabilitySet::SYSLOG,
        Capability::WakeAlarm => CapabilitySet::WAKE_ALARM,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities_have_the_kernels_numbers() {
        // include/uapi/linux/capability.h
        assert_eq!(bit(Capability::Chown).bits(), 1);
        assert_eq!(bit(Capability::SysAdmin).bits(), 1 << 21);
        assert_eq!(bit(Capability::CheckpointRestore).bits(), 1 << 40);
        let two = [Capability::Kill, Capability::Mknod].into_iter().collect();
        assert_eq!(bits(&two).bits(), 1 << 5 | 1 << 27);
    }
}
