//! Sparse files of an archive: their stored pieces and their holes. Owns the map's forms and their checks.
//! `archive.rs` has the bytes.
//!
//! | form | map |
//! |---|---|
//! | old GNU (type `S`) | in the header, and in blocks after it |
//! | PAX 0.0, 0.1 | in the extended header, as many records or as one |
//! | PAX 1.0 | before the content, as lines of numbers in whole blocks |
//!
//! A map is a list of numbers: offset and length of each stored piece.

use std::collections::VecDeque;

use tar::{GnuExtSparseHeader, GnuSparseHeader};

/// Most stored pieces of one file. Each takes tens of bytes of memory.
pub(crate) const PIECES_MAX: usize = 1 << 18;

/// Most digits of a number in a map: those of 2^64.
const DIGITS_MAX: usize = 20;

/// A piece of a file's content, with its length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Piece {
    /// Zeros not held in the archive.
    Hole(u64),
    /// Bytes of the archive.
    Stored(u64),
}

/// The place of a map announced by records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    InRecords,
    BeforeContent,
}

/// The records of an extended header about a sparse file.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Records {
    major: Option<u64>,
    minor: Option<u64>,
    /// The file's own name; the entry then has another.
    pub(crate) name: Option<Vec<u8>>,
    /// Bytes of the file with its holes.
    pub(crate) size: Option<u64>,
    pub(crate) map: Vec<u64>,
}

impl Records {
    /// Takes the record `GNU.sparse.<key>`. Redundant keys are ignored.
    pub(crate) fn set(&mut self, key: &[u8], value: &[u8]) -> Result<(), String> {
        let one = || number(value).ok_or_else(|| wrong(value));
        match key {
            b"major" => self.major = Some(one()?),
            b"minor" => self.minor = Some(one()?),
            b"name" => self.name = Some(value.to_vec()),
            b"size" | b"realsize" => self.size = Some(one()?),
            b"offset" | b"numbytes" => {
                // Each offset is followed by its length.
                if self.map.len().is_multiple_of(2) != (key == b"offset") {
                    return Err("a sparse map without order".to_owned());
                }
                self.map.push(one()?);
            }
            b"map" => {
                let numbers = value.split(|byte| *byte == b',');
                let map: Option<Vec<u64>> = numbers.map(number).collect();
                self.map = map.ok_or_else(|| wrong(value))?;
            }
            _ => {}
        }
        Ok(())
    }

    /// Returns the map's place. `None` if the file is not sparse.
    pub(crate) fn form(&self) -> Result<Option<Form>, String> {
        match (self.major, self.minor) {
            (None, None) if self.map.is_empty() => Ok(None),
            (None, None) | (Some(0), Some(0 | 1)) => Ok(Some(Form::InRecords)),
            (Some(1), Some(0)) => Ok(Some(Form::BeforeContent)),
            (major, minor) => {
                let shown = |part: Option<u64>| part.map_or("none".to_owned(), |part| part.to_string());
                Err(format!("sparse files of version {}.{} are not known", shown(major), shown(minor)))
            }
        }
    }
}

/// Appends the pieces of an old GNU header to a map.
pub(crate) fn add_headers(map: &mut Vec<u64>, headers: &[GnuSparseHeader]) -> Result<(), String> {
    for header in headers.iter().take_while(|header| !header.is_empty()) {
        let both = header.offset().and_then(|offset| Ok((offset, header.length()?)));
        let (offset, length) = both.map_err(|error| error.to_string())?;
        map.extend([offset, length]);
    }
    bounded(map.len() / 2)
}

/// A block of a map after an old GNU header.
pub(crate) fn further(block: &[u8; 512]) -> GnuExtSparseHeader {
    let mut header = GnuExtSparseHeader::new();
    header.as_mut_bytes().copy_from_slice(block);
    header
}

/// A map before the content, read block by block.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    digits: Vec<u8>,
    /// The number of pieces, and offset and length of each.
    numbers: Vec<u64>,
}

impl Lines {
    /// Takes a block. Returns true if the map is complete.
    pub(crate) fn add(&mut self, block: &[u8]) -> Result<bool, String> {
        for byte in block {
            if *byte != b'\n' {
                self.digits.push(*byte);
                if self.digits.len() > DIGITS_MAX {
                    return Err(wrong(&self.digits));
                }
                continue;
            }
            self.numbers.push(number(&self.digits).ok_or_else(|| wrong(&self.digits))?);
            self.digits.clear();
            let pieces = usize::try_from(self.numbers[0]).unwrap_or(usize::MAX);
            bounded(pieces)?;
            if self.numbers.len() == 1 + 2 * pieces {
                return Ok(true);
            }
        }
        Ok(false)
    }

