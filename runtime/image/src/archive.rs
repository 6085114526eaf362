//! Reads a layer's tar archive from front to back. Owns headers, long names and the archive's end. Never
//! unpacks anything; `layer.rs` does.
//!
//! The `tar` crate parses header fields. The loop over entries is our own for two reasons: everything before
//! an entry (extended headers, long names) must have a bound here, and attribute values may hold newlines
//! (`pax.rs`).

use std::collections::VecDeque;
use std::io::{self, Read};

use runtime_erofs::{Device, Timestamp};
use tar::{EntryType, Header};

use crate::pax::Extended;
use crate::sparse::Piece;

mod spread;

const BLOCK: usize = 512;

/// The type of extended headers before POSIX standardized one (Solaris).
const OLD_EXTENDED: u8 = b'X';

/// The type of directories with a list of their files as content (GNU tar, incremental archives).
const LISTED_DIRECTORY: u8 = b'D';

/// Vendor types not to be skipped, because they change an archive's files: the rest of a file from another
/// volume, and renames (GNU tar).
const NEEDED: [u8; 2] = *b"MN";

/// Most bytes of one extended header. Linux allows an attribute of 64 KiB, and a file may have several.
const MAX_EXTENDED_BYTES: u64 = 1 << 20;

/// Kinds of entries. The content of a file is read through [`Archive::content`] before the next entry.
#[derive(Debug, PartialEq, Eq)]
pub enum Kind {
    /// A regular file, or a sparse one.
    File,
    /// A directory. Its content, if any, is skipped.
    Directory,
    /// A symbolic link to this target, which is not checked.
    Symlink(Vec<u8>),
    /// A link to the entry with this path, which is not checked.
    HardLink(Vec<u8>),
    /// A character device.
    CharDevice(Device),
    /// A block device.
    BlockDevice(Device),
    /// A named pipe.
    Fifo,
}

/// One entry's header.
#[derive(Debug)]
pub struct Entry {
    /// The path as the archive has it: it may be absolute or lead out of a directory.
    pub path: Vec<u8>,
    /// The kind, with a link's target.
    pub kind: Kind,
    /// Permissions, at most 0o7777.
    pub mode: u16,
    /// The owner.
    pub uid: u32,
    /// The owner's group.
    pub gid: u32,
    /// The time of the last modification.
    pub mtime: Timestamp,
    /// Extended attributes by name.
    pub xattrs: std::collections::BTreeMap<Vec<u8>, Vec<u8>>,
    /// Bytes of the content missing in the archive: the holes of a sparse file.
    pub holes: u64,
}

/// A failure to continue reading the archive.
#[derive(Debug, PartialEq, Eq)]
pub struct ArchiveError {
    /// Where: "in entry …" or "at byte …".
    pub place: String,
    /// What is wrong there.
    pub reason: String,
}

/// An archive being read.
#[derive(Debug)]
pub struct Archive<R> {
    reader: R,
    /// Bytes read.
    position: u64,
    /// Unread bytes of the current entry, including padding.
    unread: u64,
    /// The unread content of the current entry.
    pieces: VecDeque<Piece>,
    /// True if reading the content has failed.
    failed: bool,
    /// The current entry's path.
    path: Vec<u8>,
}

impl<R: Read> Archive<R> {
    /// Reads an archive from the reader's position.
    pub fn new(reader: R) -> Self {
        Archive { reader, position: 0, unread: 0, pieces: VecDeque::new(), failed: false, path: Vec::new() }
    }

    /// Reads the next entry's header. Returns `None` at the archive's end.
    pub fn next_entry(&mut self) -> Result<Option<Entry>, ArchiveError> {
        self.skip_rest()?;
        let mut extended = Extended::default();
        let (mut long_path, mut long_link) = (None, None);
        loop {
            let Some(block) = self.read_header()? else { return Ok(None) };
            let header = Header::from_byte_slice(&block);
            self.path = header.path_bytes().into_owned();
            let size = header.entry_size().map_err(|error| self.broken(error.to_string()))?;
            match header.entry_type() {
                EntryType::XGlobalHeader => drop(self.read_extended(size)?),
                kind if kind == EntryType::XHeader || kind.as_byte() == OLD_EXTENDED => {
                    let bytes = self.read_extended(size)?;
                    extended = Extended::parse(&bytes)
                        .map_err(|reason| self.broken(format!("extended header: {reason}")))?;
                }
                EntryType::GNULongName => long_path = Some(until_nul(self.read_extended(size)?)),
                EntryType::GNULongLink => long_link = Some(until_nul(self.read_extended(size)?)),
                kind if is_passed_over(kind) => {
                    let (path, kind) = (self.path.escape_ascii(), char::from(kind.as_byte()));
                    tracing::debug!(%path, %kind, "an entry only known to other systems is skipped");
                    self.hold(extended.size.unwrap_or(size))?;
                    self.skip_rest()?;
                    (extended, long_path, long_link) = (Extended::default(), None, None);
                }
                _ => {
                    extended.path = extended.path.or(long_path);
                    extended.link = extended.link.or(long_link);
                    return self.entry(header, size, extended).map(Some);
                }
            }
        }
    }

