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

/// Owner and group of the disk's node, as ids in the container.
fn owner(device: &BlockDevice, spec: &Spec) -> (u32, u32) {
    let user = spec.process().as_ref().map(|process| (process.user().uid(), process.user().gid()));
    let (uid, gid) = user.unwrap_or_default();
    (if device.process_uid { uid } else { device.uid }, if device.process_gid { gid } else { device.gid })
}

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
        let owner = owner(device, spec);
        let in_container = DiskNode { path: Path::new(&device.path), uid: owner.0, gid: owner.1, mode };
        let mut source = None;
        // A user namespace allows no new nodes. There the guest's own node is mounted, so it must have the
        // owner of the container's node.
        if pod.user_namespace.get().is_some() {
            let (uid, gid) = pod.guest_ids(owner.0, owner.1)?;
            fs::set_permissions(&node, Permissions::from_mode(mode))
                .and_then(|()| chown(&node, Some(uid), Some(gid)))
                .map_err(container.io("set the owner of a disk"))?;
            source = Some(node.as_path());
        }
        spec::add_block_device(spec, &in_container, number, &device.permissions, source)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use oci_spec::runtime::{ProcessBuilder, SpecBuilder, UserBuilder};

    use super::*;

    #[test]
    fn a_disk_belongs_to_whom_the_daemon_says_or_to_the_process() {
        let user = UserBuilder::default().uid(33_u32).gid(34_u32).build().unwrap();
        let process = ProcessBuilder::default().user(user).build().unwrap();
        let spec = SpecBuilder::default().process(process).build().unwrap();
        let of = |device: BlockDevice| owner(&device, &spec);
        assert_eq!(of(BlockDevice::default()), (0, 0));
        assert_eq!(of(BlockDevice { uid: 7, gid: 8, ..Default::default() }), (7, 8));
        assert_eq!(of(BlockDevice { process_uid: true, gid: 8, ..Default::default() }), (33, 8));
        assert_eq!(of(BlockDevice { uid: 7, process_gid: true, ..Default::default() }), (7, 34));
    }
}
