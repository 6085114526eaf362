//! ImageFsInfo: where images and scratch disks are, and how much they take. The kubelet calls it as
//! its first question to an image service, and its eviction manager needs the mount point.

use proto_cri::v1;
use runtime_image::Images;

use crate::runtime::now_ns;

pub(crate) fn fs_info(images: &Images) -> v1::ImageFsInfoResponse {
    let usage = images.usage();
    let filesystem = v1::FilesystemUsage {
        timestamp: now_ns(),
        fs_id: Some(v1::FilesystemIdentifier { mountpoint: usage.mountpoint.display().to_string() }),
        used_bytes: Some(v1::UInt64Value { value: usage.bytes }),
        inodes_used: Some(v1::UInt64Value { value: usage.inodes }),
    };
    v1::ImageFsInfoResponse {
        image_filesystems: vec![filesystem.clone()],
        container_filesystems: vec![filesystem],
    }
}