    /// The current entry's content.
    pub fn content(&mut self) -> Content<'_, R> {
        Content { archive: self }
    }

    /// Returns the reader, positioned somewhere after the last entry read.
    pub fn into_inner(self) -> R {
        self.reader
    }

    /// Returns true if the content could not be read to its end.
    pub(crate) fn content_failed(&self) -> bool {
        self.failed
    }

    /// Builds an error at the current position.
    pub(crate) fn broken(&self, reason: impl Into<String>) -> ArchiveError {
        let place = if self.path.is_empty() {
            format!("at byte {}", self.position)
        } else {
            format!("in entry \"{}\"", self.path.escape_ascii())
        };
        ArchiveError { place, reason: reason.into() }
    }

    fn entry(&mut self, header: &Header, size: u64, extended: Extended) -> Result<Entry, ArchiveError> {
        let path = extended.sparse.name.as_ref().or(extended.path.as_ref());
        self.path = path.cloned().unwrap_or_else(|| header.path_bytes().into_owned());
        let size = extended.size.unwrap_or(size);
        let link =
            || extended.link.clone().or_else(|| header.link_name_bytes().map(std::borrow::Cow::into_owned));
        let target = || link().ok_or_else(|| self.broken("a link without a target"));
        let kind = match header.entry_type() {
            // Old archives mark a directory only by a trailing slash.
            EntryType::Regular | EntryType::Continuous if self.path.ends_with(b"/") => Kind::Directory,
            EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse => Kind::File,
            EntryType::Directory => Kind::Directory,
            kind if kind.as_byte() == LISTED_DIRECTORY => Kind::Directory,
            EntryType::Symlink => Kind::Symlink(target()?),
            EntryType::Link => Kind::HardLink(target()?),
            EntryType::Char => Kind::CharDevice(self.device(header)?),
            EntryType::Block => Kind::BlockDevice(self.device(header)?),
            EntryType::Fifo => Kind::Fifo,
            other => {
                return Err(
                    self.broken(format!("entries of type {:?} are not supported", other.as_byte() as char))
                );
            }
        };
        // Only files have content, and listed directories. Other entries may still declare a size.
        let has_content = kind == Kind::File || header.entry_type().as_byte() == LISTED_DIRECTORY;
        self.hold(if has_content { size } else { 0 })?;
        if kind == Kind::File {
            self.spread(header, size, &extended.sparse)?;
        }
        let field = |what: &str, value: io::Result<u64>| {
            value.map_err(|error| self.broken(format!("{what}: {error}")))
        };
        let id = |what: &str, value: u64| {
            u32::try_from(value).map_err(|_| self.broken(format!("{what} {value} does not fit 32 bits")))
        };
        let mode = field("mode", header.mode().map(u64::from))?;
        let uid = extended.uid.map_or_else(|| field("uid", header.uid()), Ok)?;
        let gid = extended.gid.map_or_else(|| field("gid", header.gid()), Ok)?;
        let seconds = field("mtime", header.mtime())?;
        // Times before 1970 are in two's complement.
        let mtime = Timestamp { seconds: seconds.cast_signed(), nanoseconds: 0 };
        Ok(Entry {
            path: self.path.clone(),
            kind,
            mode: (mode & 0o7777) as u16,
            uid: id("uid", uid)?,
            gid: id("gid", gid)?,
            mtime: extended.mtime.unwrap_or(mtime),
            xattrs: extended.xattrs,
            holes: self
                .pieces
                .iter()
                .map(|piece| if let Piece::Hole(bytes) = piece { *bytes } else { 0 })
                .sum(),
        })
    }

    /// Takes the next `size` bytes of the archive as the current entry's content.
    fn hold(&mut self, size: u64) -> Result<(), ArchiveError> {
        let padded = size.checked_next_multiple_of(BLOCK as u64);
        self.unread = padded.ok_or_else(|| self.broken(format!("a size of {size} bytes")))?;
        self.pieces = [Piece::Stored(size)].into();
        Ok(())
    }

    /// Unread stored bytes of the current entry's content.
    pub(crate) fn stored_left(&self) -> u64 {
        self.pieces.iter().map(|piece| if let Piece::Stored(bytes) = piece { *bytes } else { 0 }).sum()
    }

    fn device(&self, header: &Header) -> Result<Device, ArchiveError> {
        let number = |part: io::Result<Option<u32>>| match part {
            Ok(number) => Ok(number.unwrap_or(0)),
            Err(error) => Err(self.broken(format!("device number: {error}"))),
        };
        Ok(Device { major: number(header.device_major())?, minor: number(header.device_minor())? })
    }

    /// Reads a header block and checks its checksum. Returns `None` at the end: a zero block or the end of
    /// the bytes.
    fn read_header(&mut self) -> Result<Option<[u8; BLOCK]>, ArchiveError> {
        self.path.clear();
        let mut block = [0; BLOCK];
        if !self.read_block(&mut block)? {
            return Ok(None);
        }
        if block.iter().all(|byte| *byte == 0) {
            return Ok(None);
        }
        let mut summed = block;
        summed[148..156].fill(b' ');
        let sum: u32 = summed.iter().map(|byte| u32::from(*byte)).sum();
        // Old programs add the bytes as signed numbers. Go and GNU tar accept both sums.
        let signed_sum: i32 = summed.iter().map(|byte| i32::from(byte.cast_signed())).sum();
        match Header::from_byte_slice(&block).cksum() {
            Ok(stated) if stated == sum || i32::try_from(stated) == Ok(signed_sum) => {
                fill_empty_numbers(&mut block);
                Ok(Some(block))
            }
            _ => Err(self.broken("the bytes before it are no tar header")),
        }
    }

    /// Fills a block. Returns false at the end of the bytes.
    fn read_block(&mut self, block: &mut [u8; BLOCK]) -> Result<bool, ArchiveError> {
        let mut filled = 0;
        while filled < BLOCK {
            match self.reader.read(&mut block[filled..]) {
                Ok(0) if filled == 0 => return Ok(false),
                Ok(0) => return Err(self.broken("it ends within a header")),
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.broken(error.to_string())),
            }
        }
        self.position += BLOCK as u64;
        Ok(true)
    }

    fn read_extended(&mut self, size: u64) -> Result<Vec<u8>, ArchiveError> {
        if size > MAX_EXTENDED_BYTES {
            return Err(
                self.broken(format!("an extended header of {size} bytes is over {MAX_EXTENDED_BYTES}"))
            );
        }
        self.hold(size)?;
        let mut bytes = Vec::new();
        self.content().read_to_end(&mut bytes).map_err(|error| self.broken(error.to_string()))?;
        self.skip_rest()?;
        Ok(bytes)
    }

    /// Skips to the next header.
    fn skip_rest(&mut self) -> Result<(), ArchiveError> {
        self.pieces.clear();
        let skipped = io::copy(&mut self.reader.by_ref().take(self.unread), &mut io::sink());
        match skipped {
            Ok(count) => {
                self.position += count;
                // The padding of the last entry may be missing. Its content is not: it was read before.
                self.unread = 0;
                Ok(())
            }
            Err(error) => Err(self.broken(error.to_string())),
        }
    }
}

