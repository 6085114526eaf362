//! The files of an imported archive, on disk until its images are created. Owns the accepted contents and
//! their limits. `import.rs` interprets the files.
//!
//! ```text
//!   client ──► queue ──► [decompress] ──► archive ──► tmp/<import>/<number>    each file, hashed as it comes
//! ```
//! No file takes its name from the archive, so no name can point outside. The directory is removed with the
//! import, however it ends. If the daemon is killed, the next start clears it with all of `tmp`.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::{Buf, Bytes};
use runtime_fail_points::{Point, pass};
use tempfile::TempDir;
use tokio::sync::mpsc;

use crate::archive::{Archive, ArchiveError, Kind};
use crate::blocking::{DroppedAside, blocking};
use crate::compression::decompressed;
use crate::digest::{self, Algorithm, Hasher};
use crate::error::{ContentError, ImageError};
use crate::free;
use crate::limits::Limits;
use crate::manifest::Descriptor;
use crate::progress::Progress;

/// Most entries of an archive: a hundred images of a hundred layers, with three files per layer as in old
/// archives.
const ENTRIES_MAX: usize = 32 * 1024;

/// Longest path in an archive, in bytes, because all paths are in memory. The longest honest ones are those
/// of blobs.
const PATH_BYTES_MAX: usize = 512;

/// Most consecutive links. Archives have links to layers, but none to links.
const LINKS_MAX: usize = 4;

/// Most bytes after an archive's end. Archivers fill up their last block, usually of 10 KiB.
const TRAILER_BYTES_MAX: u64 = 1 << 20;

/// Bytes of the buffer between two steps.
const BUFFER: usize = 256 * 1024;

/// The archive's name in errors.
const WHAT: &str = "the archive";

/// Folder of blobs in an OCI image layout, with a folder for each algorithm (image-spec, `image-layout.md`).
const BLOBS: &[u8] = b"blobs/";

/// A file of the archive.
#[derive(Debug, Clone)]
pub(crate) struct Spooled {
    pub(crate) digest: String,
    pub(crate) size: u64,
    path: PathBuf,
}

#[derive(Debug)]
enum Entry {
    File(Spooled),
    /// A link to another path of the archive.
    Link(Vec<u8>),
}

/// The files of one archive.
#[derive(Debug)]
pub(crate) struct Spool {
    directory: DroppedAside<TempDir>,
    entries: HashMap<Vec<u8>, Entry>,
    by_digest: HashMap<String, Spooled>,
    /// Bytes of all files.
    taken: u64,
    limits: Limits,
}

impl Spool {
    /// Makes the directory, empty. Blocks on the disk.
    fn make(temporary: &Path, limits: &Limits) -> Result<Spool, ImageError> {
        let made = pass(Point::ImageWork).and_then(|()| tempfile::tempdir_in(temporary));
        let directory = made.map_err(ImageError::disk("creating a directory in", temporary))?;
        let (entries, by_digest, directory) = (HashMap::new(), HashMap::new(), DroppedAside::new(directory));
        Ok(Spool { directory, entries, by_digest, taken: 0, limits: limits.clone() })
    }

    /// Stores a whole archive in files below `temporary`. Blocks on the client and on the disk.
    ///
    /// # Errors
    /// The archive is broken or hostile, the client broke off, or the disk is too small for the archive.
    pub(crate) fn receive(
        temporary: &Path,
        input: mpsc::Receiver<io::Result<Bytes>>,
        limits: &Limits,
        progress: &Progress,
    ) -> Result<Spool, ImageError> {
        let mut input = Input { input, piece: Bytes::new(), received: 0, failure: None, progress };
        let mut spool = Spool::make(temporary, limits)?;
        let taken = spool.take_all(&mut input);
        let taken = taken.inspect_err(|_| spool.clear());
        // The client's failure is the cause of the archive's.
        match input.failure.take() {
            Some(source) => {
                let (what, received) = (WHAT.to_owned(), input.received);
                Err(ImageError::Transfer { what, received, source: Arc::new(source) })
            }
            None => taken.map(|()| spool),
        }
    }

