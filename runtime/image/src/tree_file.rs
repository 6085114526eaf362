//! A layer's tree on disk: its archive's entries in order, without the contents of files. Owns the form of
//! the file. Never applies an entry to a tree; `build.rs` does.
//!
//! ```text
//! magic │ version u32 │ entry, entry, …  │ Sizes: five u64 │ SHA-256 of all before it
//!                       (postcard)         (little-endian)
//! ```
//! The whole file is read and checked before its first entry is used. A truncated, altered or other-version
//! file is an error, and its layer is fetched again.

use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::path::Path;

use runtime_erofs::{Entry, MAX_METADATA_BYTES, MAX_NODES};
use sha2::{Digest, Sha256};

use crate::error::ImageError;
use crate::verity::{self, VerityDigest};

const MAGIC: &[u8; 8] = b"podvtree";

/// Version of the entries' form, and of the layout of contents in the data file. Every change of either
/// increases it.
const VERSION: u32 = 1;

const HEADER_BYTES: usize = MAGIC.len() + 4;
const SIZES_BYTES: usize = 5 * 8;
const SUM_BYTES: usize = 32;

/// Most bytes of an entry besides its names and attributes: fewer than twenty numbers of at most ten bytes.
const ENTRY_BYTES_MAX: usize = 200;

/// Most bytes of a tree: the largest possible layer within an image's limits.
const TREE_BYTES_MAX: u64 = (MAX_METADATA_BYTES + MAX_NODES * ENTRY_BYTES_MAX) as u64;

/// The size of a layer. It counts against an image's limits, whether the layer was unpacked for this image or
/// already here.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Sizes {
    /// Entries of the archive.
    pub(crate) entries: u64,
    /// Bytes of names, link targets and attributes.
    pub(crate) names: u64,
    /// Bytes of the uncompressed archive and of sparse files' holes.
    pub(crate) unpacked: u64,
    /// Bytes of contents in the data file, a multiple of 4 KiB.
    pub(crate) content: u64,
}

impl Sizes {
    fn encode(&self, body: u64) -> [u8; SIZES_BYTES] {
        let Sizes { entries, names, unpacked, content } = *self;
        let mut bytes = [0; SIZES_BYTES];
        for (to, number) in bytes.chunks_exact_mut(8).zip([entries, names, unpacked, content, body]) {
            to.copy_from_slice(&number.to_le_bytes());
        }
        bytes
    }

    /// Returns the sizes, and the bytes of all entries.
    fn decode(bytes: &[u8]) -> Option<(Sizes, u64)> {
        let mut numbers =
            bytes.chunks_exact(8).filter_map(|one| Some(u64::from_le_bytes(one.try_into().ok()?)));
        let mut next = || numbers.next();
        let sizes = Sizes { entries: next()?, names: next()?, unpacked: next()?, content: next()? };
        Some((sizes, next()?))
    }
}

/// Writes a tree, entry by entry.
pub(crate) struct TreeWriter {
    out: BufWriter<File>,
    sum: Sha256,
    body: u64,
    buffer: Vec<u8>,
}

impl TreeWriter {
    /// Starts a tree in an empty file.
    pub(crate) fn new(file: File) -> io::Result<TreeWriter> {
        let mut writer =
            TreeWriter { out: BufWriter::new(file), sum: Sha256::new(), body: 0, buffer: Vec::new() };
        writer.put(MAGIC)?;
        writer.put(&VERSION.to_le_bytes())?;
        Ok(writer)
    }

    pub(crate) fn append(&mut self, entry: &Entry) -> io::Result<()> {
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.clear();
        buffer = postcard::to_extend(entry, buffer).map_err(io::Error::other)?;
        self.body += buffer.len() as u64;
        self.put(&buffer)?;
        self.buffer = buffer;
        Ok(())
    }

    /// Ends the tree. Returns its file and length.
    pub(crate) fn finish(mut self, sizes: &Sizes) -> io::Result<(File, u64)> {
        let ending = sizes.encode(self.body);
        self.put(&ending)?;
        let sum = self.sum.finalize_reset();
        self.out.write_all(&sum)?;
        let file = self.out.into_inner().map_err(io::IntoInnerError::into_error)?;
        Ok((file, HEADER_BYTES as u64 + self.body + (SIZES_BYTES + SUM_BYTES) as u64))
    }

    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.sum.update(bytes);
        self.out.write_all(bytes)
    }
}

/// A tree with a verified checksum.
pub(crate) struct TreeFile {
    bytes: Vec<u8>,
    pub(crate) sizes: Sizes,
}

