//! Unpacks one layer: decompresses, hashes and reads the archive; contents go to a data blob, the rest to entries.
//! Owns what is accepted from an archive; never applies it to a tree.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use runtime_erofs::{
    Attributes, DataWriter, Entry, EntryKind, MAX_METADATA_BYTES, MAX_NODES, is_supported_xattr,
};
use sha2::{Digest, Sha256};

use crate::archive::{self, Archive, Broken, Kind};
use crate::error::{ImageError, Wrong};
use crate::manifest::Compression;

/// Bytes between the steps.
const BUFFER: usize = 256 * 1024;

/// Attributes of overlay file systems. In an image they would change what the container's own overlay shows.
const OVERLAY: [&[u8]; 2] = [b"trusted.overlay.", b"user.overlay."];

/// What all layers of one image share: how much may still be unpacked.
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

    fn charge(counter: &AtomicU64, add: u64, unit: &'static str, limit: u64) -> Result<(), Wrong> {
        let size = counter.fetch_add(add, Ordering::Relaxed) + add;
        if size > limit { Err(Wrong::Limit { size, unit, limit }) } else { Ok(()) }
    }
}

/// A layer whose contents are in a data blob.
#[derive(Debug)]
pub(crate) struct Unpacked {
    pub(crate) entries: Vec<Entry>,
    pub(crate) data: File,
}

/// What a layer must be.
#[derive(Debug, Clone)]
pub(crate) struct Wanted {
    /// Names it in errors.
    pub(crate) what: String,
    pub(crate) compression: Compression,
    pub(crate) diff_id: String,
    /// The number of its data blob.
    pub(crate) blob: u32,
}

/// Unpacks what `source` gives, up to its end. Contents go to a new file at `data`.
pub(crate) fn unpack(
    wanted: &Wanted,
    source: &mut impl Read,
    data: &Path,
    budget: &Arc<Budget>,
) -> Result<Unpacked, ImageError> {
    let source = BufReader::with_capacity(BUFFER, source);
    let broken = |error: io::Error| ImageError::content(&wanted.what, Wrong::Decompress(error.to_string()));
    let plain: Box<dyn Read + '_> = match wanted.compression {
        Compression::None => Box::new(source),
        Compression::Gzip => Box::new(flate2::bufread::MultiGzDecoder::new(source)),
        Compression::Zstd => Box::new(zstd::stream::read::Decoder::with_buffer(source).map_err(broken)?),
    };
    let plain = Plain { source: plain, hash: Sha256::new(), budget: Arc::clone(budget), wrong: None };
    let file = File::options()
        .read(true)
        .write(true)
        .create_new(true)
        .open(data)
        .map_err(ImageError::disk("creating", data))?;
    let mut layer = Layer {
        archive: Archive::new(BufReader::with_capacity(BUFFER, plain)),
        data: DataWriter::new(BufWriter::with_capacity(BUFFER, file), wanted.blob),
        budget: Arc::clone(budget),
    };
    let outcome = layer.entries();
    let Layer { archive, data: writer, .. } = layer;
    let mut plain = archive.into_inner();
    // What the archive's reader saw of a broken stream is less than what the stream itself knows.
    let outcome = match (plain.get_mut().wrong.take(), outcome) {
        (Some(wrong), _) | (None, Err(Failed::Content(wrong))) => {
            Err(ImageError::content(&wanted.what, wrong))
        }
        (None, Err(Failed::Disk(error))) => Err(ImageError::disk("writing", data)(error)),
        (None, Ok(entries)) => Ok(entries),
    };
    let entries = outcome?;
    let drained = io::copy(&mut plain, &mut io::sink());
    let plain = plain.into_inner();
    match (plain.wrong, drained) {
        (Some(wrong), _) => return Err(ImageError::content(&wanted.what, wrong)),
        (None, Err(error)) => return Err(broken(error)),
        (None, Ok(_)) => {}
    }
    let actual = format!("sha256:{}", hex::encode(plain.hash.finalize()));
    if actual != wanted.diff_id {
        let expected = wanted.diff_id.clone();
        return Err(ImageError::content(&wanted.what, Wrong::DiffId { expected, actual }));
    }
    let buffered = writer.finish().map_err(ImageError::disk("writing", data))?;
    let data =
        buffered.into_inner().map_err(|error| ImageError::disk("writing", data)(error.into_error()))?;
    Ok(Unpacked { entries, data })
}

