//! The disks of a container: their nodes, and rules to let the container use them. [`crate::disks`] has the
//! slots.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;

use agent_container::spec::{self, DiskNode};
use oci_spec::runtime::Spec;
use proto_agent::agent::BlockDevice;

use crate::containers::{Container, ContainerError};
use crate::pod::Pod;

/// Mode of a node if the daemon names none.
const DISK_MODE: u32 = 0o660;

/// Binds the slots and adds the devices to the specification. The container's removal releases the slots.
pub(super) async fn add(
    pod: &Pod,
    container: &Container,
    devices: &[BlockDevice],
    spec: &mut Spec,
) -> Result<(), ContainerError> {
    for device in devices {
        let name = pod.disks.acquire(device.slot).await?;
        container.disks().push(device.slot);
        let node = Path::new("/dev").join(name);
        let number = fs::metadata(&node).map_err(container.io("read the number of a disk"))?.rdev();
        let mode = if device.mode == 0 { DISK_MODE } else { device.mode };
        let in_container = DiskNode { path: Path::new(&device.path), uid: device.uid, gid: device.gid, mode };
        let mut source = None;
        // A user namespace allows no new nodes. There the guest's own node is mounted, so it must have the
        // owner of the container's node.
        if pod.user_namespace.get().is_some() {
            let (uid, gid) = pod.guest_ids(device.uid, device.gid)?;
            fs::set_permissions(&node, Permissions::from_mode(mode))
                .and_then(|()| chown(&node, Some(uid), Some(gid)))
                .map_err(container.io("set the owner of a disk"))?;
            source = Some(node.as_path());
        }
        spec::add_block_device(spec, &in_container, number, &device.permissions, source)?;
    }
    Ok(())
}
