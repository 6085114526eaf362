//! Layers of a random image, with their effects on the model: entries of every kind, whiteouts anywhere in
//! the archive, and paths in every equivalent spelling.

use std::collections::BTreeMap;
use std::io::Write;

use super::Dice;
use super::model::{Kind, Model, Node, Path, SECOND};
use super::tar::{Entry, Tar};
use crate::{Layer, digest_of};

const LAYERS_MAX: usize = 6;
const ENTRIES_MAX: usize = 40;
/// Longest path, so no spelling of it is beyond PATH_MAX.
const PATH_BYTES_MAX: usize = 1500;

const MEDIA_TYPES: [&str; 3] = [
    "application/vnd.oci.image.layer.v1.tar",
    "application/vnd.oci.image.layer.v1.tar+gzip",
    "application/vnd.oci.image.layer.v1.tar+zstd",
];

/// The layers of an image, and its content.
pub fn image(seed: u64) -> (Vec<Layer>, Model) {
    let mut dice = Dice::new(seed);
    let mut model = Model::new();
    let layers = (0..1 + dice.below(LAYERS_MAX)).map(|_| Making::layer(&mut model, &mut dice)).collect();
    (layers, model)
}

/// A layer in progress.
struct Making<'a> {
    model: &'a mut Model,
    dice: &'a mut Dice,
    entries: Vec<Entry>,
    /// Paths of the layers below still named by this layer's archive: nothing replaces them.
    needed: Vec<Path>,
    /// Links of this layer to directories, with those directories.
    ways: Vec<(Path, Path)>,
}

