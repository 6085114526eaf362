//! Security contexts, namespaces and profiles. The deprecated profile strings are used if the new fields are
//! unset (api.proto, `LinuxContainerSecurityContext`).

use proto_cri::v1;
use runtime_spec::{
    Capabilities, ContainerSecurity, IdMapping, NamespaceMode, Namespaces, PodSecurity, Profile,
};

use crate::error::Failure;

/// Requested namespaces. The unset message is all zero values.
pub(super) fn namespaces(options: v1::NamespaceOption) -> Result<Namespaces, Failure> {
    let target = options.target_id;
    let mode = |field: &str, value: i32| {
        Ok(match v1::NamespaceMode::try_from(value) {
            Ok(v1::NamespaceMode::Pod) => NamespaceMode::Pod,
            Ok(v1::NamespaceMode::Container) => NamespaceMode::Container,
            Ok(v1::NamespaceMode::Node) => NamespaceMode::Node,
            Ok(v1::NamespaceMode::Target) => NamespaceMode::Target(target.clone()),
            Err(_) => {
                return Err(Failure::invalid(format!(
                    "namespace_options.{field}: {value} is no namespace mode"
                )));
            }
        })
    };
    let user = options
        .userns_options
        .unwrap_or_else(|| v1::UserNamespace { mode: v1::NamespaceMode::Node.into(), ..Default::default() });
    Ok(Namespaces {
        network: mode("network", options.network)?,
        pid: mode("pid", options.pid)?,
        ipc: mode("ipc", options.ipc)?,
        user: mode("userns_options.mode", user.mode)?,
        uids: id_mappings_in(user.uids),
        gids: id_mappings_in(user.gids),
    })
}

/// Requested mappings.
pub(super) fn id_mappings_in(mappings: Vec<v1::IdMapping>) -> Vec<IdMapping> {
    let mapping =
        |v1::IdMapping { container_id, host_id, length }| IdMapping { container_id, host_id, length };
    mappings.into_iter().map(mapping).collect()
}

/// Mappings in the form returned by statuses.
pub(super) fn id_mappings_out(mappings: &[IdMapping]) -> Vec<v1::IdMapping> {
    let mapping =
        |&IdMapping { container_id, host_id, length }: &_| v1::IdMapping { container_id, host_id, length };
    mappings.iter().map(mapping).collect()
}

/// The requests of a pod beyond its namespaces.
pub(super) fn pod_security(context: v1::LinuxSandboxSecurityContext) -> Result<PodSecurity, Failure> {
    #[allow(deprecated)]
    let seccomp_path = context.seccomp_profile_path;
    Ok(PodSecurity {
        privileged: context.privileged,
        run_as_user: context.run_as_user.map(|user| user.value),
        run_as_group: context.run_as_group.map(|group| group.value),
        supplemental_groups: context.supplemental_groups,
        readonly_rootfs: context.readonly_rootfs,
        seccomp: profile("seccomp", context.seccomp, &seccomp_path)?,
        apparmor: profile("apparmor", context.apparmor, "")?,
        selinux: selinux(context.selinux_options),
    })
}

/// The requests of a container. Within a security context the lists of hidden paths are used unchanged, so an
/// empty one hides nothing. The kubelet sends its own lists, and empty ones for `procMount: Unmasked`.
pub(super) fn container_security(
    context: Option<v1::LinuxContainerSecurityContext>,
) -> Result<ContainerSecurity, Failure> {
    let Some(context) = context else { return Ok(ContainerSecurity::default()) };
    #[allow(deprecated)]
    let (seccomp_path, apparmor_name) = (context.seccomp_profile_path, context.apparmor_profile);
    let capabilities = context.capabilities.unwrap_or_default();
    Ok(ContainerSecurity {
        privileged: context.privileged,
        run_as_user: context.run_as_user.map(|user| user.value),
        run_as_group: context.run_as_group.map(|group| group.value),
        run_as_username: context.run_as_username,
        supplemental_groups: context.supplemental_groups,
        supplemental_groups_strict: strict(context.supplemental_groups_policy)?,
        capabilities: Capabilities {
            add: capabilities.add_capabilities,
            drop: capabilities.drop_capabilities,
            add_ambient: capabilities.add_ambient_capabilities,
        },
        readonly_rootfs: context.readonly_rootfs,
        no_new_privs: context.no_new_privs,
        masked_paths: Some(context.masked_paths),
        readonly_paths: Some(context.readonly_paths),
        seccomp: profile("seccomp", context.seccomp, &seccomp_path)?,
        apparmor: profile("apparmor", context.apparmor, &apparmor_name)?,
        selinux: selinux(context.selinux_options),
        namespaces: context.namespace_options.map(namespaces).transpose()?,
    })
}

