//! Unpacks one layer: decompresses, hashes and reads the archive. File contents go to a data file, the rest
//! to a tree file. Owns the choice of accepted archive entries. Never applies them to a tree; `build.rs`
//! does.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use runtime_erofs::{
    Attributes, BLOB_ALIGNMENT, DataWriter, Entry, EntryKind, MAX_METADATA_BYTES, MAX_NODES,
    is_supported_xattr,
};
use runtime_fail_points::{Point, pass};

use crate::archive::{self, Archive, ArchiveError, Kind};
use crate::compression::decompressed;
use crate::digest::Hasher;
use crate::error::{ContentError, ImageError};
use crate::tree_file::{Sizes, TreeWriter};

/// Bytes of the buffer between two steps.
const BUFFER: usize = 256 * 1024;

/// Attributes of overlay file systems. In an image they would affect the container's own overlay.
const OVERLAY: [&[u8]; 2] = [b"trusted.overlay.", b"user.overlay."];

/// The budget shared by all layers of one image: the amounts unpacked so far, and their limits.
#[derive(Debug)]
pub(crate) struct Budget {
    unpacked_limit: u64,
    unpacked: AtomicU64,
    entries: AtomicU64,
    metadata: AtomicU64,
}

impl Budget {
    pub(crate) fn new(unpacked_limit: u64) -> Budget {
        let zero = AtomicU64::default;
        Budget { unpacked_limit, unpacked: zero(), entries: zero(), metadata: zero() }
    }

    /// Adds to a counter, unless the sum is above the limit.
    fn charge(counter: &AtomicU64, add: u64, unit: &'static str, limit: u64) -> Result<(), ContentError> {
        let add_up = |size: u64| size.checked_add(add).filter(|size| *size <= limit);
        let added = counter.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add_up);
        added.map(drop).map_err(|before| ContentError::Limit {
            size: before.saturating_add(add),
            unit,
            limit,
        })
    }
}

/// The amounts that one layer has taken from its image's budget.
#[derive(Debug)]
pub(crate) struct Charges {
    budget: Arc<Budget>,
    unpacked: AtomicU64,
    entries: AtomicU64,
    metadata: AtomicU64,
}

impl Charges {
    pub(crate) fn new(budget: Arc<Budget>) -> Charges {
        let zero = AtomicU64::default;
        Charges { budget, unpacked: zero(), entries: zero(), metadata: zero() }
    }

    fn charge_unpacked(&self, bytes: u64) -> Result<(), ContentError> {
        let budget = &self.budget;
        Budget::charge(&budget.unpacked, bytes, "uncompressed bytes", budget.unpacked_limit)?;
        self.unpacked.fetch_add(bytes, Ordering::Relaxed);
        Ok(())
    }

    fn charge_entries(&self, entries: u64, names: u64) -> Result<(), ContentError> {
        Budget::charge(&self.budget.entries, entries, "archive entries", MAX_NODES as u64)?;
        self.entries.fetch_add(entries, Ordering::Relaxed);
        let (metadata, limit) = (&self.budget.metadata, MAX_METADATA_BYTES as u64);
        Budget::charge(metadata, names, "bytes of names and attributes", limit)?;
        self.metadata.fetch_add(names, Ordering::Relaxed);
        Ok(())
    }

    /// Counts an already unpacked layer.
    pub(crate) fn charge_layer(&self, sizes: &Sizes) -> Result<(), ContentError> {
        self.charge_entries(sizes.entries, sizes.names)?;
        self.charge_unpacked(sizes.unpacked)
    }

    /// Gives all of it back: the layer was not unpacked, and another host may send the right bytes.
    pub(crate) fn give_back(&self) {
        let budget = &self.budget;
        for (own, shared) in [
            (&self.unpacked, &budget.unpacked),
            (&self.entries, &budget.entries),
            (&self.metadata, &budget.metadata),
        ] {
            shared.fetch_sub(own.swap(0, Ordering::Relaxed), Ordering::Relaxed);
        }
    }
}

/// A layer in two files, not yet synced.
#[derive(Debug)]
pub(crate) struct Unpacked {
    /// The contents, padded to a multiple of 2 MiB; empty if there are none.
    pub(crate) data: File,
    pub(crate) tree: File,
    /// Bytes of contents, a multiple of 4 KiB.
    pub(crate) content_bytes: u64,
    pub(crate) tree_bytes: u64,
}