    pub(crate) fn into_map(mut self) -> Vec<u64> {
        self.numbers.remove(0);
        self.numbers
    }
}

/// Returns the pieces of a file of `size` bytes, with `stored` bytes in the archive.
pub(crate) fn pieces(map: &[u64], size: u64, stored: u64) -> Result<VecDeque<Piece>, String> {
    bounded(map.len() / 2)?;
    let (pairs, []) = map.as_chunks::<2>() else { return Err("a sparse map without order".to_owned()) };
    let mut pieces = VecDeque::new();
    let (mut at, mut sum) = (0, 0_u64);
    for [offset, length] in pairs {
        let end = offset.checked_add(*length).filter(|end| *offset >= at && *end <= size);
        let end =
            end.ok_or_else(|| format!("a stored piece at {offset} of {length} bytes, after {at} of {size}"))?;
        pieces.extend([Piece::Hole(offset - at), Piece::Stored(*length)]);
        // Pieces do not overlap, so their sum is at most the size.
        (at, sum) = (end, sum + length);
    }
    if sum != stored {
        return Err(format!("its sparse map has {sum} bytes, and {stored} are stored"));
    }
    pieces.push_back(Piece::Hole(size - at));
    Ok(pieces)
}

fn bounded(pieces: usize) -> Result<(), String> {
    match pieces {
        0..=PIECES_MAX => Ok(()),
        _ => Err(format!("a sparse map of {pieces} pieces is over {PIECES_MAX}")),
    }
}

fn wrong(value: &[u8]) -> String {
    let beginning = &value[..value.len().min(64)];
    format!("the sparse map's number \"{}\"", beginning.escape_ascii())
}

fn number(value: &[u8]) -> Option<u64> {
    std::str::from_utf8(value).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holes_are_what_lies_between_stored_pieces() {
        use Piece::{Hole, Stored};
        assert_eq!(pieces(&[4, 2, 10, 1], 20, 3).unwrap(), [Hole(4), Stored(2), Hole(4), Stored(1), Hole(9)]);
        assert_eq!(pieces(&[], 7, 0).unwrap(), [Hole(7)]);
        assert_eq!(pieces(&[0, 3, 3, 0], 3, 3).unwrap(), [Hole(0), Stored(3), Hole(0), Stored(0), Hole(0)]);
    }

    #[test]
    fn maps_that_fit_no_file_are_refused() {
        for (map, size, stored) in [
            (&[0, 2, 1, 2][..], 10, 4),
            (&[8, 3], 10, 3),
            (&[u64::MAX, 2], 10, 2),
            (&[0, 2], 10, 3),
            (&[0], 10, 0),
        ] {
            assert!(pieces(map, size, stored).is_err(), "{map:?}");
        }
        assert!(pieces(&vec![0; 2 * PIECES_MAX + 2], 1, 0).unwrap_err().contains("over 262144"));
    }

    #[test]
    fn lines_are_taken_over_the_ends_of_blocks() {
        let mut lines = Lines::default();
        assert!(!lines.add(b"2\n0\n12").unwrap());
        assert!(lines.add(b"3\n500\n7\n\0\0").unwrap());
        assert_eq!(lines.into_map(), [0, 123, 500, 7]);
        assert!(Lines::default().add(b"9999999\n").is_err());
        assert!(Lines::default().add(&[b'1'; 21]).is_err());
        assert!(Lines::default().add(b"x\n").is_err());
    }

    #[test]
    fn records_say_which_form_the_map_has() {
        let with = |records: &[(&[u8], &[u8])]| {
            let mut found = Records::default();
            records.iter().try_for_each(|(key, value)| found.set(key, value)).map(|()| found)
        };
        assert_eq!(with(&[]).unwrap().form(), Ok(None));
        let first = with(&[(b"offset", b"1"), (b"numbytes", b"2"), (b"numblocks", b"1")]).unwrap();
        assert_eq!((first.form(), first.map), (Ok(Some(Form::InRecords)), vec![1, 2]));
        let second = with(&[(b"map", b"1,2,5,6"), (b"size", b"20")]).unwrap();
        assert_eq!((second.form(), second.map), (Ok(Some(Form::InRecords)), vec![1, 2, 5, 6]));
        let third = with(&[(b"major", b"1"), (b"minor", b"0")]).unwrap();
        assert_eq!(third.form(), Ok(Some(Form::BeforeContent)));
        let unknown = with(&[(b"major", b"1")]).unwrap().form();
        assert_eq!(unknown.unwrap_err(), "sparse files of version 1.none are not known");
        assert!(with(&[(b"numbytes", b"2")]).is_err());
        assert!(with(&[(b"map", b"1,x")]).is_err());
    }
}
