//! Reads one blob from the registry or from disk, hashes it, and stores it. Owns the blob's file until it is
//! whole.
//!
//! ```text
//!            absent ── first byte ──► <digest>.partial ── all bytes, digest right ──► <digest>
//!               ▲                        │        ▲
//!               └──── digest wrong ──────┘        └─ transfer broken: kept, resumed by the next pull
//!                     or it is too long,
//!                     or nothing follows a part,
//!                     or it cannot be unpacked,
//!                     or it was, and is a layer now
//! ```
//!
//! [`BlobReader`] is the blocking end. It returns bytes while they arrive, so a layer is decompressed and
//! unpacked at the same time. The bytes are verified only when [`BlobReader::finish`] succeeds.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::{Buf, Bytes};
use runtime_fail_points::{Point, pass};

use crate::blocking::blocking;
use crate::counters;
use crate::digest::{self, Hasher};
use crate::error::{ContentError, ImageError, is_full};
use crate::files;
use crate::manifest::Descriptor;
use crate::source::Source;
use crate::transfer::{Sources, Transfer};

/// Bytes read at a time from disk.
const READ_BYTES: usize = 128 * 1024;

/// Most bytes still read after the blob could not be unpacked. The digest may then explain the failure.
const TAIL_BYTES_MAX: u64 = 1 << 20;

/// A blob being read, and also stored if it comes from the network.
pub(crate) struct BlobReader {
    descriptor: Descriptor,
    file: File,
    path: PathBuf,
    /// The path of the complete blob. `None` if it is already there.
    complete: Option<PathBuf>,
    /// Bytes of `file` to read before the network's.
    on_disk: u64,
    /// Bytes of `file` at the start: the part of an earlier transfer.
    resumed: u64,
    network: Option<Transfer>,
    pending: Bytes,
    hash: Hasher,
    received: u64,
    failure: Option<ImageError>,
    sources: Sources,
}

impl std::fmt::Debug for BlobReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BlobReader").field("descriptor", &self.descriptor).finish_non_exhaustive()
    }
}

/// Opens a blob: from an archive, from `directory` if present, or from the registry. A registry transfer
/// resumes the partial file of an earlier pull. The caller holds the blob's lock until the reader is
/// finished. `sources` excludes some hosts and records the ones asked.
pub(crate) async fn open(
    directory: &Path,
    descriptor: &Descriptor,
    source: &Source,
    sources: &Sources,
) -> Result<BlobReader, ImageError> {
    let registry = match source {
        Source::Registry(registry, _) => registry,
        Source::Spool(spool, ..) => {
            let (path, descriptor, sources) = (spool.blob(descriptor)?, descriptor.clone(), sources.clone());
            return blocking("opening a blob", move || {
                let file = File::open(&path).map_err(ImageError::disk("opening", &path))?;
                BlobReader::new(&descriptor, file, path, None, descriptor.size, sources)
            })
            .await;
        }
    };
    let hex = digest::digest_hex(&descriptor.digest)
        .map_err(|wrong| ImageError::content(descriptor.to_string(), wrong))?;
    let (complete, path) = (directory.join(hex), directory.join(format!("{hex}.partial")));
    let paths = (complete.clone(), path.clone());
    let (file, mut have) = match blocking("opening a blob", move || OnDisk::open(&paths.0, &paths.1)).await? {
        OnDisk::Whole(file) => {
            sources.resume();
            let (descriptor, sources) = (descriptor.clone(), sources.clone());
            return blocking("opening a blob", move || {
                BlobReader::new(&descriptor, file, complete, None, descriptor.size, sources)
            })
            .await;
        }
        OnDisk::Part(file, bytes) => (file, if bytes > descriptor.size { 0 } else { bytes }),
    };
    let mut network = None;
    if have < descriptor.size {
        let transfer = Transfer::start(registry, descriptor, have, sources).await?;
        have = transfer.offset;
        network = Some(transfer);
    }
    if have > 0 {
        sources.resume();
    }
    let (descriptor, sources) = (descriptor.clone(), sources.clone());
    blocking("opening a blob", move || {
        file.set_len(have).map_err(ImageError::disk("cutting", &path))?;
        let mut reader = BlobReader::new(&descriptor, file, path, network, have, sources)?;
        reader.complete = Some(complete);
        Ok(reader)
    })
    .await
}