impl Making<'_> {
    fn layer(model: &mut Model, dice: &mut Dice) -> Layer {
        let mut making = Making { model, dice, entries: Vec::new(), needed: Vec::new(), ways: Vec::new() };
        let whiteouts = making.whiteouts();
        for _ in 0..making.dice.below(ENTRIES_MAX) {
            making.entry();
        }
        for whiteout in whiteouts {
            let at = making.dice.below(making.entries.len() + 1);
            making.entries.insert(at, whiteout);
        }
        let mut tar = Tar::new();
        for entry in &making.entries {
            if making.dice.once_in(12) {
                tar.of_other_systems(making.dice);
            }
            tar.entry(entry, making.dice);
        }
        let plain = tar.end(making.dice);
        packed(&plain, making.dice)
    }

    /// Removes some of the lower content, and returns the whiteouts for it.
    fn whiteouts(&mut self) -> Vec<Entry> {
        let mut entries = Vec::new();
        for _ in 0..self.dice.below(5) {
            let all = self.model.paths(|_| true);
            let Some(path) = self.pick(&all) else { break };
            if path.last().is_some_and(|name| name.len() > 251) {
                // No archive can name its whiteout.
                continue;
            }
            let is_opaque = self.model.node(&path).is_some_and(Node::is_directory) && self.dice.once_in(2);
            let (parent, name) = if is_opaque {
                self.model.clear(&path);
                (path.clone(), b".wh..wh..opq".to_vec())
            } else {
                self.model.remove(&path);
                let (name, parent) = path.split_last().unwrap();
                (parent.to_vec(), [b".wh.", &name[..]].concat())
            };
            self.needed.push(parent.clone());
            let spelt = self.spelt(&parent, &name);
            entries.push(Entry { path: spelt, ..plain(b'0') });
        }
        entries
    }

    fn pick(&mut self, paths: &[Path]) -> Option<Path> {
        if paths.is_empty() { None } else { Some(paths[self.dice.below(paths.len())].clone()) }
    }

    fn entry(&mut self) {
        if self.dice.once_in(25) {
            let (node, entry) = self.node(true);
            self.model.put(&[], node);
            let path = self.dice.one(&[&b"./"[..], b"/", b".", b"a/../"]).to_vec();
            self.entries.push(Entry { kind: b'5', content: Vec::new(), path, ..entry });
            return;
        }
        let Some((path, spelt)) = self.place() else { return };
        if self.dice.once_in(7) && self.hard_link(&path, &spelt) {
            return;
        }
        let keeps = self.dice.once_in(2);
        let was_directory = self.model.node(&path).is_some_and(Node::is_directory);
        let (node, entry) = self.node(was_directory && keeps);
        let mut spelt = spelt;
        if node.is_directory() {
            spelt.extend(self.dice.one(&[&b""[..], b"/", b"//", b"/."]));
            if matches!(entry.kind, 0 | b'0') && !spelt.ends_with(b"/") {
                spelt.push(b'/');
            }
        }
        if let (Kind::Symlink(target), false) = (&node.kind, was_directory)
            && target.starts_with(b"/")
        {
            let directory = components(target);
            if self.model.node(&directory).is_some_and(Node::is_directory) && !path.starts_with(&directory) {
                self.needed.extend([path.clone(), directory.clone()]);
                self.ways.push((path.clone(), directory));
            }
        }
        self.model.put(&path, node);
        self.entries.push(Entry { path: spelt, ..entry });
    }

    /// A possible path of an entry, and a spelling of it.
    fn place(&mut self) -> Option<(Path, Vec<u8>)> {
        let old = self.model.paths(|_| true);
        if self.dice.once_in(5)
            && let Some(path) = self.pick(&old)
            && !self.needed.iter().any(|needed| needed.starts_with(&path))
        {
            let (name, parent) = path.split_last().unwrap();
            let spelt = self.spelt(parent, name);
            return Some((path, spelt));
        }
        let name = self.name();
        let needed = self.needed.clone();
        let is_free = |model: &Model, path: &Path| {
            let bytes: usize = path.iter().map(|part| part.len() + 1).sum();
            model.node(path).is_none() && bytes <= PATH_BYTES_MAX && !needed.contains(path)
        };
        // By way of a link to the directory.
        if !self.ways.is_empty() && self.dice.once_in(3) {
            let (link, directory) = self.ways[self.dice.below(self.ways.len())].clone();
            let path = [directory, vec![name.clone()]].concat();
            return is_free(self.model, &path).then(|| (path, self.spelt(&link, &name)));
        }
        let mut directories = self.model.paths(Node::is_directory);
        directories.push(Vec::new());
        let mut parent = self.pick(&directories)?;
        if self.dice.once_in(8) {
            // A directory without an entry of its own.
            parent.push(format!("implied-{}-{}", self.entries.len(), self.dice.below(1000)).into_bytes());
        }
        let path = [parent.clone(), vec![name.clone()]].concat();
        is_free(self.model, &path).then(|| (path, self.spelt(&parent, &name)))
    }

    fn name(&mut self) -> Vec<u8> {
        let length = match self.dice.below(12) {
            0 => 255,
            1 => 100 + self.dice.below(155),
            _ => 1 + self.dice.below(12),
        };
        let is_text = self.dice.below(4) > 0;
        let mut name: Vec<u8> = (0..length)
            .map(|_| match (is_text, self.dice.next() as u8) {
                (true, byte) => b'a' + byte % 26,
                (false, 0 | b'/') => b' ',
                (false, byte) => byte,
            })
            .collect();
        if name == b"." || name == b".." || name.starts_with(b".wh.") {
            name[0] = b'_';
        }
        name
    }

    /// A path as some builder writes it.
    fn spelt(&mut self, parent: &[Vec<u8>], name: &[u8]) -> Vec<u8> {
        let mut path =
            self.dice.one(&[&b""[..], b"", b"/", b"./", b"//", b".//", b"../", b"none/../"]).to_vec();
        for part in parent {
            path.extend(part);
            path.extend(self.dice.one(&[&b"/"[..], b"/", b"/", b"//", b"/./", b"/none/../"]));
        }
        path.extend(name);
        path
    }

    fn hard_link(&mut self, path: &Path, spelt: &[u8]) -> bool {
        let targets = self.model.paths(|node| !node.is_directory());
        let Some(target) = self.pick(&targets) else { return false };
        if target.starts_with(path) || path.starts_with(&target) {
            return false;
        }
        let (name, parent) = target.split_last().unwrap();
        let link = self.spelt(parent, name);
        // An archiver writes the target's attributes. If a builder writes others, all unpackers set these.
        let entry =
            Entry { path: spelt.to_vec(), link, mode: 0o444, owner: (3, 4), mtime: (5, 6), ..plain(b'1') };
        self.model.link(path, &target, (entry.mode, entry.owner, entry.mtime));
        self.entries.push(entry);
        true
    }

    /// A node, and its entry.
    fn node(&mut self, is_directory: bool) -> (Node, Entry) {
        let dice = &mut *self.dice;
        let (kind, byte) = match if is_directory { 0 } else { dice.below(12) } {
            0..=2 => (Kind::Directory, *dice.one(&[&b'5', &b'5', &b'D', &b'0', &0])),
            3..=7 => (Kind::File(content(dice)), *dice.one(&[&b'0', &b'0', &b'0', &0, &b'7'])),
            8 | 9 => (Kind::Symlink(target(&*self.model, dice)), b'2'),
            10 if dice.once_in(2) => {
                (Kind::Char(1 + dice.below(4000) as u32, dice.below(1 << 20) as u32), b'3')
            }
            10 => (Kind::Block(1 + dice.below(4000) as u32, dice.below(1 << 20) as u32), b'4'),
            _ => (Kind::Fifo, b'6'),
        };
        let big = dice.once_in(4);
        let mut id = || if big { dice.next() as u32 >> 1 } else { dice.below(70_000) as u32 };
        let owner = (id(), id());
        let seconds =
            if dice.once_in(4) { dice.below(1 << 34) as i64 - (1 << 33) } else { dice.below(1 << 31) as i64 };
        let nanoseconds = if dice.once_in(2) { dice.below(SECOND as usize) as u32 } else { 0 };
        let mode = dice.below(0o10000) as u32;
        let is_link = matches!(kind, Kind::Symlink(_));
        let xattrs = if dice.once_in(5) { attributes(dice, &kind) } else { BTreeMap::new() };
        let (content, link, device) = match &kind {
            Kind::File(content) => (content.clone(), Vec::new(), (0, 0)),
            Kind::Symlink(target) => (Vec::new(), target.clone(), (0, 0)),
            Kind::Char(major, minor) | Kind::Block(major, minor) => {
                (Vec::new(), Vec::new(), (*major, *minor))
            }
            Kind::Directory if byte == b'D' => (b"Ylisted\0\0".to_vec(), Vec::new(), (0, 0)),
            _ => (Vec::new(), Vec::new(), (0, 0)),
        };
        let mut written: Vec<_> = xattrs.clone().into_iter().collect();
        if dice.once_in(20) {
            written.push((b"com.apple.quarantine".to_vec(), b"left out".to_vec()));
            written.push((b"trusted.overlay.opaque".to_vec(), b"y".to_vec()));
        }
        let mtime = (seconds, nanoseconds);
        let entry = Entry {
            kind: byte,
            path: Vec::new(),
            link,
            mode,
            owner,
            mtime,
            device,
            xattrs: written,
            content,
        };
        (Node { kind, mode: if is_link { 0o777 } else { mode }, owner, mtime, xattrs }, entry)
    }
}

