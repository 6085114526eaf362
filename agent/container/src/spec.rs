//! Turns the host's specification into the builder's. The guest fills in root, user, cgroup and namespaces,
//! because only it knows them, and refuses unsupported parts by name. Pure; [`crate::builder`] builds the
//! container.

use std::path::{Path, PathBuf};

use oci_spec::runtime::{
    Linux, LinuxDevice, LinuxDeviceBuilder, LinuxDeviceCgroupBuilder, LinuxDeviceType, LinuxNamespaceBuilder,
    LinuxNamespaceType, MountBuilder, Root, RootBuilder, Spec, User, UserBuilder,
};

use crate::users::ResolvedUser;

/// Longest specification, in bytes. The largest pods have some tens of KiB.
pub(crate) const SPEC_BYTES_MAX: usize = 2 * 1024 * 1024;

/// Why a specification is refused.
#[derive(Debug, thiserror::Error)]
pub enum SpecError {
    /// The text is not JSON, or not a specification.
    #[error("the specification is not valid")]
    Malformed(#[source] serde_json::Error),
    /// A part is missing.
    #[error("the specification has no {0}")]
    Missing(&'static str),
    /// A part without support in the guest.
    #[error("{0} is not supported in the guest")]
    Unsupported(&'static str),
    /// A part is not valid.
    #[error("the specification's {part} is not valid")]
    Part {
        /// Name of the part.
        part: &'static str,
        /// The builder's reason.
        source: oci_spec::OciSpecError,
    },
    /// The specification is longer than 2 MiB.
    #[error("a specification of {0} bytes is longer than {SPEC_BYTES_MAX}")]
    TooLong(usize),
}

/// Parts of a specification filled in by the guest.
#[derive(Clone, Copy, Debug)]
pub struct GuestParts<'a> {
    /// The mounted root file system.
    pub rootfs: &'a Path,
    /// Path of the container's cgroup below the mount.
    pub cgroup: &'a str,
    /// The process's user.
    pub user: &'a ResolvedUser,
    /// Whether the process has a terminal.
    pub terminal: bool,
    /// The PID namespace to join, whatever the specification says.
    pub pid_namespace: Option<&'a Path>,
    /// The user namespace to join.
    pub user_namespace: Option<&'a Path>,
    /// Device nodes besides the default ones and the specification's.
    pub devices: &'a [LinuxDevice],
}

/// The container's specification, ready for the builder.
pub fn container(json: &[u8], parts: GuestParts<'_>) -> Result<Spec, SpecError> {
    if json.len() > SPEC_BYTES_MAX {
        return Err(SpecError::TooLong(json.len()));
    }
    let mut spec: Spec = serde_json::from_slice(json).map_err(SpecError::Malformed)?;
    refuse_unsupported(&spec)?;
    let readonly = spec.root().as_ref().and_then(Root::readonly).unwrap_or(false);
    let root = RootBuilder::default().path(parts.rootfs).readonly(readonly).build();
    spec.set_root(Some(root.map_err(|source| SpecError::Part { part: "root", source })?));
    let linux = spec.linux_mut().as_mut().ok_or(SpecError::Missing("linux part"))?;
    linux.set_cgroups_path(Some(PathBuf::from(parts.cgroup)));
    for (typ, path) in
        [(LinuxNamespaceType::Pid, parts.pid_namespace), (LinuxNamespaceType::User, parts.user_namespace)]
    {
        if let Some(path) = path {
            join(linux, typ, path)?;
        }
    }
    add_devices(linux, parts.devices);
    let process = spec.process_mut().as_mut().ok_or(SpecError::Missing("process"))?;
    process.set_terminal(Some(parts.terminal));
    let user = user(process.user(), parts.user)?;
    let owner = (user.uid(), user.gid());
    process.set_user(user);
    if let Some(linux) = spec.linux_mut() {
        own_devices(linux, owner);
    }
    Ok(spec)
}

/// Gives nodes without an owner to the process's user, as CDI does.
fn own_devices(linux: &mut Linux, (uid, gid): (u32, u32)) {
    let Some(mut devices) = linux.devices().clone() else { return };
    for device in &mut devices {
        device.set_uid(device.uid().or(Some(uid)));
        device.set_gid(device.gid().or(Some(gid)));
    }
    linux.set_devices(Some(devices));
}

fn join(linux: &mut Linux, typ: LinuxNamespaceType, path: &Path) -> Result<(), SpecError> {
    let joined = LinuxNamespaceBuilder::default().typ(typ).path(path).build();
    let joined = joined.map_err(|source| SpecError::Part { part: "namespace", source })?;
    let mut namespaces = linux.namespaces().clone().unwrap_or_default();
    namespaces.retain(|namespace| namespace.typ() != typ);
    namespaces.push(joined);
    linux.set_namespaces(Some(namespaces));
    Ok(())
}

/// Adds the devices, except those with a path already in the specification.
fn add_devices(linux: &mut Linux, devices: &[LinuxDevice]) {
    if devices.is_empty() {
        return;
    }
    let mut all = linux.devices().clone().unwrap_or_default();
    for device in devices {
        if all.iter().all(|known| known.path() != device.path()) {
            all.push(device.clone());
        }
    }
    linux.set_devices(Some(all));
}

/// A node of a disk.
#[derive(Clone, Copy, Debug)]
pub struct DiskNode<'a> {
    /// Path in the container.
    pub path: &'a Path,
    /// Owner, as a user id in the container.
    pub uid: u32,
    /// Group, as a group id in the container.
    pub gid: u32,
    /// Mode.
    pub mode: u32,
}

/// Adds a disk with the kernel's device `number`: a node, and rules to allow exactly `permissions` through
/// any node of the disk. Where nodes cannot be made, `source` is mounted at the node's path.
pub fn add_block_device(
    spec: &mut Spec,
    node: &DiskNode<'_>,
    number: u64,
    permissions: &str,
    source: Option<&Path>,
) -> Result<(), SpecError> {
    let &DiskNode { path, uid, gid, mode } = node;
    let failed = |source| SpecError::Part { part: "device", source };
    let (major, minor) = (i64::from(rustix::fs::major(number)), i64::from(rustix::fs::minor(number)));
    let linux = spec.linux_mut().as_mut().ok_or(SpecError::Missing("linux part"))?;
    let mut resources = linux.resources().clone().unwrap_or_default();
    let mut rules = resources.devices().clone().unwrap_or_default();
    // The last matching rule decides.
    for (allow, access) in [(false, "rwm"), (true, permissions)] {
        let rule = LinuxDeviceCgroupBuilder::default().allow(allow).typ(LinuxDeviceType::B);
        rules.push(rule.major(major).minor(minor).access(access).build().map_err(failed)?);
    }
    resources.set_devices(Some(rules));
    linux.set_resources(Some(resources));
    // The disk replaces the guest's own node at that path.
    let mut devices = linux.devices().clone().unwrap_or_default();
    devices.retain(|known| known.path() != path);
    let Some(source) = source else {
        let device =
            LinuxDeviceBuilder::default().path(path).typ(LinuxDeviceType::B).major(major).minor(minor);
        let device = device.file_mode(mode).uid(uid).gid(gid).build().map_err(failed)?;
        devices.push(device);
        linux.set_devices(Some(devices));
        return Ok(());
    };
    linux.set_devices(Some(devices));
    let options = ["bind", "rprivate", "nosuid", "noexec"].map(str::to_owned).to_vec();
    let mount = MountBuilder::default().destination(path).typ("bind").source(source).options(options);
    let mut mounts = spec.mounts().clone().unwrap_or_default();
    mounts.push(mount.build().map_err(failed)?);
    spec.set_mounts(Some(mounts));
    Ok(())
}

/// The user with the image's groups and the pod's additional groups.
fn user(asked: &User, resolved: &ResolvedUser) -> Result<User, SpecError> {
    let mut groups = resolved.groups.clone();
    for gid in asked.additional_gids().iter().flatten() {
        if !groups.contains(gid) {
            groups.push(*gid);
        }
    }
    let mut builder = UserBuilder::default().uid(resolved.uid).gid(resolved.gid).additional_gids(groups);
    if let Some(umask) = asked.umask() {
        builder = builder.umask(umask);
    }
    builder.build().map_err(|source| SpecError::Part { part: "user", source })
}

fn refuse_unsupported(spec: &Spec) -> Result<(), SpecError> {
    // A hook names a program of the host.
    if spec.hooks().is_some() {
        return Err(SpecError::Unsupported("a hook"));
    }
    let namespaces = spec.linux().as_ref().and_then(|linux| linux.namespaces().as_ref());
    if namespaces.into_iter().flatten().any(|namespace| namespace.typ() == LinuxNamespaceType::User) {
        return Err(SpecError::Unsupported("a user namespace"));
    }
    let process = spec.process().as_ref();
    if process.is_some_and(|process| process.apparmor_profile().as_ref().is_some_and(|p| !p.is_empty())) {
        return Err(SpecError::Unsupported("an AppArmor profile"));
    }
    if process.is_some_and(|process| process.selinux_label().as_ref().is_some_and(|l| !l.is_empty())) {
        return Err(SpecError::Unsupported("an SELinux label"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use oci_spec::runtime::LinuxNamespace;
    use serde_json::json;

    use super::*;

    fn resolved() -> ResolvedUser {
        ResolvedUser { uid: 33, gid: 33, groups: vec![33, 4] }
    }

    fn spec_json() -> serde_json::Value {
        json!({
            "ociVersion": "1.1.0",
            "root": { "path": "/elsewhere", "readonly": true },
            "process": {
                "user": { "uid": 0, "gid": 0, "additionalGids": [4, 2000] },
                "args": ["sh"], "env": ["A=1"], "cwd": "/", "noNewPrivileges": false,
                "capabilities": { "bounding": ["CAP_CHOWN"], "effective": ["CAP_CHOWN"], "permitted": ["CAP_CHOWN"] }
            },
            "linux": { "cgroupsPath": "/other", "namespaces": [{ "type": "mount" }],
                       "seccomp": { "defaultAction": "SCMP_ACT_ALLOW" } }
        })
    }

    fn parts(user: &ResolvedUser) -> GuestParts<'_> {
        let rootfs = Path::new("/run/r");
        GuestParts {
            rootfs,
            cgroup: "/pod/c1",
            user,
            terminal: false,
            pid_namespace: None,
            user_namespace: None,
            devices: &[],
        }
    }

    fn build(json: &serde_json::Value) -> Result<Spec, SpecError> {
        container(json.to_string().as_bytes(), parts(&resolved()))
    }

    #[test]
    fn a_target_takes_the_place_of_a_pid_namespace() {
        let user = resolved();
        let mut json = spec_json();
        json["linux"]["namespaces"] = json!([{ "type": "pid" }, { "type": "mount" }]);
        let parts = GuestParts { pid_namespace: Some(Path::new("/proc/7/ns/pid")), ..parts(&user) };
        let spec = container(json.to_string().as_bytes(), parts).unwrap();
        let namespaces = spec.linux().as_ref().unwrap().namespaces().clone().unwrap();
        let pids: Vec<_> = namespaces
            .iter()
            .filter(|one| one.typ() == LinuxNamespaceType::Pid)
            .map(LinuxNamespace::path)
            .collect();
        assert_eq!(pids, [&Some(PathBuf::from("/proc/7/ns/pid"))]);
        assert_eq!(namespaces.len(), 2);
    }

    #[test]
    fn root_user_and_cgroup_are_the_guests() {
        let spec = build(&spec_json()).unwrap();
        let root = spec.root().as_ref().unwrap();
        assert_eq!((root.path().as_path(), root.readonly()), (Path::new("/run/r"), Some(true)));
        let process = spec.process().as_ref().unwrap();
        assert_eq!((process.user().uid(), process.user().gid()), (33, 33));
        assert_eq!(process.user().additional_gids().as_deref(), Some(&[33, 4, 2000][..]));
        let linux = spec.linux().as_ref().unwrap();
        assert_eq!(linux.cgroups_path().as_deref(), Some(Path::new("/pod/c1")));
    }

    #[test]
    fn a_node_without_an_owner_belongs_to_the_process() {
        let mut json = spec_json();
        json["linux"]["devices"] = json!([
            { "path": "/dev/fuse", "type": "c", "major": 10, "minor": 229 },
            { "path": "/dev/net/tun", "type": "c", "major": 10, "minor": 200, "uid": 0, "gid": 7 },
        ]);
        let made = build(&json).unwrap().linux().clone().unwrap().devices().clone().unwrap();
        let owners: Vec<_> = made.iter().map(|one| (one.uid(), one.gid())).collect();
        assert_eq!(owners, [(Some(33), Some(33)), (Some(0), Some(7))]);
    }

    #[test]
    fn a_disks_node_has_its_owner_and_mode_and_a_rule_of_its_own() {
        let mut spec = build(&spec_json()).unwrap();
        let node = DiskNode { path: Path::new("/dev/xvda"), uid: 7, gid: 8, mode: 0o640 };
        add_block_device(&mut spec, &node, rustix::fs::makedev(254, 16), "r", None).unwrap();
        let linux = spec.linux().clone().unwrap();
        let made = linux.devices().clone().unwrap();
        let made: Vec<_> =
            made.iter().map(|one| (one.minor(), one.uid(), one.gid(), one.file_mode())).collect();
        assert_eq!(made, [(16, Some(7), Some(8), Some(0o640))]);
        let rules = linux.resources().clone().unwrap().devices().clone().unwrap();
        let rules: Vec<_> = rules.iter().map(|rule| (rule.allow(), rule.access().as_deref())).collect();
        assert_eq!(rules[rules.len() - 2..], [(false, Some("rwm")), (true, Some("r"))]);
    }

    #[test]
    fn hooks_user_namespaces_and_labels_are_refused_by_name() {
        for (pointer, value, name) in [
            ("hooks", json!({ "prestart": [{ "path": "/x" }] }), "hook"),
            ("linux", json!({ "namespaces": [{ "type": "user" }] }), "user namespace"),
            (
                "process",
                json!({ "user": {"uid": 0, "gid": 0}, "cwd": "/", "apparmorProfile": "p" }),
                "AppArmor",
            ),
        ] {
            let mut json = spec_json();
            json[pointer] = value;
            assert!(build(&json).unwrap_err().to_string().contains(name));
        }
    }

    #[test]
    fn noise_is_refused() {
        assert!(matches!(container(b"{", parts(&resolved())), Err(SpecError::Malformed(_))));
    }
}
