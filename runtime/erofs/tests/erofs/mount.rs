//! Random trees, written, mounted by the kernel and read back. Owns the comparison of a tree with a mount.
//!
//! Needs root, a loop device and EROFS in the kernel. Prints a note and passes without them. If `fsck.erofs`
//! is installed, it gives a second opinion.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs::File;
use std::io::BufWriter;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use crate::kernel::{Mount, fsck};
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use runtime_erofs::{
    Attributes, DataWriter, Device, Entry, EntryKind, Timestamp, Tree, place_blobs, write_metadata,
};

/// Kinds of test files, each with its content in place of an extent.
#[derive(Debug, Clone)]
enum Kind {
    Directory,
    File(Vec<u8>),
    Symlink(Vec<u8>),
    Char(Device),
    Block(Device),
    Fifo,
}

#[derive(Debug, Clone)]
struct Made {
    /// The parent, chosen from the directories made so far.
    parent: prop::sample::Index,
    name: Vec<u8>,
    attributes: Attributes,
    kind: Kind,
    /// More names in the same or other directories.
    links: Vec<(prop::sample::Index, Vec<u8>)>,
}

/// A layer: its entries and the contents of its files.
type MadeLayer = (Vec<Entry>, Vec<u8>);

/// One path as the mount must show it.
#[derive(Debug, Clone)]
struct Expected {
    attributes: Attributes,
    kind: Kind,
    file: usize,
}

fn name() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        8 => "[a-z]{1,12}".prop_map(String::into_bytes),
        2 => prop::collection::vec(any::<u8>(), 1..40),
        1 => prop::collection::vec(any::<u8>(), 200..=255),
        1 => "[!-,\\-]{1,3}".prop_map(String::into_bytes),
        1 => "\\.{1,4}[ -~]?".prop_map(String::into_bytes),
    ]
    .prop_filter("not a name", |name| {
        !name.contains(&0)
            && !name.contains(&b'/')
            && name != b"."
            && name != b".."
            && !name.starts_with(b".wh.")
    })
}

fn content() -> impl Strategy<Value = Vec<u8>> {
    let size = prop_oneof![
        Just(0),
        Just(1),
        4094_usize..=4098,
        8190_usize..=8194,
        0_usize..20_000,
        Just(262_144 + 1),
    ];
    (size, any::<u8>())
        .prop_map(|(size, seed)| (0..size).map(|at| seed.wrapping_add((at % 251) as u8)).collect())
}

fn kind() -> impl Strategy<Value = Kind> {
    let device = || (0_u32..4096, 0_u32..1 << 20).prop_map(|(major, minor)| Device { major, minor });
    let target = prop_oneof![1_usize..100, 3900_usize..=4095]
        .prop_flat_map(|length| prop::collection::vec(1_u8..=255, length));
    prop_oneof![
        4 => Just(Kind::Directory),
        6 => content().prop_map(Kind::File),
        2 => target.prop_map(Kind::Symlink),
        1 => device().prop_map(Kind::Char),
        1 => device().prop_map(Kind::Block),
        1 => Just(Kind::Fifo),
    ]
}

fn attributes() -> impl Strategy<Value = Attributes> {
    let xattr = (
        prop_oneof!["user\\.[a-z]{1,20}", "trusted\\.[a-z]{1,20}", "security\\.[a-z]{1,20}"],
        prop_oneof![
            prop::collection::vec(any::<u8>(), 0..60),
            prop::collection::vec(any::<u8>(), 3000..6000)
        ],
    );
    let xattrs = prop_oneof![
        3 => Just(BTreeMap::new()),
        1 => prop::collection::btree_map(xattr.0.prop_map(String::into_bytes), xattr.1, 1..5),
    ];
    (0_u16..0o10000, any::<u32>(), any::<u32>(), -(1_i64 << 33)..1 << 40, 0_u32..1_000_000_000, xattrs)
        .prop_map(|(mode, uid, gid, seconds, nanoseconds, xattrs)| Attributes {
            mode,
            // The highest id means "no id" to Linux.
            uid: uid.min(u32::MAX - 1),
            gid: gid.min(u32::MAX - 1),
            mtime: Timestamp { seconds, nanoseconds },
            xattrs,
        })
}

fn made() -> impl Strategy<Value = Made> {
    let links = prop::collection::vec((any::<prop::sample::Index>(), name()), 0..3);
    (any::<prop::sample::Index>(), name(), attributes(), kind(), links)
        .prop_map(|(parent, name, attributes, kind, links)| Made { parent, name, attributes, kind, links })
}

