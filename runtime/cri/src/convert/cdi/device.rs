//! Device nodes of CDI devices: the guest's own, or disks of the node. The node's characteristics are
//! compared with the file's, so that a container never gets a device not intended by the file's author.

use runtime_cdi::{DeviceNode, Found, NodeKind, Origin};
use runtime_spec::{ContainerSpec, Device};

use super::refusal::refusal;
use crate::error::Failure;

/// All permissions of a file.
const MODE_MAX: u32 = 0o777;

/// The bits of a mode for the file's kind, as stat(2) returns them (`S_IFMT`). runc ignores them, too
/// (`libcontainer/specconv`): the kind has a field of its own.
const KIND_BITS: u32 = 0o170_000;

/// Adds a node. It replaces another one at the same path.
pub(super) fn add(spec: &mut ContainerSpec, origin: &Origin, node: &DeviceNode) -> Result<(), Failure> {
    put(spec, node).map_err(|reason| refusal(origin, "deviceNodes", &reason))
}

/// Adds a node like [`add`], or returns the reason for refusing it.
pub(crate) fn put(spec: &mut ContainerSpec, node: &DeviceNode) -> Result<(), String> {
    let device = device(node)?;
    spec.devices.retain(|known| known.container_path != device.container_path);
    spec.devices.push(device);
    Ok(())
}

fn device(node: &DeviceNode) -> Result<Device, String> {
    let DeviceNode { path, host_path, .. } = node;
    if node.permissions.is_empty() {
        return Err(format!("permissions none of {path}: a device without any permission is not created"));
    }
    let mode = node.file_mode.map(|mode| mode & !KIND_BITS);
    if let Some(mode) = mode.filter(|mode| !(1..=MODE_MAX).contains(mode)) {
        return Err(format!(
            "fileMode {mode:o} (octal) of {path}: must be permissions from 1 to {MODE_MAX:o}"
        ));
    }
    if node.kind == Some(NodeKind::Pipe) {
        return Err(format!("{path}: the other end of a named pipe of the node is not in the VM"));
    }
    let device = Device {
        host_path: host_path.clone(),
        container_path: path.clone(),
        permissions: node.permissions.clone(),
        uid: node.uid,
        gid: node.gid,
        mode,
    };
    match device.guest_device() {
        Some(own) => compare(node, NodeKind::Character, (own.major, own.minor))?,
        None => disk(node)?,
    }
    Ok(device)
}

fn disk(node: &DeviceNode) -> Result<(), String> {
    let path = &node.host_path;
    match &node.found {
        Found::Block(major, minor) => compare(node, NodeKind::Block, (*major, *minor)),
        Found::Character(..) => Err(format!(
            "{path}: a character device of the node's kernel does not reach into a VM; a pod that needs it belongs \
             to a runtime behind Podvisor (upstream)"
        )),
        Found::Other => Err(format!("{path} is no device")),
        Found::Missing => Err(format!("{path}: no such device on the node")),
        Found::Unknown(error) => Err(format!("{path}: {error}")),
        Found::Unseen => Err(format!("{path} was not looked at")),
    }
}

