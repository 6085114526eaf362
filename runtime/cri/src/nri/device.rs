//! Device nodes requested by plugins, converted to CDI's form. From there on they are handled like CDI's. A
//! plugin only names the path of the node's device, so it is inspected at that path.

use std::time::Duration;

use proto_nri::nri::LinuxDevice;
use proto_nri::without_mark;
use runtime_blocking::Pool;
use runtime_cdi::{DeviceNode, Found, NodeKind};

use crate::error::Failure;

/// Time limit for inspecting the node's devices.
const LOOKED_WITHIN: Duration = Duration::from_secs(30);

/// The requested nodes, except those marked for removal, with the node's devices at their paths.
pub(super) async fn nodes(pool: &Pool, devices: Vec<LinuxDevice>) -> Result<Vec<DeviceNode>, Failure> {
    let wanted = devices.into_iter().filter(|device| !without_mark(&device.path).1);
    let nodes: Vec<DeviceNode> = wanted.map(node).collect::<Result<_, _>>()?;
    if nodes.is_empty() {
        return Ok(nodes);
    }
    let looking = pool.run(move || nodes.into_iter().map(DeviceNode::looked_at).collect());
    match tokio::time::timeout(LOOKED_WITHIN, looking).await {
        Ok(nodes) => Ok(nodes?),
        Err(_) => {
            let seconds = LOOKED_WITHIN.as_secs();
            Err(Failure::Node(format!("looking at devices of the node: no answer within {seconds} s")))
        }
    }
}

fn node(device: LinuxDevice) -> Result<DeviceNode, Failure> {
    let LinuxDevice { path, type_, major, minor, file_mode, uid, gid, .. } = device;
    let kind = match type_.as_str() {
        "b" => NodeKind::Block,
        "c" | "u" => NodeKind::Character,
        "p" => NodeKind::Pipe,
        other => {
            let shown: String = other.chars().take(16).collect();
            return Err(Failure::invalid(format!("linux.devices: {shown:?} is no type of a device")));
        }
    };
    Ok(DeviceNode {
        host_path: path.clone(),
        path,
        kind: Some(kind),
        numbers: (kind != NodeKind::Pipe).then_some((major, minor)),
        file_mode: file_mode.as_ref().map(|mode| mode.value),
        permissions: "rwm".to_owned(),
        // In NRI a node without an owner belongs to root. In CDI it belongs to the process.
        uid: Some(uid.as_ref().map_or(0, |uid| uid.value)),
        gid: Some(gid.as_ref().map_or(0, |gid| gid.value)),
        found: Found::Unseen,
    })
}