/// Returns true if entries of this type are not files. POSIX reserves capital letters for vendors. Their
/// volume labels and access lists contain nothing for an image.
fn is_passed_over(kind: EntryType) -> bool {
    let byte = kind.as_byte();
    let vendors = byte.is_ascii_uppercase() && byte != LISTED_DIRECTORY && !NEEDED.contains(&byte);
    vendors && kind != EntryType::GNUSparse
}

/// Writes 0 into number fields left empty by some builders.
fn fill_empty_numbers(block: &mut [u8; BLOCK]) {
    // Mode, uid, gid, size, mtime, and the two device numbers (POSIX `ustar`).
    for field in [100..108, 108..116, 116..124, 124..136, 136..148, 329..337, 337..345] {
        let bytes = &mut block[field];
        if bytes.iter().all(|byte| matches!(byte, 0 | b' ')) {
            bytes[0] = b'0';
        }
    }
}

/// Cuts a long name at its terminating NUL.
fn until_nul(mut bytes: Vec<u8>) -> Vec<u8> {
    if let Some(end) = bytes.iter().position(|byte| *byte == 0) {
        bytes.truncate(end);
    }
    bytes
}

/// Reads an entry's exact content. An early end is an error.
#[derive(Debug)]
pub struct Content<'a, R> {
    archive: &'a mut Archive<R>,
}

impl<R: Read> Read for Content<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let archive = &mut *self.archive;
        loop {
            let (Some(piece), false) = (archive.pieces.front_mut(), buffer.is_empty()) else { return Ok(0) };
            let (Piece::Hole(left) | Piece::Stored(left)) = *piece;
            let wanted = left.min(buffer.len() as u64) as usize;
            if wanted == 0 {
                archive.pieces.pop_front();
                continue;
            }
            let count = match piece {
                Piece::Hole(left) => {
                    buffer[..wanted].fill(0);
                    *left -= wanted as u64;
                    return Ok(wanted);
                }
                Piece::Stored(_) => archive.reader.read(&mut buffer[..wanted]),
            };
            archive.failed = match &count {
                Ok(count) => *count == 0,
                Err(error) => error.kind() != io::ErrorKind::Interrupted,
            };
            let count = count?;
            if count == 0 {
                let reason = format!("it ends {} bytes before the entry does", archive.stored_left());
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, reason));
            }
            *piece = Piece::Stored(left - count as u64);
            archive.position += count as u64;
            archive.unread -= count as u64;
            return Ok(count);
        }
    }
}

#[cfg(test)]
mod tests;
