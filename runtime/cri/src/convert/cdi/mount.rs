//! Mounts of CDI devices: paths of the node, and file systems in the guest's memory.

use runtime_cdi::Origin;
use runtime_spec::{ContainerSpec, Mount, MountPropagation, Tmpfs};

use super::refusal::refusal;
use crate::error::Failure;

/// Options of a tmpfs without a value (tmpfs(5), mount(8)).
const TMPFS_FLAGS: [&str; 11] = [
    "ro",
    "rw",
    "nosuid",
    "suid",
    "nodev",
    "noexec",
    "exec",
    "noatime",
    "relatime",
    "strictatime",
    "nodiratime",
];

/// Options of a tmpfs with a value.
const TMPFS_VALUES: [&str; 5] = ["size", "nr_inodes", "mode", "uid", "gid"];

/// Adds a mount. It replaces another one at the same path.
pub(super) fn add(
    spec: &mut ContainerSpec,
    origin: &Origin,
    mount: runtime_cdi::Mount,
) -> Result<(), Failure> {
    put(spec, mount).map_err(|reason| refusal(origin, "mounts", &reason))
}

/// Adds a mount like [`add`], or returns the reason for refusing it.
pub(crate) fn put(spec: &mut ContainerSpec, mount: runtime_cdi::Mount) -> Result<(), String> {
    let target = mount.container_path.clone();
    match mount.kind.as_str() {
        "" | "none" | "bind" => {
            let mount = bind(mount, spec)?;
            clear(spec, &target);
            spec.mounts.push(mount);
        }
        "tmpfs" => {
            let tmpfs = tmpfs(mount)?;
            clear(spec, &target);
            spec.tmpfs.push(tmpfs);
        }
        other => {
            let reason = format!(
                "type {other:?} for {target}: a container in a VM has paths of the node (none, bind) and tmpfs"
            );
            return Err(reason);
        }
    }
    Ok(())
}

/// Removes the mounts at this path.
pub(crate) fn clear(spec: &mut ContainerSpec, target: &str) {
    spec.mounts.retain(|known| known.container_path != target);
    spec.tmpfs.retain(|known| known.container_path != target);
}

/// A path of the node, with all mounts below it, as in all volumes. Of contradicting options the last one
/// wins, as with mount(8).
fn bind(mount: runtime_cdi::Mount, spec: &ContainerSpec) -> Result<Mount, String> {
    let target = &mount.container_path;
    if !mount.host_path.starts_with('/') {
        return Err(format!("hostPath {:?} for {target} is no absolute path", mount.host_path));
    }
    // Other runtimes make missing paths for the pod's own mounts only. A file or a plugin may be out of date,
    // and a directory in the place of a library would be in the way of the node's packages.
    let mut bind = Mount { must_exist: true, propagation: MountPropagation::Private, ..Mount::default() };
    for option in &mount.options {
        match option.as_str() {
            // A volume in a VM is always nodev, and has no access time options.
            "bind" | "rbind" | "nodev" | "relatime" | "defaults" => {}
            "rw" => (bind.readonly, bind.recursive_read_only) = (false, false),
            "ro" => bind.readonly = true,
            "rro" => (bind.readonly, bind.recursive_read_only) = (true, true),
            "nosuid" => bind.nosuid = true,
            "suid" => bind.nosuid = false,
            "noexec" => bind.noexec = true,
            "exec" => bind.noexec = false,
            "private" | "rprivate" => bind.propagation = MountPropagation::Private,
            "slave" | "rslave" => bind.propagation = MountPropagation::HostToContainer,
            "shared" | "rshared" => {
                return Err(format!("{option} for {target}: a container in a VM cannot mount into the node"));
            }
            other => return Err(format!("option {other:?} for {target} is not possible")),
        }
    }
    // Owners in a pod's user namespace are mapped like those of its volumes.
    if let Some(namespaces) = &spec.security.namespaces {
        bind.uid_mappings.clone_from(&namespaces.uids);
        bind.gid_mappings.clone_from(&namespaces.gids);
    }
    Ok(Mount { host_path: mount.host_path, container_path: mount.container_path, ..bind })
}

/// A file system in the guest's memory. The source name in the file has no meaning.
fn tmpfs(mount: runtime_cdi::Mount) -> Result<Tmpfs, String> {
    let target = &mount.container_path;
    for option in &mount.options {
        let known = match option.split_once('=') {
            Some((name, value)) => {
                TMPFS_VALUES.contains(&name)
                    && !value.is_empty()
                    && value.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '%')
            }
            None => TMPFS_FLAGS.contains(&option.as_str()),
        };
        if !known {
            return Err(format!("option {option:?} for {target} is not possible for a tmpfs"));
        }
    }
    Ok(Tmpfs { container_path: mount.container_path, options: mount.options })
}

