//! Reads a layer's tar archive from front to back. Owns headers, long names and the archive's end; never a tree.
//!
//! Header fields are taken apart by the `tar` crate. The loop over entries is our own because what precedes an
//! entry (extended headers, long names) must have a bound here, and its attribute values may hold newlines.

use std::io::{self, Read};

use runtime_erofs::{Device, Timestamp};
use tar::{EntryType, Header};

use crate::pax::Extended;

const BLOCK: usize = 512;

/// Bytes of one extended header. Linux allows an attribute of 64 KiB; a file may have several.
const MAX_EXTENDED_BYTES: u64 = 1 << 20;

/// What one entry is. The content of a file is read through [`Archive::content`] before the next entry.
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

/// Why an archive cannot be read on.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Broken {
    /// "in entry …" or "at byte …".
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
    /// Of those, content.
    content: u64,
    /// The present entry's path.
    path: Vec<u8>,
}

impl<R: Read> Archive<R> {
    pub(crate) fn new(reader: R) -> Self {
        Archive { reader, position: 0, unread: 0, content: 0, path: Vec::new() }
    }

    /// The next entry, or none at the archive's end.
    pub(crate) fn next_entry(&mut self) -> Result<Option<Entry>, Broken> {
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

    /// The reader, somewhere after the last entry that was read.
    pub(crate) fn into_inner(self) -> R {
        self.reader
    }

    /// Bytes of content that are still to be read.
    pub(crate) fn content_left(&self) -> u64 {
        self.content
    }

    /// What is wrong, with the place.
    pub(crate) fn broken(&self, reason: impl Into<String>) -> Broken {
        let place = if self.path.is_empty() {
            format!("at byte {}", self.position)
        } else {
            format!("in entry \"{}\"", self.path.escape_ascii())
        };
        Broken { place, reason: reason.into() }
    }

    fn entry(&mut self, header: &Header, size: u64, extended: Extended) -> Result<Entry, Broken> {
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
        let mtime = Timestamp { seconds: i64::try_from(seconds).unwrap_or(i64::MAX), nanoseconds: 0 };
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

    fn device(&self, header: &Header) -> Result<Device, Broken> {
        let number = |part: io::Result<Option<u32>>| match part {
            Ok(number) => Ok(number.unwrap_or(0)),
            Err(error) => Err(self.broken(format!("device number: {error}"))),
        };
        Ok(Device { major: number(header.device_major())?, minor: number(header.device_minor())? })
    }

    /// A header block whose checksum holds; none at the end, which is a zero block or the end of the bytes.
    fn read_header(&mut self) -> Result<Option<[u8; BLOCK]>, Broken> {
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
            Ok(stated) if stated == sum => Ok(Some(block)),
            _ => Err(self.broken("the bytes before it are no tar header")),
        }
    }

    fn read_extended(&mut self, size: u64) -> Result<Vec<u8>, Broken> {
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
    fn skip_rest(&mut self) -> Result<(), Broken> {
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

/// Up to the NUL that ends a long name.
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
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn header(path: &str, kind: EntryType, size: u64) -> Header {
        let mut header = Header::new_gnu();
        header.set_path(path).unwrap();
        header.set_entry_type(kind);
        header.set_mode(0o4755);
        header.set_uid(1);
        header.set_gid(2);
        header.set_mtime(3);
        header.set_size(size);
        header.set_cksum();
        header
    }

    fn archive(build: impl FnOnce(&mut tar::Builder<Vec<u8>>)) -> Vec<u8> {
        let mut builder = tar::Builder::new(Vec::new());
        build(&mut builder);
        builder.into_inner().unwrap()
    }

    fn read_all(bytes: &[u8]) -> Result<Vec<(Entry, Vec<u8>)>, Broken> {
        let mut archive = Archive::new(bytes);
        let mut entries = Vec::new();
        while let Some(entry) = archive.next_entry()? {
            let mut content = Vec::new();
            if let Err(error) = archive.content().read_to_end(&mut content) {
                return Err(archive.broken(error.to_string()));
            }
            entries.push((entry, content));
        }
        Ok(entries)
    }

    #[test]
    fn plain_entries_are_read() {
        let bytes = archive(|builder| {
            builder.append(&header("d/", EntryType::Directory, 0), io::empty()).unwrap();
            builder.append(&header("d/f", EntryType::Regular, 5), &b"hello"[..]).unwrap();
        });
        let entries = read_all(&bytes).unwrap();
        assert_eq!(entries[0].0.kind, Kind::Directory);
        assert_eq!(entries[1].0.path, b"d/f");
        assert_eq!(entries[1].1, b"hello");
        assert_eq!((entries[1].0.mode, entries[1].0.uid, entries[1].0.gid), (0o4755, 1, 2));
        assert_eq!(entries[1].0.mtime.seconds, 3);
    }

    #[test]
    fn long_names_and_targets_are_read() {
        let (path, target) = ("p/".repeat(150) + "end", "t/".repeat(150));
        let bytes = archive(|builder| {
            builder.append_link(&mut header("x", EntryType::Symlink, 0), &path, &target).unwrap();
        });
        let entries = read_all(&bytes).unwrap();
        assert_eq!(entries[0].0.path, path.as_bytes());
        assert_eq!(entries[0].0.kind, Kind::Symlink(target.into_bytes()));
    }

    #[test]
    fn extended_headers_apply_to_the_next_entry_only() {
        let bytes = archive(|builder| {
            let records: [(&str, &[u8]); 4] =
                [("uid", b"70000"), ("mtime", b"5.25"), ("path", b"renamed"), ("SCHILY.xattr.user.x", b"1")];
            builder.append_pax_extensions(records).unwrap();
            builder.append(&header("a", EntryType::Regular, 0), io::empty()).unwrap();
            builder.append(&header("b", EntryType::Regular, 0), io::empty()).unwrap();
        });
        let entries = read_all(&bytes).unwrap();
        let (first, second) = (&entries[0].0, &entries[1].0);
        assert_eq!((first.path.as_slice(), first.uid), (&b"renamed"[..], 70000));
        assert_eq!(first.mtime, Timestamp { seconds: 5, nanoseconds: 250_000_000 });
        assert_eq!(first.xattrs.len(), 1);
        assert_eq!((second.path.as_slice(), second.uid), (&b"b"[..], 1));
        assert!(second.xattrs.is_empty());
    }

    #[test]
    fn a_global_header_is_passed_over() {
        let bytes = archive(|builder| {
            let record = b"52 comment=0123456789012345678901234567890123456789\n";
            builder.append(&header("g", EntryType::XGlobalHeader, record.len() as u64), &record[..]).unwrap();
            builder.append(&header("a", EntryType::Regular, 0), io::empty()).unwrap();
        });
        assert_eq!(read_all(&bytes).unwrap().len(), 1);
    }

    #[test]
    fn an_archive_cut_within_an_entry_says_which() {
        let mut bytes = archive(|builder| {
            builder.append(&header("big", EntryType::Regular, 2000), &[7; 2000][..]).unwrap();
        });
        bytes.truncate(1000);
        let broken = read_all(&bytes).unwrap_err();
        assert_eq!(broken.place, "in entry \"big\"");
        assert_eq!(broken.reason, "it ends 1512 bytes before the entry does");
        bytes.truncate(100);
        assert_eq!(read_all(&bytes).unwrap_err().reason, "it ends within a header");
    }

    #[test]
    fn bytes_that_are_no_archive_are_refused() {
        let broken = read_all(&[b'x'; 1024]).unwrap_err();
        assert_eq!(
            broken,
            Broken { place: "at byte 512".into(), reason: "the bytes before it are no tar header".into() }
        );
    }

    #[test]
    fn what_is_not_supported_is_named() {
        let sparse = archive(|builder| {
            builder.append(&header("s", EntryType::GNUSparse, 0), io::empty()).unwrap();
        });
        assert_eq!(read_all(&sparse).unwrap_err().reason, "sparse entries are not supported");
        let odd = archive(|builder| {
            builder.append(&header("o", EntryType::new(b'V'), 0), io::empty()).unwrap();
        });
        assert_eq!(read_all(&odd).unwrap_err().reason, "entries of type 'V' are not supported");
    }

    #[test]
    fn an_extended_header_without_bound_is_refused() {
        let mut bytes = header("x", EntryType::XHeader, 1 << 40).as_bytes().to_vec();
        bytes.extend_from_slice(&[b'x'; 4096]);
        assert!(read_all(&bytes).unwrap_err().reason.contains("extended header of 1099511627776 bytes"));
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(mut bytes in prop::collection::vec(any::<u8>(), 512..2048), kind in any::<u8>()) {
            bytes[156] = kind;
            let sum: u32 = bytes[..512].iter().enumerate()
                .map(|(at, byte)| u32::from(if (148..156).contains(&at) { b' ' } else { *byte })).sum();
            bytes[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
            let _ = read_all(&bytes);
        }
    }
}
