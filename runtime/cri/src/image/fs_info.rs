//! ImageFsInfo: where images and scratch disks are, and how much they take. The kubelet calls it as
//! its first question to an image service, and its eviction manager needs the paths: it asks the file
//! system behind them for its room, so they must be on a disk.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use proto_cri::v1;

use crate::error::Failure;
use crate::runtime::now_ns;
use crate::serve::Cri;

pub(crate) async fn fs_info(cri: &Cri) -> Result<v1::ImageFsInfoResponse, Failure> {
    let (images, pods) = (cri.images.clone(), cri.pods.clone());
    // Both look through directories.
    let look = move || {
        let (image, scratch) = (images.usage(), pods.scratch_usage());
        let containers = container_directory(images.directory(), &pods.scratch_dir());
        v1::ImageFsInfoResponse {
            image_filesystems: vec![file_system(&image.mountpoint, image.bytes, image.inodes)],
            container_filesystems: vec![file_system(&containers, scratch.bytes, scratch.inodes)],
        }
    };
    tokio::task::spawn_blocking(look).await.map_err(|_| Failure::Died("looking at the disks"))
}

fn file_system(path: &Path, bytes: u64, inodes: u64) -> v1::FilesystemUsage {
    v1::FilesystemUsage {
        timestamp: now_ns(),
        fs_id: Some(v1::FilesystemIdentifier { mountpoint: path.display().to_string() }),
        used_bytes: Some(v1::UInt64Value { value: bytes }),
        inodes_used: Some(v1::UInt64Value { value: inodes }),
    }
}

/// The path that stands for the scratch disks' file system: the images' own where both are on one, since
/// the kubelet takes two paths for two file systems.
pub(crate) fn container_directory(images: &Path, scratch: &Path) -> PathBuf {
    let device = |path: &Path| fs::metadata(path).map(|metadata| metadata.dev()).ok();
    let (of_images, of_scratch) = (device(images), device(scratch));
    if of_images == of_scratch { images.to_owned() } else { scratch.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_file_system_has_one_path_and_two_have_two() {
        let (root, proc) = (Path::new("/"), Path::new("/proc"));
        assert_eq!(container_directory(proc, Path::new("/proc/self")), proc);
        assert_eq!(container_directory(root, proc), proc);
    }
}