impl std::fmt::Debug for TreeFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TreeFile").field("sizes", &self.sizes).finish_non_exhaustive()
    }
}

impl TreeFile {
    /// Reads the tree at `path`, and checks its stored digest, if any.
    ///
    /// # Errors
    /// [`ImageError::Disk`], also for a damaged or replaced file ([`is_damage`]).
    pub(crate) fn read_stored(path: &Path, stored: Option<&VerityDigest>) -> Result<TreeFile, ImageError> {
        let failed = ImageError::disk("reading", path);
        let read = || {
            let file = File::open(path)?;
            verity::check(&file, stored)?;
            let length = file.metadata()?.len();
            if length > TREE_BYTES_MAX {
                return Err(damaged(format!("a tree of {length} bytes, more than {TREE_BYTES_MAX}")));
            }
            let mut bytes = Vec::new();
            file.take(TREE_BYTES_MAX).read_to_end(&mut bytes)?;
            TreeFile::parse(bytes)
        };
        read().map_err(failed)
    }

    fn parse(bytes: Vec<u8>) -> io::Result<TreeFile> {
        let Some((header, rest)) = bytes.split_at_checked(HEADER_BYTES) else {
            return Err(damaged(format!("a tree of {} bytes has no header", bytes.len())));
        };
        if !header.starts_with(MAGIC) {
            return Err(damaged("it is no layer's tree".to_owned()));
        }
        if !header.ends_with(&VERSION.to_le_bytes()) {
            let version = header.iter().rev().take(4).fold(0, |number, byte| number << 8 | u32::from(*byte));
            return Err(damaged(format!("its version is {version}, not {VERSION}")));
        }
        let body =
            rest.len().checked_sub(SIZES_BYTES + SUM_BYTES).ok_or_else(|| damaged("it is cut off".into()))?;
        let (summed, sum) = bytes.split_at(bytes.len() - SUM_BYTES);
        if Sha256::digest(summed)[..] != *sum {
            return Err(damaged("its checksum is wrong".to_owned()));
        }
        match Sizes::decode(&rest[body..body + SIZES_BYTES]) {
            Some((sizes, length)) if length == body as u64 => Ok(TreeFile { bytes, sizes }),
            _ => Err(damaged("its length is wrong".to_owned())),
        }
    }

    /// Returns the entries, in order. Iteration stops after the last one or at the first unreadable one.
    /// [`Entries::end`] distinguishes the two.
    pub(crate) fn entries(&self) -> Entries<'_> {
        let end = self.bytes.len() - SIZES_BYTES - SUM_BYTES;
        Entries { rest: &self.bytes[HEADER_BYTES..end], left: self.sizes.entries, failure: None }
    }
}

/// The entries of a tree.
#[derive(Debug)]
pub(crate) struct Entries<'a> {
    rest: &'a [u8],
    left: u64,
    failure: Option<postcard::Error>,
}

impl Entries<'_> {
    /// Checks that all entries were read and nothing follows them.
    pub(crate) fn end(self) -> io::Result<()> {
        match (self.failure, self.left, self.rest.len()) {
            (None, 0, 0) => Ok(()),
            (Some(error), ..) => Err(damaged(format!("an entry cannot be read: {error}"))),
            (None, left, bytes) => Err(damaged(format!("{left} entries and {bytes} bytes are left over"))),
        }
    }
}

impl Iterator for Entries<'_> {
    type Item = Entry;

    fn next(&mut self) -> Option<Entry> {
        if self.left == 0 || self.failure.is_some() {
            return None;
        }
        match postcard::take_from_bytes(self.rest) {
            Ok((entry, rest)) => {
                self.rest = rest;
                self.left -= 1;
                Some(entry)
            }
            Err(error) => {
                self.failure = Some(error);
                None
            }
        }
    }
}

fn damaged(reason: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, reason)
}