/// Names enough for several directory blocks.
fn crowd(entries: &mut Vec<Entry>, expected: &mut BTreeMap<Vec<u8>, Expected>) {
    let directory = Attributes { mode: 0o711, ..Attributes::default() };
    entries.push(Entry {
        path: b"crowd".to_vec(),
        attributes: directory.clone(),
        kind: EntryKind::Directory,
    });
    expected.insert(
        b"crowd".to_vec(),
        Expected { attributes: directory, kind: Kind::Directory, file: usize::MAX },
    );
    for number in 0..700 {
        let path = format!("crowd/{number:0>width$}", width = 4 + number % 40).into_bytes();
        let attributes = Attributes { uid: number as u32, ..Attributes::default() };
        entries.push(Entry { path: path.clone(), attributes: attributes.clone(), kind: EntryKind::Fifo });
        expected.insert(path, Expected { attributes, kind: Kind::Fifo, file: usize::MAX - 1 - number });
    }
}

fn join(directory: &[u8], name: &[u8]) -> Vec<u8> {
    if directory.is_empty() { name.to_vec() } else { [directory, b"/", name].concat() }
}

/// Distributes the random files to this many layers in order, and returns the layers and the expected mount.
fn layers_of(files: Vec<Made>, count: usize) -> (Vec<MadeLayer>, BTreeMap<Vec<u8>, Expected>) {
    let (mut layers, mut expected) = (Vec::new(), BTreeMap::new());
    let mut directories: Vec<Vec<u8>> = vec![Vec::new()];
    let mut entries = Vec::new();
    crowd(&mut entries, &mut expected);
    let per_layer = files.len().div_ceil(count).max(1);
    let mut files = files.into_iter().enumerate().peekable();
    for _ in 0..count {
        let mut writer = DataWriter::new(Vec::new());
        let some = files.by_ref().take(per_layer);
        one_layer(some, &mut writer, &mut entries, &mut expected, &mut directories);
        layers.push((std::mem::take(&mut entries), writer.finish().unwrap().0));
    }
    (layers, expected)
}

fn one_layer(
    files: impl Iterator<Item = (usize, Made)>,
    writer: &mut DataWriter<Vec<u8>>,
    entries: &mut Vec<Entry>,
    expected: &mut BTreeMap<Vec<u8>, Expected>,
    directories: &mut Vec<Vec<u8>>,
) {
    for (file, made) in files {
        let path = join(made.parent.get(directories.as_slice()).as_slice(), &made.name);
        if path.len() > 4000 || expected.contains_key(&path) {
            continue;
        }
        let kind = match made.kind.clone() {
            Kind::Directory => {
                directories.push(path.clone());
                EntryKind::Directory
            }
            Kind::File(bytes) => EntryKind::File(writer.append(&mut bytes.as_slice()).unwrap()),
            Kind::Symlink(target) => EntryKind::Symlink(target),
            Kind::Char(device) => EntryKind::CharDevice(device),
            Kind::Block(device) => EntryKind::BlockDevice(device),
            Kind::Fifo => EntryKind::Fifo,
        };
        let mode = if matches!(made.kind, Kind::Symlink(_)) { 0o777 } else { made.attributes.mode };
        let attributes = Attributes { mode, ..made.attributes.clone() };
        let one = Expected { attributes, kind: made.kind.clone(), file };
        entries.push(Entry { path: path.clone(), attributes: made.attributes.clone(), kind });
        expected.insert(path.clone(), one.clone());
        if matches!(made.kind, Kind::Directory) {
            continue;
        }
        for (parent, name) in made.links {
            let other = join(parent.get(directories.as_slice()).as_slice(), &name);
            if other.len() <= 4000 && !expected.contains_key(&other) {
                let kind = EntryKind::HardLink(path.clone());
                // As archivers write it.
                let attributes = made.attributes.clone();
                entries.push(Entry { path: other.clone(), attributes, kind });
                expected.insert(other, one.clone());
            }
        }
    }
}

