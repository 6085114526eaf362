//! Reads a layer's tar archive from front to back. Owns headers, long names and the archive's end; never unpacks
//! anything, which `layer.rs` does.
//!
//! Header fields are taken apart by the `tar` crate. The loop over entries is our own because what precedes an
//! entry (extended headers, long names) must have a bound here, and attribute values may hold newlines (`pax.rs`).

use std::io::{self, Read};

use runtime_erofs::{Device, Timestamp};
use tar::{EntryType, Header};

use crate::pax::Extended;

const BLOCK: usize = 512;

/// Most bytes of one extended header. Linux allows an attribute of 64 KiB; a file may have several.
const MAX_EXTENDED_BYTES: u64 = 1 << 20;

/// Kinds of entries. The content of a file is read through [`Archive::content`] before the next entry.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    File,
    Directory,
    Symlink(Vec<u8>),
    HardLink(Vec<u8>),
    CharDevice(Device),
    BlockDevice(Device),
    Fifo,
}

/// One entry's header.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) path: Vec<u8>,
    pub(crate) kind: Kind,
    pub(crate) mode: u16,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) mtime: Timestamp,
    pub(crate) xattrs: std::collections::BTreeMap<Vec<u8>, Vec<u8>>,
}

/// A failure to read the archive any further.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ArchiveError {
    /// Where: "in entry …" or "at byte …".
    pub(crate) place: String,
    pub(crate) reason: String,
}

/// An archive being read.
pub(crate) struct Archive<R> {
    reader: R,
    /// Bytes read.
    position: u64,
    /// Bytes of the present entry that are not read, padding included.
    unread: u64,
    /// The content among them.
    content: u64,
    /// The present entry's path.
    path: Vec<u8>,
}

impl<R: Read> Archive<R> {
    pub(crate) fn new(reader: R) -> Self {
        Archive { reader, position: 0, unread: 0, content: 0, path: Vec::new() }
    }

