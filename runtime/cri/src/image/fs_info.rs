//! ImageFsInfo: the paths and sizes of images and scratch disks. It is the kubelet's first call to an image
//! service. Its eviction manager needs the paths to read the free space of the file system there, so they
//! must be on a disk.

use std::path::Path;

use proto_cri::v1;

use crate::blocking::STATE;
use crate::error::Failure;
use crate::runtime::now_ns;
use crate::serve::Cri;

pub(crate) async fn fs_info(cri: &Cri) -> Result<v1::ImageFsInfoResponse, Failure> {
    let (images, pods, scratch_disk) = (cri.images.clone(), cri.pods.clone(), cri.scratch_disk.clone());
    // Both walk directories.
    let look = move || {
        let (image, scratch) = (images.usage(), pods.scratch_usage());
        v1::ImageFsInfoResponse {
            image_filesystems: vec![file_system(&image.mountpoint, image.bytes, image.inodes)],
            container_filesystems: vec![file_system(&scratch_disk, scratch.bytes, scratch.inodes)],
        }
    };
    Ok(STATE.run(look).await?)
}

fn file_system(path: &Path, bytes: u64, inodes: u64) -> v1::FilesystemUsage {
    v1::FilesystemUsage {
        timestamp: now_ns(),
        fs_id: Some(v1::FilesystemIdentifier { mountpoint: path.display().to_string() }),
        used_bytes: Some(v1::UInt64Value { value: bytes }),
        inodes_used: Some(v1::UInt64Value { value: inodes }),
    }
}