/// Writes the metadata, and the blobs behind it.
fn write(path: &Path, tree: &Tree, blobs: &[Vec<u8>]) {
    let lengths: Vec<u64> = blobs.iter().map(|blob| blob.len() as u64).collect();
    let mut out = BufWriter::new(File::create(path).unwrap());
    let bytes = write_metadata(tree, *b"podvisor-test-id", &lengths, &mut out).unwrap();
    let file = out.into_inner().unwrap();
    assert_eq!(bytes, file.metadata().unwrap().len());
    let (begins, end) = place_blobs(bytes, &lengths);
    file.set_len(end).unwrap();
    for (blob, begin) in blobs.iter().zip(begins) {
        file.write_all_at(blob, begin).unwrap();
    }
}

fn check_attributes(path: &Path, expected: &Expected, names: u64) {
    let metadata = path.symlink_metadata().unwrap();
    let attributes = &expected.attributes;
    assert_eq!(metadata.mode() & 0o7777, u32::from(attributes.mode), "mode of {path:?}");
    assert_eq!((metadata.uid(), metadata.gid()), (attributes.uid, attributes.gid), "owner of {path:?}");
    let mtime = Timestamp { seconds: metadata.mtime(), nanoseconds: metadata.mtime_nsec() as u32 };
    assert_eq!(mtime, attributes.mtime, "mtime of {path:?}");
    assert_eq!(metadata.nlink(), names, "links of {path:?}");
    let listed: BTreeSet<Vec<u8>> = xattr::list(path).unwrap().map(|name| name.as_bytes().to_vec()).collect();
    let wanted: BTreeSet<Vec<u8>> = attributes.xattrs.keys().cloned().collect();
    assert_eq!(listed, wanted, "attributes of {path:?}");
    for (name, value) in &attributes.xattrs {
        // Linux allows user attributes only on files and directories (`xattr_permission`).
        if name.starts_with(b"user.") && !matches!(expected.kind, Kind::File(_) | Kind::Directory) {
            continue;
        }
        let got = xattr::get(path, OsStr::from_bytes(name)).unwrap();
        assert_eq!(got.as_ref(), Some(value), "attribute {} of {path:?}", name.escape_ascii());
    }
}

fn check_kind(path: &Path, kind: &Kind) {
    let metadata = path.symlink_metadata().unwrap();
    let is = metadata.file_type();
    let number = |device: &Device| nix::sys::stat::makedev(u64::from(device.major), u64::from(device.minor));
    match kind {
        Kind::Directory => assert!(is.is_dir()),
        Kind::File(bytes) => {
            assert!(is.is_file());
            assert!(std::fs::read(path).unwrap() == *bytes, "content of {path:?}");
        }
        Kind::Symlink(target) => {
            assert_eq!(
                std::fs::read_link(path).unwrap().as_os_str().as_bytes(),
                target,
                "target of {path:?}"
            );
        }
        Kind::Char(device) => assert!(is.is_char_device() && metadata.rdev() == number(device), "{path:?}"),
        Kind::Block(device) => assert!(is.is_block_device() && metadata.rdev() == number(device), "{path:?}"),
        Kind::Fifo => assert!(is.is_fifo()),
    }
}

/// Every path below `root`, relative to it.
fn walk(root: &Path, at: &[u8], found: &mut BTreeSet<Vec<u8>>) {
    for entry in std::fs::read_dir(root.join(OsStr::from_bytes(at))).unwrap() {
        let entry = entry.unwrap();
        let path = join(at, entry.file_name().as_bytes());
        if entry.file_type().unwrap().is_dir() {
            walk(root, &path, found);
        }
        found.insert(path);
    }
}

fn check_mount(root: &Path, expected: &BTreeMap<Vec<u8>, Expected>) {
    let mut found = BTreeSet::new();
    walk(root, b"", &mut found);
    assert_eq!(found, expected.keys().cloned().collect());
    let mut names: BTreeMap<usize, u64> = BTreeMap::new();
    let mut subdirectories: BTreeMap<&[u8], u64> = BTreeMap::new();
    for (path, one) in expected {
        *names.entry(one.file).or_default() += 1;
        if matches!(one.kind, Kind::Directory) {
            let parent = path.iter().rposition(|byte| *byte == b'/').map_or(&b""[..], |at| &path[..at]);
            *subdirectories.entry(parent).or_default() += 1;
        }
    }
    for (path, one) in expected {
        let links = match one.kind {
            Kind::Directory => 2 + subdirectories.get(path.as_slice()).copied().unwrap_or(0),
            _ => names[&one.file],
        };
        let path = root.join(OsStr::from_bytes(path));
        check_attributes(&path, one, links);
        check_kind(&path, &one.kind);
    }
}