    /// Reads the next entry's header; none at the archive's end.
    pub(crate) fn next_entry(&mut self) -> Result<Option<Entry>, ArchiveError> {
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
                EntryType::XHeader => {
                    let bytes = self.read_extended(size)?;
                    extended = Extended::parse(&bytes)
                        .map_err(|reason| self.broken(format!("extended header: {reason}")))?;
                }
                EntryType::GNULongName => long_path = Some(until_nul(self.read_extended(size)?)),
                EntryType::GNULongLink => long_link = Some(until_nul(self.read_extended(size)?)),
                _ => {
                    extended.path = extended.path.or(long_path);
                    extended.link = extended.link.or(long_link);
                    return self.entry(header, size, extended).map(Some);
                }
            }
        }
    }

    /// The present entry's content.
    pub(crate) fn content(&mut self) -> Content<'_, R> {
        Content { archive: self }
    }

    /// Returns the reader, somewhere after the last entry that was read.
    pub(crate) fn into_inner(self) -> R {
        self.reader
    }

    /// Bytes of content that are still to be read.
    pub(crate) fn content_left(&self) -> u64 {
        self.content
    }

    /// An error at the present place.
    pub(crate) fn broken(&self, reason: impl Into<String>) -> ArchiveError {
        let place = if self.path.is_empty() {
            format!("at byte {}", self.position)
        } else {
            format!("in entry \"{}\"", self.path.escape_ascii())
        };
        ArchiveError { place, reason: reason.into() }
    }

    fn entry(&mut self, header: &Header, size: u64, extended: Extended) -> Result<Entry, ArchiveError> {
        self.path = extended.path.unwrap_or_else(|| header.path_bytes().into_owned());
        let size = extended.size.unwrap_or(size);
        let link =
            || extended.link.clone().or_else(|| header.link_name_bytes().map(std::borrow::Cow::into_owned));
        let target = || link().ok_or_else(|| self.broken("a link without a target"));
        let kind = match header.entry_type() {
            // Old archives mark a directory by a slash alone.
            EntryType::Regular | EntryType::Continuous if self.path.ends_with(b"/") => Kind::Directory,
            EntryType::Regular | EntryType::Continuous => Kind::File,
            EntryType::Directory => Kind::Directory,
            EntryType::Symlink => Kind::Symlink(target()?),
            EntryType::Link => Kind::HardLink(target()?),
            EntryType::Char => Kind::CharDevice(self.device(header)?),
            EntryType::Block => Kind::BlockDevice(self.device(header)?),
            EntryType::Fifo => Kind::Fifo,
            EntryType::GNUSparse => return Err(self.broken("sparse entries are not supported")),
            other => {
                return Err(
                    self.broken(format!("entries of type {:?} are not supported", other.as_byte() as char))
                );
            }
        };
        // Only files have content; others may name a size all the same.
        self.content = if kind == Kind::File { size } else { 0 };
        self.unread = self
            .content
            .checked_next_multiple_of(BLOCK as u64)
            .ok_or_else(|| self.broken(format!("a size of {size} bytes")))?;
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
        })
    }

    fn device(&self, header: &Header) -> Result<Device, ArchiveError> {
        let number = |part: io::Result<Option<u32>>| match part {
            Ok(number) => Ok(number.unwrap_or(0)),
            Err(error) => Err(self.broken(format!("device number: {error}"))),
        };
        Ok(Device { major: number(header.device_major())?, minor: number(header.device_minor())? })
    }

    /// Reads a header block whose checksum holds; none at the end, which is a zero block or the end of the bytes.
    fn read_header(&mut self) -> Result<Option<[u8; BLOCK]>, ArchiveError> {
        self.path.clear();
        let mut block = [0; BLOCK];
        let mut filled = 0;
        while filled < BLOCK {
            match self.reader.read(&mut block[filled..]) {
                Ok(0) if filled == 0 => return Ok(None),
                Ok(0) => return Err(self.broken("it ends within a header")),
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.broken(error.to_string())),
            }
        }
        self.position += BLOCK as u64;
        if block.iter().all(|byte| *byte == 0) {
            return Ok(None);
        }
        let sum: u32 = block
            .iter()
            .enumerate()
            .map(|(at, byte)| u32::from(if (148..156).contains(&at) { b' ' } else { *byte }))
            .sum();
        match Header::from_byte_slice(&block).cksum() {
            Ok(stated) if stated == sum => {
                fill_empty_numbers(&mut block);
                Ok(Some(block))
            }
            _ => Err(self.broken("the bytes before it are no tar header")),
        }
    }

    fn read_extended(&mut self, size: u64) -> Result<Vec<u8>, ArchiveError> {
        if size > MAX_EXTENDED_BYTES {
            return Err(
                self.broken(format!("an extended header of {size} bytes is over {MAX_EXTENDED_BYTES}"))
            );
        }
        self.content = size;
        self.unread = size.next_multiple_of(BLOCK as u64);
        let mut bytes = Vec::new();
        self.content().read_to_end(&mut bytes).map_err(|error| self.broken(error.to_string()))?;
        self.skip_rest()?;
        Ok(bytes)
    }

    /// Reads on to the next header.
    fn skip_rest(&mut self) -> Result<(), ArchiveError> {
        self.content = 0;
        let skipped = io::copy(&mut self.reader.by_ref().take(self.unread), &mut io::sink());
        match skipped {
            Ok(count) => {
                self.position += count;
                // The padding of the last entry may be missing, its content not: that was read before.
                self.unread = 0;
                Ok(())
            }
            Err(error) => Err(self.broken(error.to_string())),
        }
    }
}

/// Fills in the numbers that some builders leave empty where they are 0.
fn fill_empty_numbers(block: &mut [u8; BLOCK]) {
    // Mode, uid, gid, size, mtime, and the two device numbers (POSIX `ustar`).
    for field in [100..108, 108..116, 116..124, 124..136, 136..148, 329..337, 337..345] {
        let bytes = &mut block[field];
        if bytes.iter().all(|byte| matches!(byte, 0 | b' ')) {
            bytes[0] = b'0';
        }
    }
}

/// Cuts a long name at the NUL that ends it.
fn until_nul(mut bytes: Vec<u8>) -> Vec<u8> {
    if let Some(end) = bytes.iter().position(|byte| *byte == 0) {
        bytes.truncate(end);
    }
    bytes
}

/// Reads exactly an entry's content: an early end is an error.
pub(crate) struct Content<'a, R> {
    archive: &'a mut Archive<R>,
}

impl<R: Read> Read for Content<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let archive = &mut *self.archive;
        let wanted = archive.content.min(buffer.len() as u64) as usize;
        if wanted == 0 {
            return Ok(0);
        }
        let count = archive.reader.read(&mut buffer[..wanted])?;
        if count == 0 {
            let reason = format!("it ends {} bytes before the entry does", archive.content);
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, reason));
        }
        archive.position += count as u64;
        archive.content -= count as u64;
        archive.unread -= count as u64;
        Ok(count)
    }
}

#[cfg(test)]
mod tests;
