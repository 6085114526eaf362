//! Both runtimes' images must be on one file system. A kubelet reads one entry of ImageFsInfo, and would
//! otherwise watch one disk's free space while the other fills.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use bytes::Bytes;
use prost::Message;
use proto_cri::v1;
use tonic::{Request, Status};

use super::link::Link;
use super::route::v1_path;
use crate::blocking::STATE;

/// Compares the path of the upstream's images with that of ours, `ours`.
///
/// # Errors
/// The outer one: the upstream does not answer. The inner one: the file systems differ. The inner one is for
/// people.
pub(super) async fn compare(link: &Link, ours: &Path) -> Result<Result<(), String>, Status> {
    let path = v1_path("ImageService", "ImageFsInfo");
    let answer = link.fetch(&path, Request::new(Bytes::new())).await?;
    let info = v1::ImageFsInfoResponse::decode(answer)
        .map_err(|error| Status::internal(format!("its file system is none: {error}")))?;
    // An upstream without images may not know their future path.
    let Some(theirs) = info.image_filesystems.into_iter().next().and_then(|usage| usage.fs_id) else {
        return Ok(Ok(()));
    };
    let ours = ours.to_owned();
    let comparing = STATE.run(move || same(Path::new(&theirs.mountpoint), &ours));
    comparing.await.map_err(|error| Status::internal(error.to_string()))
}

fn same(theirs: &Path, ours: &Path) -> Result<(), String> {
    match (device(theirs), device_in_future(ours)) {
        (Ok(one), Ok(other)) if one != other => Err(format!(
            "its images are in {}, on another file system than {}: a kubelet watches one alone",
            theirs.display(),
            ours.display()
        )),
        // The upstream creates this directory with its first image.
        _ => Ok(()),
    }
}

fn device(path: &Path) -> io::Result<u64> {
    fs::metadata(path).map(|found| found.dev())
}

/// The file system of a directory, or its future one. The first daemon of a node creates its directory, and
/// the node is checked before.
fn device_in_future(path: &Path) -> io::Result<u64> {
    let is_absent =
        |found: &io::Result<u64>| found.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::NotFound);
    let found = path.ancestors().map(device).find(|found| !is_absent(found));
    found.unwrap_or_else(|| device(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stores_on_two_file_systems_are_found() {
        let dir = tempfile::tempdir().unwrap();
        same(dir.path(), &dir.path().join("..")).unwrap();
        same(&dir.path().join("later"), dir.path()).unwrap();
        same(dir.path(), &dir.path().join("not/yet")).unwrap();
        let apart = same(Path::new("/proc"), dir.path()).unwrap_err();
        assert!(apart.contains("/proc") && apart.contains("another file system"), "{apart}");
        let before_the_first_start = dir.path().join("not/yet");
        let apart = same(Path::new("/proc"), &before_the_first_start).unwrap_err();
        assert!(apart.contains("not/yet"), "{apart}");
    }
}
