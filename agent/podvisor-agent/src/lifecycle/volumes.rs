//! Image volumes: images mounted in a container in addition to its own, whole or in part.
//!
//! An image is hostile: its links are resolved with the image as root and never lead out of it.

use std::fs;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use nix::libc;
use oci_spec::runtime::Spec;
use proto_agent::agent::ImageVolume;
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};

use crate::containers::{Container, VolumeError};
use crate::lifecycle::build_mount::BuildMount;
use crate::pod::Pod;

/// Mounts the images and sets the sources of the specification's mounts to them. The container's removal
/// releases the images. The mapped mounts must live until the container is built.
pub(super) async fn mount(
    pod: &Pod,
    container: &Container,
    volumes: &[ImageVolume],
    spec: &mut Spec,
) -> Result<Vec<BuildMount>, VolumeError> {
    let mut mapped = Vec::new();
    for (volume, number) in volumes.iter().zip(0..) {
        let image = pod.images.acquire(volume.slot).await?;
        container.volumes().push(volume.slot);
        let mut place = resolve(&image, &volume.sub_path)
            .map_err(|source| VolumeError::SubPath { sub_path: volume.sub_path.clone(), source })?;
        if let Some(namespace) = pod.user_namespace.get() {
            let target = container.directory().join(format!("volume-{number}"));
            let mount = BuildMount::mapped(&place, target, namespace).map_err(VolumeError::Map)?;
            mount.path().clone_into(&mut place);
            mapped.push(mount);
        }
        let mounts = spec.mounts_mut().iter_mut().flatten();
        for mount in mounts.filter(|mount| mount.source().as_deref() == Some(Path::new(&volume.source))) {
            mount.set_source(Some(place.clone()));
        }
    }
    Ok(mapped)
}

/// Resolves a path in the image to one without links. The image does not change afterwards.
pub(super) fn resolve(image: &Path, sub_path: &str) -> std::io::Result<PathBuf> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let root = rustix::fs::openat(CWD, image, flags | OFlags::DIRECTORY, Mode::empty())?;
    let sub_path = if sub_path.is_empty() { "." } else { sub_path };
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    let found = rustix::fs::openat2(&root, sub_path, flags, Mode::empty(), resolve)?;
    let kind = rustix::fs::FileType::from_raw_mode(rustix::fs::fstat(&found)?.st_mode);
    if !matches!(kind, rustix::fs::FileType::Directory | rustix::fs::FileType::RegularFile) {
        return Err(std::io::Error::from_raw_os_error(libc::EINVAL));
    }
    fs::read_link(format!("/proc/self/fd/{}", found.as_raw_fd()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_sub_path_stays_in_the_image() {
        let dir = tempfile::tempdir().unwrap();
        let image = dir.path().canonicalize().unwrap().join("image");
        fs::create_dir_all(image.join("usr/lib")).unwrap();
        fs::write(image.join("usr/lib/file"), "").unwrap();
        symlink("/usr/lib", image.join("absolute")).unwrap();
        symlink("../../../usr/lib", image.join("upwards")).unwrap();
        for path in ["usr/lib", "absolute", "upwards", "/usr/lib", "../../usr/../usr/lib"] {
            assert_eq!(resolve(&image, path).unwrap(), image.join("usr/lib"), "{path}");
        }
        assert_eq!(resolve(&image, "").unwrap(), image);
        assert_eq!(resolve(&image, "absolute/file").unwrap(), image.join("usr/lib/file"));
    }

    #[test]
    fn a_path_to_nothing_or_to_no_file_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("a")).unwrap();
        symlink("/nowhere", dir.path().join("dangling")).unwrap();
        symlink("loop", dir.path().join("loop")).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(dir.path().join("socket")).unwrap();
        for path in ["none", "a/none", "dangling", "loop", "socket"] {
            assert!(resolve(dir.path(), path).is_err(), "{path}");
        }
    }
}