/// Why a layer was not unpacked.
enum Failed {
    Content(Wrong),
    Disk(io::Error),
}

impl From<Broken> for Failed {
    fn from(Broken { place, reason }: Broken) -> Self {
        Failed::Content(Wrong::Archive { place, reason })
    }
}

struct Layer<R, W> {
    archive: Archive<R>,
    data: DataWriter<W>,
    budget: Arc<Budget>,
}

impl<R: Read, W: io::Write> Layer<R, W> {
    fn entries(&mut self) -> Result<Vec<Entry>, Failed> {
        let mut entries = Vec::new();
        while let Some(entry) = self.archive.next_entry()? {
            self.charge(&entry)?;
            entries.push(self.entry(entry)?);
        }
        Ok(entries)
    }

    fn charge(&self, entry: &archive::Entry) -> Result<(), Failed> {
        let link = match &entry.kind {
            Kind::Symlink(target) | Kind::HardLink(target) => target.len(),
            _ => 0,
        };
        let xattrs: usize = entry.xattrs.iter().map(|(name, value)| name.len() + value.len()).sum();
        let bytes = (entry.path.len() + link + xattrs) as u64;
        Budget::charge(&self.budget.entries, 1, "archive entries", MAX_NODES as u64)
            .map_err(Failed::Content)?;
        Budget::charge(
            &self.budget.metadata,
            bytes,
            "bytes of names and attributes",
            MAX_METADATA_BYTES as u64,
        )
        .map_err(Failed::Content)
    }

    fn entry(&mut self, entry: archive::Entry) -> Result<Entry, Failed> {
        let archive::Entry { path, kind, mode, uid, gid, mtime, xattrs } = entry;
        let kind = match kind {
            Kind::File => EntryKind::File(self.content()?),
            Kind::Directory => EntryKind::Directory,
            Kind::Symlink(target) => EntryKind::Symlink(target),
            Kind::HardLink(target) => EntryKind::HardLink(from_root(target)),
            Kind::CharDevice(device) => EntryKind::CharDevice(device),
            Kind::BlockDevice(device) => EntryKind::BlockDevice(device),
            Kind::Fifo => EntryKind::Fifo,
        };
        let attributes = Attributes { mode, uid, gid, mtime, xattrs: kept_xattrs(xattrs, &path) };
        Ok(Entry { path: from_root(path), attributes, kind })
    }

    fn content(&mut self) -> Result<runtime_erofs::Extent, Failed> {
        self.data.append(&mut self.archive.content()).map_err(|error| {
            if self.archive.content_left() > 0 && error.kind() != io::ErrorKind::StorageFull {
                Failed::from(self.archive.broken(error.to_string()))
            } else {
                Failed::Disk(error)
            }
        })
    }
}

/// Some builders write paths from `/`; in an image both mean its root.
fn from_root(mut path: Vec<u8>) -> Vec<u8> {
    if path.first() == Some(&b'/') {
        path.remove(0);
    }
    path
}

/// Leaves out attributes that no file system of ours stores (a builder's `com.apple.…`), as other runtimes do.
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

/// The uncompressed stream: counts and hashes.
struct Plain<'a> {
    source: Box<dyn Read + 'a>,
    hash: Sha256,
    budget: Arc<Budget>,
    wrong: Option<Wrong>,
}

impl Read for Plain<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = match self.source.read(buffer) {
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Err(error),
            Err(error) => {
                self.wrong.get_or_insert(Wrong::Decompress(error.to_string()));
                return Err(error);
            }
        };
        let limit = self.budget.unpacked_limit;
        if let Err(wrong) = Budget::charge(&self.budget.unpacked, count as u64, "uncompressed bytes", limit) {
            let message = wrong.to_string();
            self.wrong.get_or_insert(wrong);
            return Err(io::Error::other(message));
        }
        self.hash.update(&buffer[..count]);
        Ok(count)
    }
}
