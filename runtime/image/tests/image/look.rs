//! Compares the kernel's mount with a model, path by path.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use tests_registry::random::{Kind, Model, Node};

/// Every path below `at`, as components.
fn walk(at: &Path, above: &[Vec<u8>], found: &mut BTreeSet<Vec<Vec<u8>>>) {
    for entry in fs::read_dir(at).unwrap() {
        let entry = entry.unwrap();
        let path = [above, &[entry.file_name().as_bytes().to_vec()]].concat();
        if entry.file_type().unwrap().is_dir() {
            walk(&entry.path(), &path, found);
        }
        found.insert(path);
    }
}

fn on_mount(root: &Path, path: &[Vec<u8>]) -> PathBuf {
    path.iter().fold(root.to_owned(), |at, part| at.join(OsStr::from_bytes(part)))
}

fn same(path: &Path, node: &Node) {
    let metadata = path.symlink_metadata().unwrap();
    assert_eq!(metadata.mode() & 0o7777, node.mode, "mode of {path:?}");
    assert_eq!((metadata.uid(), metadata.gid()), node.owner, "owner of {path:?}");
    assert_eq!((metadata.mtime(), metadata.mtime_nsec() as u32), node.mtime, "time of {path:?}");
    let kind = metadata.file_type();
    let device = |major: u32, minor: u32| nix::sys::stat::makedev(u64::from(major), u64::from(minor));
    match &node.kind {
        Kind::Directory => assert!(kind.is_dir(), "{path:?}"),
        Kind::File(content) => {
            assert!(kind.is_file(), "{path:?}");
            assert!(fs::read(path).unwrap() == *content, "content of {path:?}");
        }
        Kind::Symlink(target) => {
            assert_eq!(fs::read_link(path).unwrap().as_os_str().as_bytes(), target, "target of {path:?}");
        }
        Kind::Char(major, minor) => {
            assert!(kind.is_char_device() && metadata.rdev() == device(*major, *minor), "{path:?}");
        }
        Kind::Block(major, minor) => {
            assert!(kind.is_block_device() && metadata.rdev() == device(*major, *minor), "{path:?}");
        }
        Kind::Fifo => assert!(kind.is_fifo(), "{path:?}"),
    }
    let found: BTreeMap<Vec<u8>, Vec<u8>> = xattr::list(path)
        .unwrap()
        .map(|name| (name.as_bytes().to_vec(), xattr::get(path, &name).unwrap().unwrap()))
        .collect();
    assert_eq!(found, node.xattrs, "attributes of {path:?}");
}

/// Asserts that the mount shows exactly the model.
pub(crate) fn shows(root: &Path, model: &Model) {
    let mut found = BTreeSet::new();
    walk(root, &[], &mut found);
    let wanted: BTreeSet<Vec<Vec<u8>>> = model.names.keys().cloned().collect();
    assert_eq!(found, wanted);
    same(root, &model.root);
    let mut inodes: BTreeMap<usize, (u64, u64)> = BTreeMap::new();
    for (path, number) in &model.names {
        let (at, node) = (on_mount(root, path), &model.nodes[*number]);
        same(&at, node);
        let metadata = at.symlink_metadata().unwrap();
        if !node.is_directory() {
            let names = model.names.values().filter(|other| *other == number).count() as u64;
            assert_eq!(metadata.nlink(), names, "names of {at:?}");
        }
        let inode = (metadata.dev(), metadata.ino());
        assert_eq!(*inodes.entry(*number).or_insert(inode), inode, "{at:?} is a name of one node");
    }
    let distinct: BTreeSet<(u64, u64)> = inodes.values().copied().collect();
    assert_eq!(distinct.len(), inodes.len(), "no two nodes are one");
}
