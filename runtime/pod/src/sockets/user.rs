//! The user of a container's connector on the node. It is the numeric user named by the pod's author, mapped
//! to the node through the pod's user namespace, or else the user nobody. A user named in an image does not
//! count: an image's author is not the pod's. Pure.

use runtime_connector::ConnectorUser;
use runtime_spec::{ContainerSpec, IdMapping, Namespaces};

/// The kernel's overflow ids. They own nothing.
const NOBODY: u32 = 65_534;

/// The connector's user for a container of a pod with these namespaces.
pub(crate) fn user_of(namespaces: &Namespaces, spec: &ContainerSpec) -> ConnectorUser {
    let security = &spec.security;
    let mapped = |mappings: &[IdMapping], id: i64| on_the_node(mappings, u32::try_from(id).ok()?);
    let uid = security.run_as_user.and_then(|id| mapped(&namespaces.uids, id));
    let Some(uid) = uid else { return ConnectorUser { uid: NOBODY, gid: NOBODY, groups: Vec::new() } };
    let gid = security.run_as_group.and_then(|id| mapped(&namespaces.gids, id)).unwrap_or(NOBODY);
    let groups = security.supplemental_groups.iter().filter_map(|id| mapped(&namespaces.gids, *id));
    ConnectorUser { uid, gid, groups: groups.collect() }
}

/// The id outside of the pod's user namespace; without a namespace the id itself.
fn on_the_node(mappings: &[IdMapping], id: u32) -> Option<u32> {
    if mappings.is_empty() {
        return Some(id);
    }
    mappings.iter().find_map(|mapping| {
        let offset = id.checked_sub(mapping.container_id).filter(|offset| *offset < mapping.length)?;
        mapping.host_id.checked_add(offset)
    })
}

#[cfg(test)]
mod tests {
    use runtime_spec::ContainerSecurity;

    use super::*;

    fn user(namespaces: &Namespaces, security: ContainerSecurity) -> (u32, u32, Vec<u32>) {
        let spec = ContainerSpec { security, ..ContainerSpec::default() };
        let ConnectorUser { uid, gid, groups } = user_of(namespaces, &spec);
        (uid, gid, groups)
    }

    fn security(user: Option<i64>, group: Option<i64>, groups: &[i64]) -> ContainerSecurity {
        ContainerSecurity {
            run_as_user: user,
            run_as_group: group,
            supplemental_groups: groups.to_vec(),
            ..ContainerSecurity::default()
        }
    }

    #[test]
    fn a_connector_is_who_the_pod_names_and_never_root_unasked() {
        let node = Namespaces::default();
        assert_eq!(user(&node, security(None, None, &[])), (NOBODY, NOBODY, vec![]));
        assert_eq!(user(&node, security(None, None, &[5])), (NOBODY, NOBODY, vec![]));
        assert_eq!(user(&node, security(Some(1000), None, &[])), (1000, NOBODY, vec![]));
        assert_eq!(user(&node, security(Some(1000), Some(100), &[5, 6])), (1000, 100, vec![5, 6]));
        assert_eq!(user(&node, security(Some(0), None, &[])), (0, NOBODY, vec![]));
        assert_eq!(user(&node, security(Some(-1), None, &[])), (NOBODY, NOBODY, vec![]));
        let named = ContainerSecurity { run_as_username: "root".into(), ..ContainerSecurity::default() };
        assert_eq!(user(&node, named), (NOBODY, NOBODY, vec![]));
    }

    #[test]
    fn ids_are_those_that_the_pods_user_namespace_shows_to_the_node() {
        let mapping = IdMapping { container_id: 0, host_id: 65_536, length: 1001 };
        let pod = Namespaces { uids: vec![mapping], gids: vec![mapping], ..Namespaces::default() };
        assert_eq!(user(&pod, security(Some(0), Some(1000), &[7, 5000])), (65_536, 66_536, vec![65_543]));
        assert_eq!(user(&pod, security(Some(1001), None, &[])), (NOBODY, NOBODY, vec![]));
    }
}
