//! Extended headers of a tar archive (POSIX pax: records of `<length> <key>=<value>\n`). Owns their parsing.
//!
//! The record's length marks its end, not the newline: the value of an extended attribute may hold any byte.
//! An empty value cancels an earlier record (POSIX, `pax`), so the entry's own header counts again. That has
//! no extended attributes, so the value of one may be empty. Go's archives have such records.

use std::collections::BTreeMap;

use runtime_erofs::Timestamp;

use crate::sparse;

/// The content of an extended header. It describes the following entry.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Extended {
    pub(crate) path: Option<Vec<u8>>,
    pub(crate) link: Option<Vec<u8>>,
    pub(crate) size: Option<u64>,
    pub(crate) uid: Option<u64>,
    pub(crate) gid: Option<u64>,
    pub(crate) mtime: Option<Timestamp>,
    pub(crate) xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    pub(crate) sparse: sparse::Records,
}

const XATTR: &[u8] = b"SCHILY.xattr.";
const SPARSE: &[u8] = b"GNU.sparse.";

impl Extended {
    /// Parses the content of an extended header. The error names the wrong record.
    pub(crate) fn parse(mut bytes: &[u8]) -> Result<Extended, String> {
        let mut found = Extended::default();
        while !bytes.is_empty() {
            let (record, rest) = split_record(bytes)?;
            bytes = rest;
            let equals = record.iter().position(|byte| *byte == b'=').ok_or("a record without \"=\"")?;
            found.set(&record[..equals], &record[equals + 1..])?;
        }
        Ok(found)
    }

    fn set(&mut self, key: &[u8], value: &[u8]) -> Result<(), String> {
        if value.is_empty() && !key.starts_with(XATTR) {
            self.unset(key);
            return Ok(());
        }
        let wrong = |what: &str| format!("{what} \"{}\"", value.escape_ascii());
        match key {
            b"path" => self.path = Some(value.to_vec()),
            b"linkpath" => self.link = Some(value.to_vec()),
            b"size" => self.size = Some(number(value).ok_or_else(|| wrong("the size"))?),
            b"uid" => self.uid = Some(number(value).ok_or_else(|| wrong("the uid"))?),
            b"gid" => self.gid = Some(number(value).ok_or_else(|| wrong("the gid"))?),
            b"mtime" => self.mtime = Some(time(value).ok_or_else(|| wrong("the mtime"))?),
            key => {
                if let Some(name) = key.strip_prefix(XATTR) {
                    self.xattrs.insert(name.to_vec(), value.to_vec());
                } else if let Some(key) = key.strip_prefix(SPARSE) {
                    self.sparse.set(key, value)?;
                }
            }
        }
        Ok(())
    }

    fn unset(&mut self, key: &[u8]) {
        match key {
            b"path" => self.path = None,
            b"linkpath" => self.link = None,
            b"size" => self.size = None,
            b"uid" => self.uid = None,
            b"gid" => self.gid = None,
            b"mtime" => self.mtime = None,
            _ => {}
        }
    }
}

/// Returns the first record, without length and newline, and the rest.
fn split_record(bytes: &[u8]) -> Result<(&[u8], &[u8]), String> {
    let space = bytes.iter().take(20).position(|byte| *byte == b' ').ok_or("a record without a length")?;
    let length =
        number(&bytes[..space]).and_then(|length| usize::try_from(length).ok()).ok_or("a bad length")?;
    if length < space + 2 || length > bytes.len() || bytes[length - 1] != b'\n' {
        return Err(format!("a record with the wrong length {length}"));
    }
    Ok((&bytes[space + 1..length - 1], &bytes[length..]))
}

fn number(value: &[u8]) -> Option<u64> {
    std::str::from_utf8(value).ok()?.parse().ok()
}