/// How many trees are made: `make soak` makes more, as of images.
fn cases() -> u32 {
    std::env::var("PODVISOR_IMAGE_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(24)
}

#[test]
fn a_random_tree_of_several_layers_is_the_same_when_the_kernel_mounts_it() {
    let config = Config { cases: cases(), failure_persistence: None, ..Config::default() };
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, b"podvisor erofs mount test seed 1");
    let mut runner = TestRunner::new_with_rng(config, rng);
    let result = runner.run(&(prop::collection::vec(made(), 0..80), 1_usize..6), |(files, count)| {
        let directory = tempfile::tempdir().unwrap();
        let image = directory.path().join("image");
        let (layers, expected) = layers_of(files, count);
        let (mut tree, mut blobs) = (Tree::new(), Vec::new());
        for (number, (entries, blob)) in layers.into_iter().enumerate() {
            tree.apply_layer(number, entries).unwrap();
            blobs.push(blob);
        }
        write(&image, &tree, &blobs);
        fsck(&image);
        if let Some(mount) = Mount::new(&image, &directory.path().join("mount")) {
            check_mount(&mount.0, &expected);
        }
        Ok(())
    });
    result.unwrap();
}

#[test]
fn the_same_tree_gives_the_same_bytes() {
    let images: Vec<Vec<u8>> = (0..2)
        .map(|_| {
            let (mut entries, mut expected) = (Vec::new(), BTreeMap::new());
            crowd(&mut entries, &mut expected);
            let mut tree = Tree::new();
            tree.apply_layer(0, entries).unwrap();
            let mut out = Vec::new();
            write_metadata(&tree, [0; 16], &[], &mut out).unwrap();
            out
        })
        .collect();
    assert!(images[0] == images[1]);
}

#[test]
fn an_access_control_list_is_read_back() {
    // Version 2, then (tag, permissions, id) for the owner, user 1000, the group, the mask and others.
    let mut list = 2_u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in
        [(1_u16, 6_u16, u32::MAX), (2, 4, 1000), (4, 4, u32::MAX), (0x10, 4, u32::MAX), (0x20, 0, u32::MAX)]
    {
        list.extend_from_slice(&tag.to_le_bytes());
        list.extend_from_slice(&permissions.to_le_bytes());
        list.extend_from_slice(&id.to_le_bytes());
    }
    let name = b"system.posix_acl_access".to_vec();
    let attributes =
        Attributes { mode: 0o640, xattrs: BTreeMap::from([(name, list.clone())]), ..Attributes::default() };
    let mut tree = Tree::new();
    tree.apply_layer(0, [Entry { path: b"listed".to_vec(), attributes, kind: EntryKind::Fifo }]).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let image = directory.path().join("image");
    write(&image, &tree, &[]);
    fsck(&image);
    if let Some(mount) = Mount::new(&image, &directory.path().join("mount")) {
        let got = xattr::get(mount.0.join("listed"), "system.posix_acl_access").unwrap();
        assert_eq!(got, Some(list));
    }
}

#[test]
fn a_hundred_thousand_files_in_seventy_layers_are_one_file_system() {
    let (mut tree, mut blobs) = (Tree::new(), Vec::new());
    for layer in 0..70 {
        let mut writer = DataWriter::new(Vec::new());
        let directory = Entry {
            path: format!("{layer}").into_bytes(),
            attributes: Attributes::default(),
            kind: EntryKind::Directory,
        };
        let files = (0..1430).map(|number| {
            let content = if number == 0 { format!("of {layer}") } else { String::new() };
            Entry {
                path: format!("{layer}/{number}").into_bytes(),
                attributes: Attributes::default(),
                kind: EntryKind::File(writer.append(&mut content.as_bytes()).unwrap()),
            }
        });
        let entries: Vec<Entry> = std::iter::once(directory).chain(files).collect();
        tree.apply_layer(layer, entries).unwrap();
        blobs.push(writer.finish().unwrap().0);
    }
    let directory = tempfile::tempdir().unwrap();
    let image = directory.path().join("image");
    write(&image, &tree, &blobs);
    fsck(&image);
    if let Some(mount) = Mount::new(&image, &directory.path().join("mount")) {
        for layer in [0, 1, 69] {
            let at = mount.0.join(layer.to_string());
            assert_eq!(std::fs::read_dir(&at).unwrap().count(), 1430);
            assert_eq!(std::fs::read_to_string(at.join("0")).unwrap(), format!("of {layer}"));
        }
    }
}
