//! A terminal's sizes in the form sent by clients: JSON objects one after the other, with or without
//! newlines.

use serde::Deserialize;

use crate::channels::Size;

/// Longest incomplete object kept, in bytes.
const PENDING_BYTES_MAX: usize = 256;

/// Parses sizes from a stream in pieces.
#[derive(Debug, Default)]
pub(crate) struct Sizes {
    pending: Vec<u8>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Wire {
    width: u16,
    height: u16,
}

impl Sizes {
    /// Returns the sizes completed by this piece. After an error nothing more can be parsed:
    /// the next piece needs a new parser.
    pub(crate) fn push(&mut self, piece: &[u8]) -> Result<Vec<Size>, InvalidSize> {
        self.pending.extend_from_slice(piece);
        let mut sizes = Vec::new();
        let mut values = serde_json::Deserializer::from_slice(&self.pending).into_iter::<Wire>();
        let mut taken = 0;
        loop {
            match values.next() {
                Some(Ok(size)) => {
                    taken = values.byte_offset();
                    if size.width > 0 && size.height > 0 {
                        sizes.push(Size { columns: size.width, rows: size.height });
                    }
                }
                Some(Err(error)) if error.is_eof() => break,
                Some(Err(_)) => return Err(InvalidSize),
                None => break,
            }
        }
        self.pending.drain(..taken);
        if self.pending.len() > PENDING_BYTES_MAX { Err(InvalidSize) } else { Ok(sizes) }
    }
}

/// The stream contains an invalid size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct InvalidSize;

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: Size = Size { columns: 80, rows: 24 };

    #[test]
    fn sizes_come_in_any_pieces() {
        let text = b"{\"Width\":80,\"Height\":24}\n{\"Width\":80,\"Height\":24}";
        for cut in 0..text.len() {
            let mut sizes = Sizes::default();
            let mut got = sizes.push(&text[..cut]).unwrap();
            got.extend(sizes.push(&text[cut..]).unwrap());
            assert_eq!(got, [SMALL, SMALL], "cut at {cut}");
        }
    }

    #[test]
    fn a_size_of_zero_is_passed_over() {
        assert_eq!(Sizes::default().push(b"{\"Width\":0,\"Height\":24}").unwrap(), []);
    }

    #[test]
    fn a_text_that_is_no_size_is_refused_and_not_kept() {
        assert_eq!(Sizes::default().push(b"nonsense"), Err(InvalidSize));
        assert_eq!(Sizes::default().push(b"{\"Width\":99999,\"Height\":1}"), Err(InvalidSize));
        let mut sizes = Sizes::default();
        let endless = " ".repeat(PENDING_BYTES_MAX) + "{\"Width\":1,";
        assert!(sizes.push(endless.as_bytes()).is_err());
    }
}