    fn take_all(&mut self, input: &mut Input<'_>) -> Result<(), ImageError> {
        let plain = decompressed(input).map_err(undecompressed)?;
        let mut archive = Archive::new(BufReader::with_capacity(BUFFER, plain));
        let mut count = 0;
        while let Some(entry) = archive.next_entry().map_err(broken)? {
            count += 1;
            if count > ENTRIES_MAX {
                return Err(beyond(count as u64, "archive entries", ENTRIES_MAX as u64));
            }
            if entry.path.len() > PATH_BYTES_MAX {
                return Err(beyond(entry.path.len() as u64, "bytes of a path", PATH_BYTES_MAX as u64));
            }
            let outside = || broken(archive.broken("its path leads out of the archive"));
            let path = normal(b"", &entry.path).ok_or_else(outside)?;
            let kept = match entry.kind {
                Kind::Directory => continue,
                Kind::File => Entry::File(self.take(&mut archive, &path, count)?),
                Kind::Symlink(target) => Entry::Link(normal(parent(&path), &target).ok_or_else(outside)?),
                Kind::HardLink(target) => Entry::Link(normal(b"", &target).ok_or_else(outside)?),
                _ => return Err(broken(archive.broken("archives of images have neither devices nor pipes"))),
            };
            if let Entry::File(file) = &kept {
                self.taken = self.taken.saturating_add(file.size);
                self.by_digest.insert(file.digest.clone(), file.clone());
            }
            self.entries.insert(path, kept);
        }
        // A compressed archive has its checksum at the end.
        let mut rest = archive.into_inner().take(TRAILER_BYTES_MAX + 1);
        match io::copy(&mut rest, &mut io::sink()).map_err(undecompressed)? {
            count if count > TRAILER_BYTES_MAX => {
                Err(beyond(count, "bytes behind its end", TRAILER_BYTES_MAX))
            }
            _ => Ok(()),
        }
    }

    /// Stores the current entry's content in file `number`.
    fn take<R: Read>(
        &self,
        archive: &mut Archive<R>,
        path: &[u8],
        number: usize,
    ) -> Result<Spooled, ImageError> {
        let (size, limit) = (archive.stored_left(), self.limits.layer_bytes);
        if size > limit {
            let what = format!("{WHAT}'s file \"{}\"", path.escape_ascii());
            return Err(ImageError::content(what, ContentError::Limit { size, unit: "bytes", limit }));
        }
        let directory = self.directory.get().path();
        // The same size again for the unpacked layers.
        free::has(directory, size.saturating_mul(2).saturating_add(self.taken))?;
        let to = directory.join(number.to_string());
        pass(Point::ImageBlobOpen).map_err(ImageError::disk("creating", &to))?;
        let file = File::create(&to).map_err(ImageError::disk("creating", &to))?;
        let named = named_digest(path);
        let hash = named.as_deref().map_or_else(|| Hasher::new(Algorithm::Sha256), Hasher::like);
        let mut hashed = BufWriter::with_capacity(BUFFER, Hashed { file, hash });
        let copied = pass(Point::ImageBlobWrite)
            .and_then(|()| io::copy(&mut archive.content(), &mut hashed))
            .and_then(|size| hashed.flush().map(|()| size));
        let size = copied.map_err(|error| match archive.content_failed() {
            true => broken(archive.broken(error.to_string())),
            false => ImageError::disk("writing", &to)(error),
        })?;
        let digest = hashed.get_ref().hash.clone().finish();
        match named {
            Some(expected) if expected != digest => {
                let wrong = ContentError::Digest { expected: expected.clone(), actual: digest };
                Err(ImageError::content(format!("{WHAT}'s blob {expected}"), wrong))
            }
            _ => Ok(Spooled { digest, size, path: to }),
        }
    }

    /// Finds the file at this path, also through links.
    pub(crate) fn file(&self, path: &str) -> Result<&Spooled, ImageError> {
        let missing = || ImageError::Missing { what: format!("file \"{}\"", path.escape_default()) };
        let mut at = normal(b"", path.as_bytes()).ok_or_else(missing)?;
        for _ in 0..=LINKS_MAX {
            match self.entries.get(&at).ok_or_else(missing)? {
                Entry::File(file) => return Ok(file),
                Entry::Link(target) => at.clone_from(target),
            }
        }
        Err(missing())
    }

    /// Reads the document at this path. `None` if absent.
    pub(crate) async fn document(&self, path: &'static str) -> Result<Option<Bytes>, ImageError> {
        match self.file(path) {
            Ok(file) => self.read(file, path).await.map(Some),
            Err(_) => Ok(None),
        }
    }

    /// Reads the document with this digest.
    pub(crate) async fn document_of(&self, digest: &str, what: &str) -> Result<Bytes, ImageError> {
        let file = self.by_digest.get(digest).ok_or_else(|| ImageError::Missing { what: what.to_owned() })?;
        self.read(file, what).await
    }

    async fn read(&self, file: &Spooled, what: &str) -> Result<Bytes, ImageError> {
        let (size, limit) = (file.size, self.limits.manifest_bytes);
        if size > limit {
            let what = format!("{WHAT}'s {what}");
            return Err(ImageError::content(what, ContentError::Limit { size, unit: "bytes", limit }));
        }
        let path = file.path.clone();
        blocking("reading a document", move || {
            let read = fs::read(&path).map(Bytes::from);
            read.map_err(ImageError::disk("reading", &path))
        })
        .await
    }

