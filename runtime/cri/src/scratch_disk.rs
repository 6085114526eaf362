//! The file system of the containers' writable layers, in the form shown to the kubelet.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The path for the scratch disks' file system. It is the images' path if both are on one file system,
/// because the kubelet takes two paths for two file systems.
pub(crate) fn scratch_disk(images: &Path, scratch: &Path) -> PathBuf {
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
        assert_eq!(scratch_disk(proc, Path::new("/proc/self")), proc);
        assert_eq!(scratch_disk(root, proc), proc);
    }
}
