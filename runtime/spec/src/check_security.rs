//! Refuses invalid or impossible security requests in a guest, by the field's name.
//!
//! The pod's VM fulfils some requests by itself: a level of an SELinux label separates pods, and passes. A
//! type or role names a policy missing in the guest, and is refused.

use std::path::Path;

use crate::capabilities::capabilities;
use crate::{ContainerSecurity, ContainerSpec, NamespaceMode, Namespaces, PodSpec, Profile, SpecError};

const NETWORK: &str = "security_context.namespace_options.network";
const IPC: &str = "security_context.namespace_options.ipc";
const PID: &str = "security_context.namespace_options.pid";
const USER: &str = "security_context.namespace_options.userns_options";

/// Largest user or group id: Kubernetes' own bound. It is below the kernel's value for "none".
const ID_MAX: i64 = i32::MAX as i64;

/// Refuses invalid requests of a pod.
pub(crate) fn pod(spec: &PodSpec) -> Result<(), SpecError> {
    namespaces(&spec.namespaces)?;
    if let NamespaceMode::Target(_) = spec.namespaces.pid {
        return Err(SpecError::invalid(
            PID,
            "is TARGET, but only a container may use that; must be POD, CONTAINER or NODE",
        ));
    }
    let security = &spec.security;
    ids(security.run_as_user.iter().chain(&security.run_as_group).chain(&security.supplemental_groups))?;
    seccomp(security.seccomp.as_ref())?;
    apparmor(security.apparmor.as_ref())?;
    selinux(&security.selinux)
}

/// Refuses invalid requests of a container of `pod`.
pub(crate) fn container(spec: &ContainerSpec, pod: &PodSpec) -> Result<(), SpecError> {
    let security = &spec.security;
    user(security)?;
    if let Some(modes) = &security.namespaces {
        namespaces(modes)?;
        let of_pod = &pod.namespaces;
        if (&modes.user, &modes.uids, &modes.gids) != (&of_pod.user, &of_pod.uids, &of_pod.gids) {
            return Err(SpecError::invalid(USER, "differs from the pod's"));
        }
        if modes.pid == NamespaceMode::Pod && !pod.shares_pids() {
            let reason = "is POD, but the pod was made without a PID namespace of its own";
            return Err(SpecError::invalid(PID, reason));
        }
        if modes.pid == NamespaceMode::Target(String::new()) {
            return Err(SpecError::invalid(PID, "is TARGET without a target_id"));
        }
    }
    if !security.privileged {
        seccomp(security.seccomp.as_ref())?;
        apparmor(security.apparmor.as_ref())?;
    }
    selinux(&security.selinux)?;
    paths("security_context.masked_paths", security.masked_paths.as_deref())?;
    paths("security_context.readonly_paths", security.readonly_paths.as_deref())?;
    capabilities(security).map(drop)
}

fn user(security: &ContainerSecurity) -> Result<(), SpecError> {
    let name = &security.run_as_username;
    if security.run_as_group.is_some() && security.run_as_user.is_none() && name.is_empty() {
        return Err(SpecError::invalid("security_context.run_as_group", "needs a user as well"));
    }
    // After a colon the rest would be a group.
    if name.contains([':', '\0', '\n', '/']) {
        return Err(SpecError::invalid(
            "security_context.run_as_username",
            format!("{name:?} is no user name"),
        ));
    }
    ids(security.run_as_user.iter().chain(&security.run_as_group).chain(&security.supplemental_groups))
}

fn ids<'a>(ids: impl IntoIterator<Item = &'a i64>) -> Result<(), SpecError> {
    match ids.into_iter().find(|id| !(0..=ID_MAX).contains(*id)) {
        Some(id) => Err(SpecError::invalid("security_context", format!("{id} is no user or group id"))),
        None => Ok(()),
    }
}

fn namespaces(modes: &Namespaces) -> Result<(), SpecError> {
    match modes.network {
        NamespaceMode::Pod => {}
        NamespaceMode::Node => {
            let reason = "NODE is not possible: the pod has a VM and a network of its own, and cannot \
                          use the node's; run such pods with another runtime handler";
            return Err(SpecError::invalid(NETWORK, reason));
        }
        _ => return Err(SpecError::invalid(NETWORK, "must be POD")),
    }
    match modes.ipc {
        NamespaceMode::Pod => {}
        NamespaceMode::Node => {
            let reason = "NODE is not possible: the pod has its own kernel, without any shared memory or \
                          message queues of the node; run such pods with another runtime handler";
            return Err(SpecError::invalid(IPC, reason));
        }
        _ => return Err(SpecError::invalid(IPC, "must be POD: the pod's containers share it")),
    }
    match modes.user {
        NamespaceMode::Node if modes.uids.is_empty() && modes.gids.is_empty() => Ok(()),
        NamespaceMode::Node => Err(SpecError::invalid(USER, "is NODE and yet maps ids")),
        NamespaceMode::Pod => user_namespace(modes),
        _ => Err(SpecError::invalid(USER, "must be POD or NODE")),
    }
}

/// The pod's containers can only share one namespace, with a root and with one contiguous range of ids.
fn user_namespace(modes: &Namespaces) -> Result<(), SpecError> {
    if modes.pid == NamespaceMode::Node {
        return Err(SpecError::invalid(PID, "is NODE; a pod with a user namespace must use another"));
    }
    for (kind, mappings) in [("uids", &modes.uids), ("gids", &modes.gids)] {
        let reason = match mappings.as_slice() {
            [one] if one.container_id != 0 => format!("{kind}: id 0 of the container is not mapped"),
            [one] if one.length == 0 || one.host_id.checked_add(one.length).is_none() => {
                format!("{kind}: {} ids from {} on cannot be mapped", one.length, one.host_id)
            }
            [_] => continue,
            _ => format!("{kind}: {} mappings, exactly one is possible", mappings.len()),
        };
        return Err(SpecError::invalid(USER, reason));
    }
    Ok(())
}

fn seccomp(profile: Option<&Profile>) -> Result<(), SpecError> {
    match profile {
        Some(Profile::Localhost(path)) if !Path::new(path).is_absolute() || path.contains('\0') => {
            let reason = format!("{path:?} is no absolute path of a profile");
            Err(SpecError::invalid("security_context.seccomp", reason))
        }
        _ => Ok(()),
    }
}

fn apparmor(profile: Option<&Profile>) -> Result<(), SpecError> {
    match profile {
        Some(Profile::Localhost(name)) => {
            let reason = format!(
                "the profile {name:?} is of the node's kernel; the pod's own kernel has none of its profiles"
            );
            Err(SpecError::invalid("security_context.apparmor", reason))
        }
        _ => Ok(()),
    }
}

/// `user:role:type:level`. The level may hold colons.
fn selinux(label: &str) -> Result<(), SpecError> {
    if label.splitn(4, ':').take(3).all(str::is_empty) {
        return Ok(());
    }
    let reason = format!("{label:?}: the pod's kernel has no SELinux policy; only a level may be given");
    Err(SpecError::invalid("security_context.selinux_options", reason))
}

fn paths(field: &'static str, paths: Option<&[String]>) -> Result<(), SpecError> {
    match paths.into_iter().flatten().find(|path| !path.starts_with('/') || path.contains('\0')) {
        Some(path) => Err(SpecError::invalid(field, format!("{path:?} is not absolute"))),
        None => Ok(()),
    }
}
