//! ImageFsInfo: where images and scratch disks are, and how much they take. The kubelet calls it as
//! its first question to an image service, and its eviction manager needs the paths: it asks the file
//! system behind them for its room, so they must be on a disk.

use std::path::Path;

use proto_cri::v1;

use crate::blocking::STATE;
use crate::error::Failure;
use crate::runtime::now_ns;
use crate::serve::Cri;

pub(crate) async fn fs_info(cri: &Cri) -> Result<v1::ImageFsInfoResponse, Failure> {
    let (images, pods, scratch_disk) = (cri.images.clone(), cri.pods.clone(), cri.scratch_disk.clone());
    // Both look through directories.
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