/// A layer as described by manifest and config.
#[derive(Debug, Clone)]
pub(crate) struct ExpectedLayer {
    /// The layer's name in errors.
    pub(crate) what: String,
    pub(crate) diff_id: String,
}

/// The target files of an unpacked layer.
#[derive(Debug, Clone)]
pub(crate) struct Places {
    pub(crate) data: PathBuf,
    pub(crate) tree: PathBuf,
}

/// Unpacks `source`, up to its end, into new files at `places`. After an error, the caller gives the charges
/// back.
pub(crate) fn unpack(
    expected: &ExpectedLayer,
    source: &mut impl Read,
    places: &Places,
    charges: &Arc<Charges>,
) -> Result<Unpacked, ImageError> {
    let broken =
        |error: io::Error| ImageError::content(&expected.what, ContentError::Decompress(error.to_string()));
    let plain = decompressed(source).map_err(broken)?;
    let charges = Arc::clone(charges);
    let hash = Hasher::like(&expected.diff_id);
    let plain = Uncompressed { source: plain, hash, count: 0, charges: charges.clone(), wrong: None };
    let (data, tree) =
        (create(&places.data, Point::ImageLayer)?, create(&places.tree, Point::ImageLayerTree)?);
    let mut layer = Layer {
        archive: Archive::new(BufReader::with_capacity(BUFFER, plain)),
        data: DataWriter::new(BufWriter::with_capacity(BUFFER, data)),
        tree: TreeWriter::new(tree).map_err(ImageError::disk("writing", &places.tree))?,
        charges,
        sizes: Sizes::default(),
    };
    let outcome = layer.entries();
    let Layer { archive, data, tree, mut sizes, .. } = layer;
    let mut plain = archive.into_inner();
    // The stream has the better error for its own failure than the archive's reader.
    let outcome = match (plain.get_mut().wrong.take(), outcome) {
        (Some(wrong), _) | (None, Err(UnpackError::Content(wrong))) => {
            Err(ImageError::content(&expected.what, wrong))
        }
        (None, Err(UnpackError::Disk(error))) => Err(ImageError::disk("writing", &places.data)(error)),
        (None, Ok(())) => Ok(()),
    };
    outcome?;
    let drained = io::copy(&mut plain, &mut io::sink());
    let plain = plain.into_inner();
    match (plain.wrong, drained) {
        (Some(wrong), _) => return Err(ImageError::content(&expected.what, wrong)),
        (None, Err(error)) => return Err(broken(error)),
        (None, Ok(_)) => {}
    }
    let actual = plain.hash.finish();
    if actual != expected.diff_id {
        let wrong = ContentError::DiffId { expected: expected.diff_id.clone(), actual };
        return Err(ImageError::content(&expected.what, wrong));
    }
    sizes.unpacked = sizes.unpacked.saturating_add(plain.count);
    finish(data, tree, sizes, places)
}

/// Creates a new file. An earlier attempt may have left a part.
fn create(path: &Path, point: Point) -> Result<File, ImageError> {
    let mut options = File::options();
    options.read(true).write(true).create(true).truncate(true);
    pass(point).and_then(|()| options.open(path)).map_err(ImageError::disk("creating", path))
}

/// Completes both files of a layer. The data file's length is a multiple of 2 MiB, at no cost in disk space.
/// Without the padding, an access to pages beyond the file would be a bus error.
fn finish(
    data: DataWriter<BufWriter<File>>,
    tree: TreeWriter,
    mut sizes: Sizes,
    places: &Places,
) -> Result<Unpacked, ImageError> {
    let of_data = |error: io::Error| ImageError::disk("writing", &places.data)(error);
    let (buffered, content_bytes) = data.finish().map_err(of_data)?;
    let data = buffered.into_inner().map_err(|error| of_data(error.into_error()))?;
    data.set_len(content_bytes.next_multiple_of(BLOB_ALIGNMENT)).map_err(of_data)?;
    sizes.content = content_bytes;
    let (tree, tree_bytes) = tree.finish(&sizes).map_err(ImageError::disk("writing", &places.tree))?;
    Ok(Unpacked { data, tree, content_bytes, tree_bytes })
}

/// A failure to unpack a layer.
enum UnpackError {
    Content(ContentError),
    Disk(io::Error),
}