fn strict(policy: i32) -> Result<bool, Failure> {
    match v1::SupplementalGroupsPolicy::try_from(policy) {
        Ok(v1::SupplementalGroupsPolicy::Merge) => Ok(false),
        Ok(v1::SupplementalGroupsPolicy::Strict) => Ok(true),
        Err(_) => Err(Failure::invalid(format!("supplemental_groups_policy: {policy} is no policy"))),
    }
}

fn profile(field: &str, new: Option<v1::SecurityProfile>, old: &str) -> Result<Option<Profile>, Failure> {
    use v1::security_profile::ProfileType;
    let Some(new) = new else { return old_profile(field, old) };
    Ok(Some(match ProfileType::try_from(new.profile_type) {
        Ok(ProfileType::RuntimeDefault) => Profile::RuntimeDefault,
        Ok(ProfileType::Unconfined) => Profile::Unconfined,
        Ok(ProfileType::Localhost) => Profile::Localhost(new.localhost_ref),
        Err(_) => {
            return Err(Failure::invalid(format!("{field}.profile_type: {} is no type", new.profile_type)));
        }
    }))
}

/// The strings used before the `SecurityProfile` message (api.proto, `seccomp_profile_path`).
fn old_profile(field: &str, text: &str) -> Result<Option<Profile>, Failure> {
    Ok(Some(match text {
        "" => return Ok(None),
        "runtime/default" | "docker/default" => Profile::RuntimeDefault,
        "unconfined" => Profile::Unconfined,
        _ => match text.strip_prefix("localhost/") {
            Some(name) => Profile::Localhost(name.to_owned()),
            None => return Err(Failure::invalid(format!("{field}: {text:?} is no profile"))),
        },
    }))
}

fn selinux(options: Option<v1::SeLinuxOption>) -> String {
    let Some(options) = options else { return String::new() };
    let parts = [options.user, options.role, options.r#type, options.level];
    if parts.iter().all(String::is_empty) { String::new() } else { parts.join(":") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_namespace_options_means_pod_and_no_user_namespace() {
        assert_eq!(namespaces(v1::NamespaceOption::default()).unwrap(), Namespaces::default());
    }

    #[test]
    fn an_unknown_namespace_mode_is_refused() {
        let options = v1::NamespaceOption { pid: 9, ..Default::default() };
        assert!(namespaces(options).unwrap_err().to_string().contains("namespace_options.pid: 9"));
    }

    #[test]
    fn an_unmasked_proc_hides_nothing_and_no_context_at_all_hides_the_defaults() {
        let unmasked = container_security(Some(v1::LinuxContainerSecurityContext::default())).unwrap();
        assert_eq!((unmasked.masked_paths, unmasked.readonly_paths), (Some(Vec::new()), Some(Vec::new())));
        let none = container_security(None).unwrap();
        assert_eq!((none.masked_paths, none.readonly_paths), (None, None));
        let paths = vec!["/proc/kcore".to_owned()];
        let some = v1::LinuxContainerSecurityContext { masked_paths: paths.clone(), ..Default::default() };
        assert_eq!(container_security(Some(some)).unwrap().masked_paths, Some(paths));
    }

    #[test]
    fn the_new_profile_field_wins_over_the_old_string() {
        let new = v1::SecurityProfile { profile_type: 1, localhost_ref: String::new() };
        assert_eq!(profile("seccomp", Some(new), "runtime/default").unwrap(), Some(Profile::Unconfined));
        assert_eq!(profile("seccomp", None, "runtime/default").unwrap(), Some(Profile::RuntimeDefault));
        assert_eq!(profile("seccomp", None, "").unwrap(), None);
    }

    #[test]
    fn an_old_profile_string_that_means_nothing_is_refused() {
        assert!(profile("seccomp", None, "strict").is_err());
    }

    #[test]
    fn selinux_options_that_are_all_empty_are_none() {
        assert_eq!(selinux(Some(v1::SeLinuxOption::default())), "");
    }
}