/// `[-]seconds[.fraction]`.
fn time(value: &[u8]) -> Option<Timestamp> {
    let text = std::str::from_utf8(value).ok()?;
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    if !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let seconds: i64 = whole.parse().ok()?;
    let digits: String = fraction.chars().chain(std::iter::repeat('0')).take(9).collect();
    let nanoseconds: u32 = digits.parse().ok()?;
    if whole.starts_with('-') && nanoseconds > 0 {
        // -1.25 s is 0.75 s after 2 s before the epoch.
        return Some(Timestamp {
            seconds: seconds.checked_sub(1)?,
            nanoseconds: 1_000_000_000 - nanoseconds,
        });
    }
    Some(Timestamp { seconds, nanoseconds })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Builds a record, starting with its own length.
    fn record(key: &[u8], value: &[u8]) -> Vec<u8> {
        let body = key.len() + value.len() + 3;
        let mut length = body + 1;
        while length != body + length.to_string().len() {
            length = body + length.to_string().len();
        }
        [format!("{length} ").as_bytes(), key, b"=", value, b"\n"].concat()
    }

    #[test]
    fn known_keys_are_read() {
        let bytes = [record(b"path", b"a/b"), record(b"mtime", b"12.5"), record(b"comment", b"x")].concat();
        let found = Extended::parse(&bytes).unwrap();
        assert_eq!(found.path.as_deref(), Some(&b"a/b"[..]));
        assert_eq!(found.mtime, Some(Timestamp { seconds: 12, nanoseconds: 500_000_000 }));
    }

    #[test]
    fn times_have_signs_and_fractions() {
        let at = |seconds, nanoseconds| Some(Timestamp { seconds, nanoseconds });
        assert_eq!(time(b"0"), at(0, 0));
        assert_eq!(time(b"1.000000001"), at(1, 1));
        assert_eq!(time(b"1.0000000019"), at(1, 1));
        assert_eq!(time(b"-1.25"), at(-2, 750_000_000));
        assert_eq!(time(b"-0.5"), at(-1, 500_000_000));
        assert_eq!(time(b"1.-5"), None);
        assert_eq!(time(b"x"), None);
    }

    #[test]
    fn broken_records_are_refused() {
        for bytes in
            [&b"path=a\n"[..], b"99 path=a\n", b"3 a", b"9 path a\n", b"0 \n", b"99999999999999999999999 "]
        {
            assert!(Extended::parse(bytes).is_err(), "{}", bytes.escape_ascii());
        }
        assert!(Extended::parse(&record(b"GNU.sparse.size", b"much")).is_err());
    }

    #[test]
    fn an_empty_value_takes_back_what_was_said() {
        let keys: [(&[u8], &[u8]); 6] = [
            (b"path", b"a"),
            (b"linkpath", b"b"),
            (b"size", b"1"),
            (b"uid", b"2"),
            (b"gid", b"3"),
            (b"mtime", b"4.5"),
        ];
        let said: Vec<u8> = keys.iter().flat_map(|(key, value)| record(key, value)).collect();
        let taken_back: Vec<u8> = keys.iter().flat_map(|(key, _)| record(key, b"")).collect();
        assert_ne!(Extended::parse(&said).unwrap(), Extended::default());
        assert_eq!(Extended::parse(&taken_back).unwrap(), Extended::default());
        assert_eq!(Extended::parse(&[said, taken_back].concat()).unwrap(), Extended::default());
    }

    #[test]
    fn an_attribute_may_be_empty() {
        let found = Extended::parse(&record(b"SCHILY.xattr.user.x", b"")).unwrap();
        assert_eq!(found.xattrs.get(&b"user.x"[..]), Some(&Vec::new()));
    }

    proptest! {
        #[test]
        fn attribute_values_hold_any_byte(value in prop::collection::vec(any::<u8>(), 0..200)) {
            let found = Extended::parse(&record(b"SCHILY.xattr.user.x", &value)).unwrap();
            prop_assert_eq!(found.xattrs.get(&b"user.x"[..]), Some(&value));
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = Extended::parse(&bytes);
        }
    }
}