impl From<ArchiveError> for UnpackError {
    fn from(ArchiveError { place, reason }: ArchiveError) -> Self {
        UnpackError::Content(ContentError::Archive { place, reason })
    }
}

struct Layer<R, W> {
    archive: Archive<R>,
    data: DataWriter<W>,
    tree: TreeWriter,
    charges: Arc<Charges>,
    /// All sizes except the archive's uncompressed bytes: those are counted while reading.
    sizes: Sizes,
}

impl<R: Read, W: io::Write> Layer<R, W> {
    fn entries(&mut self) -> Result<(), UnpackError> {
        while let Some(entry) = self.archive.next_entry()? {
            self.charge(&entry)?;
            let entry = self.entry(entry)?;
            self.tree.append(&entry).map_err(UnpackError::Disk)?;
        }
        Ok(())
    }

    fn charge(&mut self, entry: &archive::Entry) -> Result<(), UnpackError> {
        let link = match &entry.kind {
            Kind::Symlink(target) | Kind::HardLink(target) => target.len(),
            _ => 0,
        };
        let xattrs: usize = entry.xattrs.iter().map(|(name, value)| name.len() + value.len()).sum();
        let bytes = (entry.path.len() + link + xattrs) as u64;
        self.charges.charge_entries(1, bytes).map_err(UnpackError::Content)?;
        self.sizes.entries += 1;
        self.sizes.names += bytes;
        self.sizes.unpacked = self.sizes.unpacked.saturating_add(entry.holes);
        // The holes of a sparse file appear in no counted stream.
        self.charges.charge_unpacked(entry.holes).map_err(UnpackError::Content)
    }

    fn entry(&mut self, entry: archive::Entry) -> Result<Entry, UnpackError> {
        let archive::Entry { path, kind, mode, uid, gid, mtime, xattrs, holes: _ } = entry;
        let kind = match kind {
            Kind::File => EntryKind::File(self.content()?),
            Kind::Directory => EntryKind::Directory,
            Kind::Symlink(target) => EntryKind::Symlink(target),
            Kind::HardLink(target) => EntryKind::HardLink(target),
            Kind::CharDevice(device) => EntryKind::CharDevice(device),
            Kind::BlockDevice(device) => EntryKind::BlockDevice(device),
            Kind::Fifo => EntryKind::Fifo,
        };
        let attributes = Attributes { mode, uid, gid, mtime, xattrs: kept_xattrs(xattrs, &path) };
        Ok(Entry { path, attributes, kind })
    }

    fn content(&mut self) -> Result<runtime_erofs::Extent, UnpackError> {
        self.data.append(&mut self.archive.content()).map_err(|error| {
            if self.archive.content_failed() {
                UnpackError::from(self.archive.broken(error.to_string()))
            } else {
                UnpackError::Disk(error)
            }
        })
    }
}

/// Drops attributes not supported by EROFS (a builder's `com.apple.…`), as other runtimes do.
fn kept_xattrs(xattrs: BTreeMap<Vec<u8>, Vec<u8>>, path: &[u8]) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let keep =
        |name: &[u8]| is_supported_xattr(name) && !OVERLAY.iter().any(|prefix| name.starts_with(prefix));
    let (kept, dropped): (BTreeMap<_, _>, BTreeMap<_, _>) =
        xattrs.into_iter().partition(|(name, _)| keep(name));
    for name in dropped.keys() {
        tracing::debug!(path = %path.escape_ascii(), name = %name.escape_ascii(), "extended attribute left out");
    }
    kept
}

/// The uncompressed stream, counted and hashed while reading.
struct Uncompressed<'a> {
    source: Box<dyn Read + 'a>,
    hash: Hasher,
    count: u64,
    charges: Arc<Charges>,
    wrong: Option<ContentError>,
}

impl Read for Uncompressed<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = match self.source.read(buffer) {
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Err(error),
            Err(error) => {
                self.wrong.get_or_insert(ContentError::Decompress(error.to_string()));
                return Err(error);
            }
        };
        if let Err(wrong) = self.charges.charge_unpacked(count as u64) {
            let message = wrong.to_string();
            self.wrong.get_or_insert(wrong);
            return Err(io::Error::other(message));
        }
        self.hash.update(&buffer[..count]);
        self.count += count as u64;
        Ok(count)
    }
}
