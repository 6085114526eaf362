//! Extended attributes in their on-disk form after an inode. Owns their names, limits and encoding.
//!
//! ```text
//! header (12 bytes) │ entry: name length, name index, value length │ name │ value │ pad to 4 │ entry …
//! ```
//! (kernel `fs/erofs/erofs_fs.h`, `erofs_xattr_ibody_header` and `erofs_xattr_entry`)

use std::collections::BTreeMap;

use crate::error::Problem;
use crate::limits::{MAX_VALUE_BYTES, MAX_XATTR_BYTES};

const HEADER_BYTES: usize = 12;

/// Namespaces and their on-disk indexes. An exact name has nothing after it; a prefix must have something.
const PREFIXES: [(&[u8], u8); 3] = [(b"user.", 1), (b"trusted.", 4), (b"security.", 6)];
const EXACT: [(&[u8], u8); 2] = [(b"system.posix_acl_access", 2), (b"system.posix_acl_default", 3)];

/// Returns true if EROFS can store an attribute with this full name.
pub fn is_supported_xattr(name: &[u8]) -> bool {
    split(name).is_some()
}

/// Returns the on-disk index of the name's namespace, and the rest of the name.
fn split(name: &[u8]) -> Option<(u8, &[u8])> {
    if let Some((_, index)) = EXACT.iter().find(|(exact, _)| *exact == name) {
        return Some((*index, b""));
    }
    PREFIXES.iter().find_map(|(prefix, index)| {
        let rest = name.strip_prefix(*prefix)?;
        (!rest.is_empty() && rest.len() <= 255 && !rest.contains(&0)).then_some((*index, rest))
    })
}

pub(crate) fn check(xattrs: &BTreeMap<Vec<u8>, Vec<u8>>) -> Result<(), Problem> {
    for (name, value) in xattrs {
        if split(name).is_none() {
            return Err(Problem::XattrName(name.escape_ascii().to_string()));
        }
        if value.len() > MAX_VALUE_BYTES {
            return Err(Problem::XattrTooLarge(value.len()));
        }
    }
    let size = encoded_size(xattrs);
    if size > MAX_XATTR_BYTES { Err(Problem::XattrTooLarge(size)) } else { Ok(()) }
}

/// Returns the bytes on disk; 0 without attributes.
pub(crate) fn encoded_size(xattrs: &BTreeMap<Vec<u8>, Vec<u8>>) -> usize {
    if xattrs.is_empty() {
        return 0;
    }
    let entries: usize = xattrs
        .iter()
        .filter_map(|(name, value)| Some((4 + split(name)?.1.len() + value.len()).next_multiple_of(4)))
        .sum();
    HEADER_BYTES + entries
}

/// Returns the inode's `i_xattr_icount` for a body of `size` bytes.
pub(crate) fn icount(size: usize) -> u16 {
    if size == 0 {
        return 0;
    }
    u16::try_from((size - HEADER_BYTES) / 4 + 1).expect("MAX_XATTR_BYTES / 4 fits 16 bits")
}

/// Appends the encoded body. [`check`] has accepted the attributes.
pub(crate) fn encode(xattrs: &BTreeMap<Vec<u8>, Vec<u8>>, out: &mut Vec<u8>) {
    if xattrs.is_empty() {
        return;
    }
    let start = out.len();
    out.extend_from_slice(&[0; HEADER_BYTES]);
    for (name, value) in xattrs {
        let Some((index, rest)) = split(name) else { continue };
        out.push(u8::try_from(rest.len()).expect("checked: at most 255"));
        out.push(index);
        out.extend_from_slice(&u16::try_from(value.len()).expect("checked: fits 16 bits").to_le_bytes());
        out.extend_from_slice(rest);
        out.extend_from_slice(value);
        out.resize(start + (out.len() - start).next_multiple_of(4), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(name: &str, value: &[u8]) -> BTreeMap<Vec<u8>, Vec<u8>> {
        BTreeMap::from([(name.as_bytes().to_vec(), value.to_vec())])
    }

    #[test]
    fn encoded_size_is_the_size_of_the_encoding() {
        for value in 0..9 {
            let xattrs = one("user.name", &vec![7; value]);
            let mut out = Vec::new();
            encode(&xattrs, &mut out);
            assert_eq!(out.len(), encoded_size(&xattrs));
            assert_eq!(12 + (usize::from(icount(out.len())) - 1) * 4, out.len());
        }
    }

    #[test]
    fn an_attribute_without_a_known_namespace_is_refused() {
        assert!(
            matches!(check(&one("com.apple.x", b"")), Err(Problem::XattrName(name)) if name == "com.apple.x")
        );
        assert!(check(&one("user.", b"")).is_err());
        assert!(check(&one("system.posix_acl_access", b"x")).is_ok());
    }

    #[test]
    fn a_value_longer_than_its_length_field_is_refused() {
        assert_eq!(check(&one("user.a", &vec![0; 65536])), Err(Problem::XattrTooLarge(65536)));
        assert_eq!(check(&one("user.a", &vec![0; 65535])), Ok(()));
    }
}