/// The part of a blob left by an earlier pull.
enum OnDisk {
    Whole(File),
    /// A part, perhaps empty, and its length.
    Part(File, u64),
}

impl OnDisk {
    /// Looks for the blob. Creates an empty part if there is none. Blocks on the disk.
    fn open(complete: &Path, part: &Path) -> Result<OnDisk, ImageError> {
        if let Ok(file) = File::open(complete) {
            return Ok(OnDisk::Whole(file));
        }
        pass(Point::ImageBlobOpen).map_err(ImageError::disk("opening", part))?;
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(part)
            .map_err(ImageError::disk("opening", part))?;
        let bytes = file.metadata().map_err(ImageError::disk("reading", part))?.len();
        Ok(OnDisk::Part(file, bytes))
    }
}

impl BlobReader {
    fn new(
        descriptor: &Descriptor,
        mut file: File,
        path: PathBuf,
        network: Option<Transfer>,
        on_disk: u64,
        sources: Sources,
    ) -> Result<BlobReader, ImageError> {
        file.seek(SeekFrom::Start(0)).map_err(ImageError::disk("reading", &path))?;
        Ok(BlobReader {
            descriptor: descriptor.clone(),
            file,
            path,
            complete: None,
            on_disk,
            resumed: on_disk,
            network,
            pending: Bytes::new(),
            hash: Hasher::like(&descriptor.digest),
            received: 0,
            failure: None,
            sources,
        })
    }

    /// Returns true if all bytes are on the disk.
    pub(crate) fn is_here(&self) -> bool {
        self.network.is_none()
    }

    /// Reads the rest, checks size and digest, and moves the blob into place.
    ///
    /// # Errors
    /// The failure of the transfer, if there was one; otherwise the first problem of the content. A blob with
    /// a wrong digest is removed. An incomplete one is kept for resuming if any bytes came from a host.
    pub(crate) fn finish(self) -> Result<(), ImageError> {
        let Received { file, path, complete } = self.check()?;
        match complete {
            Some(complete) => files::publish(&file, &path, &complete),
            None => Ok(()),
        }
    }

    /// Like [`finish`](Self::finish), but the blob stays where it is. The caller removes it after use.
    pub(crate) fn check(mut self) -> Result<Received, ImageError> {
        let mut buffer = vec![0; READ_BYTES];
        let ended = loop {
            match self.read(&mut buffer) {
                Ok(0) => break Ok(()),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => break Err(error),
            }
        };
        if let Some(failure) = self.failure.clone() {
            return Err(self.give_up(failure));
        }
        ended.map_err(ImageError::disk("reading", &self.path))?;
        let wrong = |wrong| Err(ImageError::content(self.descriptor.to_string(), wrong));
        let actual = self.hash.clone().finish();
        if self.received < self.descriptor.size {
            // A complete blob is damaged if it is short. A partial one is just not finished. If nothing
            // follows it, its host may not resume, and the next attempt asks for the whole.
            if self.complete.is_none() || self.received <= self.resumed {
                files::remove(&self.path)?;
            } else {
                self.sources.keep_part();
            }
            return wrong(ContentError::Truncated { expected: self.descriptor.size, actual: self.received });
        }
        if actual != self.descriptor.digest {
            files::remove(&self.path)?;
            return wrong(ContentError::Digest { expected: self.descriptor.digest.clone(), actual });
        }
        self.sources.verify();
        Ok(Received { file: self.file, path: self.path, complete: self.complete })
    }

    /// Builds the error for a failed read of this blob from disk.
    pub(crate) fn disk_error(&self, error: io::Error) -> ImageError {
        ImageError::disk("reading", &self.path)(error)
    }