    /// Returns the path of this blob's file, if its length matches the descriptor.
    pub(crate) fn blob(&self, descriptor: &Descriptor) -> Result<PathBuf, ImageError> {
        let what = descriptor.to_string();
        let Some(file) = self.by_digest.get(&descriptor.digest) else {
            return Err(ImageError::Missing { what });
        };
        match file.size.cmp(&descriptor.size) {
            std::cmp::Ordering::Equal => Ok(file.path.clone()),
            std::cmp::Ordering::Less => {
                let wrong = ContentError::Truncated { expected: descriptor.size, actual: file.size };
                Err(ImageError::content(what, wrong))
            }
            std::cmp::Ordering::Greater => {
                Err(ImageError::content(what, ContentError::TooLong { expected: descriptor.size }))
            }
        }
    }

    /// Removes the files, even if some are still open. Blocks on the disk.
    pub(crate) fn clear(&self) {
        let directory = self.directory.get().path();
        if let Err(error) = pass(Point::ImageRemove).and_then(|()| fs::remove_dir_all(directory)) {
            tracing::warn!(%error, "the files of an archive are left until they can be removed");
        }
    }
}

/// Returns the digest in the path of a layout's blob.
fn named_digest(path: &[u8]) -> Option<String> {
    let name = std::str::from_utf8(path.strip_prefix(BLOBS)?).ok()?;
    let digest = name.replacen('/', ":", 1);
    digest::parse(&digest).is_ok().then_some(digest)
}

/// Returns the path from the archive's root, without dots. `None` if it is absolute or leads above the root.
fn normal(from: &[u8], path: &[u8]) -> Option<Vec<u8>> {
    if path.starts_with(b"/") {
        return None;
    }
    let mut parts: Vec<&[u8]> = from.split(|byte| *byte == b'/').filter(|part| !part.is_empty()).collect();
    for part in path.split(|byte| *byte == b'/') {
        match part {
            b"" | b"." => {}
            b".." => drop(parts.pop()?),
            part => parts.push(part),
        }
    }
    Some(parts.join(&b'/'))
}

fn parent(path: &[u8]) -> &[u8] {
    path.iter().rposition(|byte| *byte == b'/').map_or(b"", |at| &path[..at])
}

fn broken(ArchiveError { place, reason }: ArchiveError) -> ImageError {
    ImageError::content(WHAT, ContentError::Archive { place, reason })
}

/// For `map_err`, because it passes the error by value.
#[expect(clippy::needless_pass_by_value, reason = "map_err gives the error away")]
fn undecompressed(error: io::Error) -> ImageError {
    ImageError::content(WHAT, ContentError::Decompress(error.to_string()))
}

fn beyond(size: u64, unit: &'static str, limit: u64) -> ImageError {
    ImageError::content(WHAT, ContentError::Limit { size, unit, limit })
}

/// The client's bytes, in order. Stores its failure, and reads nothing afterwards.
struct Input<'a> {
    input: mpsc::Receiver<io::Result<Bytes>>,
    piece: Bytes,
    received: u64,
    failure: Option<io::Error>,
    progress: &'a Progress,
}

impl Read for Input<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.piece.is_empty() && self.failure.is_none() {
            match self.input.blocking_recv() {
                None => return Ok(0),
                Some(Ok(piece)) => {
                    self.received += piece.len() as u64;
                    self.progress.receive(self.received);
                    self.piece = piece;
                }
                Some(Err(error)) => self.failure = Some(error),
            }
        }
        if let Some(failure) = &self.failure {
            return Err(io::Error::other(failure.to_string()));
        }
        let count = self.piece.len().min(buffer.len());
        self.piece.copy_to_slice(&mut buffer[..count]);
        Ok(count)
    }
}

/// A file hashing its bytes while they are written.
struct Hashed {
    file: File,
    hash: Hasher,
}

impl Write for Hashed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.file.write(bytes)?;
        self.hash.update(&bytes[..count]);
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_blob_of_a_layout_is_named_by_its_digest() {
        let hex = "0f".repeat(64);
        assert_eq!(named_digest(format!("blobs/sha512/{hex}").as_bytes()), Some(format!("sha512:{hex}")));
        for other in [format!("blobs/sha256/{hex}"), format!("sha512/{hex}"), format!("blobs/{hex}")] {
            assert_eq!(named_digest(other.as_bytes()), None, "{other}");
        }
    }

    #[test]
    fn paths_are_taken_from_the_root_and_none_leads_above_it() {
        let of = |from: &str, path: &str| {
            normal(from.as_bytes(), path.as_bytes()).map(|path| String::from_utf8(path).unwrap())
        };
        assert_eq!(of("", "./a//b/./c").as_deref(), Some("a/b/c"));
        assert_eq!(of("a/b", "../c/layer.tar").as_deref(), Some("a/c/layer.tar"));
        for outside in ["/etc/passwd", "../x", "a/../../x"] {
            assert_eq!(of("", outside), None, "{outside}");
        }
        assert_eq!((parent(b"a/b/c"), parent(b"c")), (&b"a/b"[..], &b""[..]));
    }
}