fn plain(kind: u8) -> Entry {
    let (path, link, content) = (Vec::new(), Vec::new(), Vec::new());
    Entry {
        kind,
        path,
        link,
        mode: 0o600,
        owner: (0, 0),
        mtime: (0, 0),
        device: (0, 0),
        xattrs: Vec::new(),
        content,
    }
}

fn components(target: &[u8]) -> Path {
    target.split(|byte| *byte == b'/').filter(|part| !part.is_empty()).map(<[u8]>::to_vec).collect()
}

/// Contents around the sizes of blocks, with holes in some.
fn content(dice: &mut Dice) -> Vec<u8> {
    let size = match dice.below(8) {
        0 => 0,
        1 => 1,
        2 => 4094 + dice.below(5),
        3 => 8190 + dice.below(5),
        4 => 262_144 + dice.below(3),
        _ => dice.below(20_000),
    };
    let mut bytes = dice.bytes(size.min(4096));
    bytes = bytes.iter().map(|byte| byte | 1).cycle().take(size).collect();
    for _ in 0..if dice.once_in(2) { dice.below(40) } else { 0 } {
        let from = dice.below(size + 1);
        let to = (from + 1024 + dice.below(5000)).min(size);
        bytes[from..to].fill(0);
    }
    bytes
}

fn target(model: &Model, dice: &mut Dice) -> Vec<u8> {
    let directories = model.paths(Node::is_directory);
    if !directories.is_empty() && dice.once_in(2) {
        let directory = &directories[dice.below(directories.len())];
        return [b"/", &directory.join(&b'/')[..]].concat();
    }
    let length = if dice.once_in(6) { 4095 } else { 1 + dice.below(120) };
    dice.bytes(length).iter().map(|byte| if *byte == 0 { b'.' } else { *byte }).collect()
}

fn attributes(dice: &mut Dice, kind: &Kind) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut found = BTreeMap::new();
    for number in 0..1 + dice.below(4) {
        let space = match kind {
            Kind::File(_) | Kind::Directory => *dice.one(&[&"user", &"trusted", &"security"]),
            _ => "trusted",
        };
        let length = 1 + if dice.once_in(5) { dice.below(5000) } else { dice.below(60) };
        found.insert(format!("{space}.name{number}").into_bytes(), dice.bytes(length));
    }
    found
}

/// The archive, compressed in one of many ways, under any media type.
fn packed(plain: &[u8], dice: &mut Dice) -> Layer {
    let gzip = |bytes: &[u8]| {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    };
    let cut = dice.below(plain.len() + 1);
    let bytes = match dice.below(5) {
        0 => plain.to_vec(),
        1 => gzip(plain),
        // In two members.
        2 => [gzip(&plain[..cut]), gzip(&plain[cut..])].concat(),
        3 => zstd::encode_all(plain, 1).unwrap(),
        // A skippable frame, and two others.
        _ => [
            b"\x53\x2a\x4d\x18\x01\x00\x00\x00\x09".to_vec(),
            zstd::encode_all(&plain[..cut], 1).unwrap(),
            zstd::encode_all(&plain[cut..], 1).unwrap(),
        ]
        .concat(),
    };
    let media_type = MEDIA_TYPES[dice.below(3)].to_owned();
    Layer { media_type, bytes, diff_id: digest_of(plain) }
}