    /// Ends the transfer after the blob could not be unpacked. If the reader itself has failed, this failure
    /// is returned, and the received bytes are kept unless the disk is full or there were too many.
    ///
    /// Bytes that cannot be unpacked may be wrong, so they are not resumed. If all bytes are here, or only
    /// few are missing, the digest decides.
    pub(crate) fn give_up(mut self, error: ImageError) -> ImageError {
        let is_full =
            |error: &ImageError| matches!(error, ImageError::Disk { source, .. } if is_full(source));
        let missing = self.descriptor.size.saturating_sub(self.received);
        if self.failure.is_none()
            && error.is_of_bytes()
            && (self.network.is_none() || missing <= TAIL_BYTES_MAX)
        {
            return self.finish().err().unwrap_or(error);
        }
        self.network = None;
        let is_resumable = |failure: &ImageError| !is_full(failure) && !failure.is_of_bytes();
        let kept = self.failure.as_ref().is_some_and(is_resumable) || self.complete.is_none();
        if !kept && let Err(error) = files::remove(&self.path) {
            tracing::warn!(%error, "a part of a blob is left");
        }
        self.failure.take().unwrap_or(error)
    }

    /// Takes the next bytes from the network and writes them to disk. `pending` stays empty at the end.
    fn receive(&mut self) -> io::Result<()> {
        let Some(network) = &mut self.network else { return Ok(()) };
        match network.next() {
            None if self.sources.ended.is_cancelled() => return self.interrupt(),
            None => self.network = None,
            Some(Ok(piece)) => {
                if self.received + piece.len() as u64 > self.descriptor.size {
                    let wrong = ContentError::TooLong { expected: self.descriptor.size };
                    return self.fail(ImageError::content(self.descriptor.to_string(), wrong));
                }
                if let Err(error) = pass(Point::ImageBlobWrite).and_then(|()| self.file.write_all(&piece)) {
                    let error = ImageError::disk("writing", &self.path)(error);
                    return self.fail(error);
                }
                counters::received(piece.len());
                self.pending = piece;
            }
            Some(Err(error)) => return self.fail(error),
        }
        Ok(())
    }

    /// Fails because the pull has ended. The bytes received so far are right, for all we know.
    fn interrupt(&mut self) -> io::Result<()> {
        self.fail(ImageError::Interrupted("reading a blob"))
    }

    fn fail(&mut self, failure: ImageError) -> io::Result<()> {
        let message = failure.to_string();
        self.failure.get_or_insert(failure);
        self.network = None;
        Err(io::Error::other(message))
    }

    fn take(&mut self, bytes: usize, buffer: &[u8]) -> usize {
        self.hash.update(&buffer[..bytes]);
        self.received += bytes as u64;
        bytes
    }
}

/// A complete and verified blob on disk.
#[derive(Debug)]
pub(crate) struct Received {
    file: File,
    path: PathBuf,
    /// Its final path. `None` if it is already there.
    complete: Option<PathBuf>,
}

impl Received {
    /// Removes the blob after its content is stored elsewhere.
    pub(crate) fn remove(self) -> Result<(), ImageError> {
        files::remove(&self.path)
    }
}

impl Read for BlobReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if let Some(failure) = &self.failure {
            return Err(io::Error::other(failure.to_string()));
        }
        if self.sources.ended.is_cancelled() {
            self.interrupt()?;
        }
        if self.on_disk > 0 {
            let wanted = self.on_disk.min(buffer.len() as u64) as usize;
            let count = self.file.read(&mut buffer[..wanted])?;
            self.on_disk = if count == 0 { 0 } else { self.on_disk - count as u64 };
            if count > 0 {
                return Ok(self.take(count, buffer));
            }
        }
        while self.pending.is_empty() && self.network.is_some() {
            self.receive()?;
        }
        let count = self.pending.len().min(buffer.len());
        self.pending.copy_to_slice(&mut buffer[..count]);
        Ok(self.take(count, buffer))
    }
}

/// Removes blobs and partial blobs if they were not written for `age` and `keep` does not claim them.
pub(crate) fn sweep(directory: &Path, age: Duration, keep: impl Fn(&str) -> bool) -> Result<(), ImageError> {
    let entries = fs::read_dir(directory).map_err(ImageError::disk("listing", directory))?;
    for entry in entries {
        let entry = entry.map_err(ImageError::disk("listing", directory))?;
        let name = entry.file_name();
        let hex = name.to_string_lossy();
        let hex = hex.strip_suffix(".partial").unwrap_or(&hex);
        let touched = entry.metadata().and_then(|metadata| metadata.modified());
        let old = touched.is_ok_and(|time| time.elapsed().is_ok_and(|elapsed| elapsed >= age));
        if old && !keep(hex) {
            files::remove(&entry.path())?;
        }
    }
    Ok(())
}
