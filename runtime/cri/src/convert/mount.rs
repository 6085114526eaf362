//! `Mount`, both ways.

use proto_cri::v1;
use runtime_pod::ContainerView;
use runtime_spec::Mount;

/// The mount asked for.
pub(super) fn mount_in(mount: v1::Mount) -> Mount {
    Mount {
        host_path: mount.host_path,
        container_path: mount.container_path,
        readonly: mount.readonly,
        image: mount.image.map(|image| image.image).unwrap_or_default(),
    }
}

/// A container's mounts as its status tells them: those asked for, in their order. The kubelet finds the
/// termination log by them.
pub(super) fn mounts_out(container: &ContainerView) -> Vec<v1::Mount> {
    let mounts = container.spec.mounts.iter();
    mounts
        .map(|mount| v1::Mount {
            host_path: mount.host_path.clone(),
            container_path: mount.container_path.clone(),
            readonly: mount.readonly,
            ..Default::default()
        })
        .collect()
}
