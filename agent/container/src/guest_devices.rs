//! The guest's device nodes, for a privileged container: the nodes below `/dev` as devices of a
//! specification, except those with a default node or a mount in every container. This module reads `/dev`
//! and changes nothing; [`crate::spec`] adds the devices.

use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use oci_spec::runtime::{LinuxDevice, LinuxDeviceBuilder, LinuxDeviceType};

/// Deepest directory read below `/dev`: `/dev/mapper` has depth one, `/dev/bus/usb/001` three.
const DEPTH_MAX: usize = 4;

/// Entries of `/dev` made by the builder or mounted in every container.
const OWN: [&str; 11] =
    ["pts", "shm", "mqueue", "console", "ptmx", "null", "zero", "full", "random", "urandom", "tty"];

/// Lists every other device node below `root` by path. `root` stands for `/dev`.
pub fn list(root: &Path) -> io::Result<Vec<LinuxDevice>> {
    let mut devices = Vec::new();
    let mut directories = vec![(root.to_owned(), PathBuf::from("/dev"), 0)];
    while let Some((directory, shown, depth)) = directories.pop() {
        for entry in fs::read_dir(&directory)? {
            let entry = entry?;
            if depth == 0 && OWN.iter().any(|own| entry.file_name() == *own) {
                continue;
            }
            let path = shown.join(entry.file_name());
            // The entry's own metadata, so links are left out.
            let metadata = match entry.metadata() {
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                metadata => metadata?,
            };
            if metadata.is_dir() && depth < DEPTH_MAX {
                directories.push((entry.path(), path, depth + 1));
            } else if let Some(device) = device(&path, &metadata)? {
                devices.push(device);
            }
        }
    }
    devices.sort_by(|one, other| one.path().cmp(other.path()));
    Ok(devices)
}

fn device(path: &Path, metadata: &Metadata) -> io::Result<Option<LinuxDevice>> {
    let kind = metadata.file_type();
    let typ = match (kind.is_char_device(), kind.is_block_device()) {
        (true, _) => LinuxDeviceType::C,
        (_, true) => LinuxDeviceType::B,
        _ => return Ok(None),
    };
    LinuxDeviceBuilder::default()
        .path(path)
        .typ(typ)
        .major(i64::from(rustix::fs::major(metadata.rdev())))
        .minor(i64::from(rustix::fs::minor(metadata.rdev())))
        .file_mode(metadata.mode() & 0o7777)
        .uid(metadata.uid())
        .gid(metadata.gid())
        .build()
        .map(Some)
        .map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_nodes_are_listed_and_a_containers_own_are_not() {
        let found = list(Path::new("/dev")).unwrap();
        let named = |name: &str| found.iter().any(|device| device.path() == Path::new(name));
        assert!(OWN.iter().all(|own| !named(&format!("/dev/{own}"))), "{found:?}");
        assert!(found.iter().all(|device| !device.path().starts_with("/dev/pts")));
    }

    #[test]
    fn files_and_links_are_no_devices() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("file"), "").unwrap();
        std::os::unix::fs::symlink("/dev/null", dir.path().join("link")).unwrap();
        fs::create_dir_all(dir.path().join("a/b/c/d/e/f")).unwrap();
        assert!(list(dir.path()).unwrap().is_empty());
    }

    #[test]
    fn a_node_is_named_by_its_numbers() {
        let metadata = fs::metadata("/dev/null").unwrap();
        let device = device(Path::new("/dev/x"), &metadata).unwrap().unwrap();
        assert_eq!((device.typ(), device.major(), device.minor()), (LinuxDeviceType::C, 1, 3));
    }
}