#[cfg(test)]
mod tests {
    use super::super::tests::{refused, spec};
    use super::*;

    fn mounts(kind: &str, options: &str) -> String {
        let mount =
            format!(r#"{{"hostPath":"/h","containerPath":"/c","type":"{kind}","options":[{options}]}}"#);
        format!(r#"{{"mounts":[{mount}]}}"#)
    }

    fn bound(options: &str) -> Mount {
        spec(&mounts("none", options)).mounts[0].clone()
    }

    #[test]
    fn a_path_of_the_node_is_writable_unless_the_file_says_otherwise() {
        let (host_path, container_path) = ("/h".into(), "/c".into());
        let plain = Mount { host_path, must_exist: true, container_path, ..Mount::default() };
        for options in ["", r#""bind""#, r#""rbind","rprivate","nodev""#, r#""ro","rw""#] {
            assert_eq!(bound(options), plain, "{options}");
        }
        let usual = Mount { readonly: true, nosuid: true, ..plain.clone() };
        assert_eq!(bound(r#""ro","nosuid","nodev","rbind","rprivate""#), usual);
        let strict = Mount { readonly: true, recursive_read_only: true, noexec: true, ..plain.clone() };
        assert_eq!(bound(r#""rro","noexec""#), strict);
        let late = Mount { propagation: MountPropagation::HostToContainer, ..plain };
        assert_eq!(bound(r#""rslave""#), late);
    }

    #[test]
    fn an_option_or_type_that_is_not_possible_is_refused_by_name() {
        assert_eq!(
            refused(&mounts("bind", r#""rshared""#)),
            "mounts: rshared for /c: a container in a VM cannot mount into the node"
        );
        for option in ["dev", "sync", "size=1m", "x-systemd", ""] {
            let reason = refused(&mounts("", &format!("\"{option}\"")));
            assert_eq!(reason, format!("mounts: option {option:?} for /c is not possible"));
        }
        let reason = refused(&mounts("ext4", ""));
        assert!(reason.starts_with("mounts: type \"ext4\" for /c: "), "{reason}");
    }

    #[test]
    fn a_tmpfs_is_the_guests_and_has_options_of_its_own() {
        let spec = spec(&mounts("tmpfs", r#""nosuid","nodev","mode=755","size=50%""#));
        assert!(spec.mounts.is_empty());
        let options = ["nosuid", "nodev", "mode=755", "size=50%"].map(str::to_owned).to_vec();
        assert_eq!(spec.tmpfs, [Tmpfs { container_path: "/c".into(), options }]);
        for option in ["bind", "mpol=bind", "size=", "size=1,uid=0", "huge=always"] {
            let reason = refused(&mounts("tmpfs", &format!("\"{option}\"")));
            assert!(reason.contains(&format!("option {option:?} for /c")), "{reason}");
        }
    }

    #[test]
    fn a_later_mount_takes_the_place_of_an_earlier_one_at_its_path() {
        let mount = |kind: &str, host: &str| {
            format!(r#"{{"hostPath":"{host}","containerPath":"/c","type":"{kind}"}}"#)
        };
        let of = |first: &str, second: &str| spec(&format!(r#"{{"mounts":[{first},{second}]}}"#));
        let twice = of(&mount("", "/a"), &mount("", "/b"));
        assert_eq!(twice.mounts.iter().map(|mount| mount.host_path.as_str()).collect::<Vec<_>>(), ["/b"]);
        let replaced = of(&mount("", "/a"), &mount("tmpfs", "tmpfs"));
        assert_eq!((replaced.mounts.len(), replaced.tmpfs.len()), (0, 1));
        let back = of(&mount("tmpfs", "tmpfs"), &mount("", "/a"));
        assert_eq!((back.mounts.len(), back.tmpfs.len()), (1, 0));
    }

    #[test]
    fn owners_are_mapped_as_the_pods_volumes_are() {
        let mut spec = ContainerSpec::default();
        let ids = vec![runtime_spec::IdMapping { container_id: 0, host_id: 1000, length: 9 }];
        let namespaces =
            runtime_spec::Namespaces { uids: ids.clone(), gids: ids.clone(), ..Default::default() };
        spec.security.namespaces = Some(namespaces);
        let mount = runtime_cdi::Mount {
            host_path: "/h".into(),
            container_path: "/c".into(),
            kind: String::new(),
            options: Vec::new(),
        };
        let bind = bind(mount, &spec).unwrap();
        assert_eq!((bind.uid_mappings, bind.gid_mappings), (ids.clone(), ids));
    }
}