fn compare(node: &DeviceNode, kind: NodeKind, numbers: (i64, i64)) -> Result<(), String> {
    let path = &node.host_path;
    if node.kind.is_some_and(|named| named != kind) {
        let (named, is) = match kind {
            NodeKind::Block => ("character", "block"),
            NodeKind::Character | NodeKind::Pipe => ("block", "character"),
        };
        return Err(format!("{path} is a {is} device, and the file names a {named} device"));
    }
    match node.numbers {
        Some(named) if named != numbers => Err(format!(
            "{path} is the device {}:{}, and the file names {}:{}",
            numbers.0, numbers.1, named.0, named.1
        )),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use runtime_cdi::DeviceName;

    use super::super::tests::{refused, spec};
    use super::*;

    fn nodes(node: &str) -> String {
        format!(r#"{{"deviceNodes":[{node}]}}"#)
    }

    #[test]
    fn a_node_of_the_guests_own_needs_none_on_the_node() {
        let full =
            r#"{"path":"/dev/net/tun","type":"c","major":10,"minor":200,"permissions":"rw","fileMode":438}"#;
        let spec = spec(&nodes(full));
        let device = &spec.devices[0];
        assert_eq!(
            (device.host_path.as_str(), device.container_path.as_str()),
            ("/dev/net/tun", "/dev/net/tun")
        );
        assert_eq!((device.permissions.as_str(), device.mode), ("rw", Some(0o666)));
        assert_eq!((device.uid, device.gid), (None, None), "those of the container's process");
        let elsewhere = nodes(r#"{"path":"/dev/f","hostPath":"/dev/fuse","type":"u"}"#);
        let device = &super::super::tests::spec(&elsewhere).devices[0];
        assert_eq!((device.host_path.as_str(), device.permissions.as_str()), ("/dev/fuse", "rwm"));
    }

    #[test]
    fn a_mode_may_have_the_bits_of_the_files_kind() {
        // 0o20660 and 0o60660: a character and a block device.
        for mode in [8624, 25008] {
            let node = nodes(&format!(r#"{{"path":"/dev/fuse","fileMode":{mode}}}"#));
            assert_eq!(spec(&node).devices[0].mode, Some(0o660));
        }
        let none = refused(&nodes(r#"{"path":"/dev/fuse","fileMode":24576}"#));
        assert!(none.starts_with("deviceNodes: fileMode 0 (octal) of /dev/fuse"), "{none}");
    }

    #[test]
    fn a_node_that_is_another_one_than_the_file_says_is_refused() {
        let node = nodes(r#"{"path":"/dev/fuse","type":"b"}"#);
        assert_eq!(
            refused(&node),
            "deviceNodes: /dev/fuse is a character device, and the file names a block device"
        );
        let node = nodes(r#"{"path":"/dev/fuse","major":10,"minor":1}"#);
        assert_eq!(refused(&node), "deviceNodes: /dev/fuse is the device 10:229, and the file names 10:1");
    }

    #[test]
    fn what_the_node_has_and_a_vm_cannot_have_is_refused_with_what_would_be_needed() {
        let kmsg = refused(&nodes(r#"{"path":"/dev/ptmx"}"#));
        assert!(
            kmsg.starts_with("deviceNodes: /dev/ptmx: a character device of the node's kernel"),
            "{kmsg}"
        );
        assert!(kmsg.contains("belongs to a runtime behind Podvisor (upstream)"), "{kmsg}");
        let none = refused(&nodes(r#"{"path":"/dev/there-is-none","type":"c","major":195,"minor":0}"#));
        assert_eq!(none, "deviceNodes: /dev/there-is-none: no such device on the node");
        assert_eq!(refused(&nodes(r#"{"path":"/dev"}"#)), "deviceNodes: /dev is no device");
        assert!(refused(&nodes(r#"{"path":"/dev/p","type":"p"}"#)).contains("named pipe"));
        let sticky = refused(&nodes(r#"{"path":"/dev/fuse","fileMode":1023}"#));
        assert!(sticky.starts_with("deviceNodes: fileMode 1777 (octal) of /dev/fuse"), "{sticky}");
        let idle = nodes(r#"{"path":"/dev/fuse","permissions":"none"}"#);
        assert!(refused(&idle).starts_with("deviceNodes: permissions none of /dev/fuse"));
    }

    #[test]
    fn a_disk_of_the_node_is_taken_by_its_path() {
        let file: std::path::PathBuf = "/etc/cdi/x.json".into();
        let device: DeviceName = "v/c=d".parse().unwrap();
        let origin = Origin { device, file: file.into() };
        let node = |numbers| DeviceNode {
            path: "/dev/xvda".into(),
            host_path: "/dev/disk/by-id/a".into(),
            kind: Some(NodeKind::Block),
            numbers,
            file_mode: None,
            permissions: "r".into(),
            uid: None,
            gid: Some(6),
            found: Found::Block(7, 3),
        };
        let mut spec = ContainerSpec::default();
        for numbers in [None, Some((7, 3))] {
            add(&mut spec, &origin, &node(numbers)).unwrap();
        }
        // The later one replaces the first.
        assert_eq!(spec.devices.len(), 1);
        assert_eq!((spec.devices[0].host_path.as_str(), spec.devices[0].gid), ("/dev/disk/by-id/a", Some(6)));
        let error = add(&mut spec, &origin, &node(Some((7, 4)))).unwrap_err().to_string();
        assert_eq!(
            error,
            "CDI device v/c=d of /etc/cdi/x.json: containerEdits.deviceNodes: /dev/disk/by-id/a is the device 7:3, \
             and the file names 7:4"
        );
    }
}