/// Returns true if a tree is missing or damaged. Its layer must then be fetched again.
pub(crate) fn is_damage(error: &ImageError) -> bool {
    let kinds = [io::ErrorKind::InvalidData, io::ErrorKind::NotFound];
    matches!(error, ImageError::Disk { source, .. } if kinds.contains(&source.kind()))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::fs;

    use proptest::prelude::*;
    use runtime_erofs::{Attributes, Device, EntryKind, Extent, Timestamp};

    use super::*;

    fn written(path: &Path, entries: &[Entry], sizes: &Sizes) -> u64 {
        let mut writer = TreeWriter::new(File::create(path).unwrap()).unwrap();
        entries.iter().for_each(|entry| writer.append(entry).unwrap());
        let (file, length) = writer.finish(sizes).unwrap();
        assert_eq!(file.metadata().unwrap().len(), length);
        length
    }

    fn bytes(most: usize) -> impl Strategy<Value = Vec<u8>> {
        prop::collection::vec(any::<u8>(), 0..most)
    }

    fn entry() -> impl Strategy<Value = Entry> {
        let device = || (any::<u32>(), any::<u32>()).prop_map(|(major, minor)| Device { major, minor });
        let kind = prop_oneof![
            Just(EntryKind::Directory),
            Just(EntryKind::Fifo),
            (any::<u64>(), any::<u64>())
                .prop_map(|(offset, length)| EntryKind::File(Extent { offset, length })),
            bytes(60).prop_map(EntryKind::Symlink),
            bytes(60).prop_map(EntryKind::HardLink),
            device().prop_map(EntryKind::CharDevice),
            device().prop_map(EntryKind::BlockDevice),
        ];
        let numbers = (any::<u16>(), any::<u32>(), any::<u32>(), any::<i64>(), any::<u32>());
        let xattrs = prop::collection::btree_map(bytes(20), bytes(40), 0..3);
        (bytes(80), kind, numbers, xattrs).prop_map(|(path, kind, numbers, xattrs)| {
            let (mode, uid, gid, seconds, nanoseconds) = numbers;
            let mtime = Timestamp { seconds, nanoseconds };
            Entry { path, kind, attributes: Attributes { mode, uid, gid, mtime, xattrs } }
        })
    }

    proptest! {
        #[test]
        fn a_tree_is_read_as_it_was_written_and_any_damage_is_noticed(
            entries in prop::collection::vec(entry(), 0..20),
            at in any::<prop::sample::Index>(),
            bit in 0_u32..8,
        ) {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("tree");
            let sizes = Sizes { entries: entries.len() as u64, names: 7, unpacked: u64::MAX, content: 4096 };
            written(&path, &entries, &sizes);
            let tree = TreeFile::read_stored(&path, None).unwrap();
            prop_assert_eq!(tree.sizes, sizes);
            let mut read = tree.entries();
            prop_assert_eq!(read.by_ref().collect::<Vec<_>>(), entries);
            read.end().unwrap();

            let whole = fs::read(&path).unwrap();
            let mut altered = whole.clone();
            altered[at.index(whole.len())] ^= 1_u8 << bit;
            let longer = [&whole[..], b"x"].concat();
            for damaged in [&altered[..], &whole[..at.index(whole.len())], &longer] {
                fs::write(&path, damaged).unwrap();
                prop_assert!(is_damage(&TreeFile::read_stored(&path, None).unwrap_err()));
            }
        }
    }

    #[test]
    fn a_tree_of_another_version_or_with_other_counts_is_refused_by_name() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("tree");
        let why = || match TreeFile::read_stored(&path, None) {
            Err(ImageError::Disk { source, .. }) => source.to_string(),
            other => panic!("{other:?}"),
        };
        let fifo = Entry {
            path: b"p".to_vec(),
            attributes: Attributes { xattrs: BTreeMap::new(), ..Attributes::default() },
            kind: EntryKind::Fifo,
        };
        written(&path, std::slice::from_ref(&fifo), &Sizes { entries: 2, ..Sizes::default() });
        let tree = TreeFile::read_stored(&path, None).unwrap();
        let mut entries = tree.entries();
        assert_eq!(entries.by_ref().count(), 1);
        assert!(entries.end().unwrap_err().to_string().starts_with("an entry cannot be read"));
        written(&path, &[fifo], &Sizes::default());
        let left = TreeFile::read_stored(&path, None).unwrap().entries().end().unwrap_err().to_string();
        assert!(left.starts_with("0 entries and"), "{left}");

        let mut bytes = fs::read(&path).unwrap();
        bytes[MAGIC.len()] = 9;
        fs::write(&path, &bytes).unwrap();
        assert_eq!(why(), "its version is 9, not 1");
        fs::write(&path, b"something else").unwrap();
        assert_eq!(why(), "it is no layer's tree");
        File::create(&path).unwrap().set_len(TREE_BYTES_MAX + 1).unwrap();
        assert!(why().contains("more than"), "{}", why());
        fs::remove_file(&path).unwrap();
        assert!(is_damage(&TreeFile::read_stored(&path, None).unwrap_err()));
    }
}
