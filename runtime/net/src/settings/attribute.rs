//! Reads, filters and builds netlink attributes in nftables' form. Pure. An attribute is a length, a number
//! and a value, aligned to whole words (include/uapi/linux/netlink.h).

use netlink_packet_core::NlasIterator;

/// Returns the value of an object's attribute.
pub(super) fn attribute(attributes: &[u8], kind: u16) -> Option<&[u8]> {
    let mut all = NlasIterator::new(attributes).filter_map(Result::ok);
    let found = all.find(|attribute| attribute.kind() == kind)?;
    Some(&found.into_inner()[4..usize::from(found.length())])
}

/// An attribute's text, without its final zero.
pub(super) fn text(attributes: &[u8], kind: u16) -> Option<String> {
    let value = attribute(attributes, kind)?;
    let text = value.strip_suffix(b"\0").unwrap_or(value);
    Some(String::from_utf8_lossy(text).into_owned())
}

/// Returns the attributes of these kinds.
pub(super) fn kept(attributes: &[u8], kinds: &[u16]) -> Vec<u8> {
    let mut kept = Vec::with_capacity(attributes.len());
    for attribute in NlasIterator::new(attributes).filter_map(Result::ok) {
        if kinds.contains(&attribute.kind()) {
            let length = usize::from(attribute.length());
            kept.extend(&attribute.into_inner()[..length]);
            kept.resize(kept.len().next_multiple_of(4), 0);
        }
    }
    kept
}

/// Builds an attribute of one big-endian word.
pub(super) fn word(kind: u16, value: u32) -> Vec<u8> {
    nested(kind, &value.to_be_bytes())
}

/// Builds an attribute with this value. The value's length is a multiple of four.
pub(super) fn nested(kind: u16, value: &[u8]) -> Vec<u8> {
    let length = u16::try_from(4 + value.len()).unwrap_or(u16::MAX);
    [&length.to_ne_bytes(), &kind.to_ne_bytes(), value].concat()
}

/// A big-endian word at the beginning of a value.
pub(super) fn be32(value: &[u8]) -> Option<u32> {
    Some(u32::from_be_bytes(*value.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two attributes: number 1, "nat" with its zero; number 2, four bytes.
    const ATTRIBUTES: [u8; 16] = [8, 0, 1, 0, b'n', b'a', b't', 0, 8, 0, 2, 0, 0, 0, 0, 1];

    #[test]
    fn attributes_are_found_by_their_number() {
        assert_eq!(text(&ATTRIBUTES, 1).as_deref(), Some("nat"));
        assert_eq!(attribute(&ATTRIBUTES, 2), Some(&[0, 0, 0, 1][..]));
        assert_eq!(attribute(&ATTRIBUTES, 3), None);
    }

    #[test]
    fn torn_attributes_are_no_attributes() {
        for torn in [&ATTRIBUTES[..6], &[3, 0, 1, 0], &[0, 0, 0, 0], &[255, 255, 1, 0, 1], &[8]] {
            assert_eq!(attribute(torn, 1), None, "{torn:?}");
        }
    }
}
