//! Header blocks: zlib with a preset dictionary, one context for each direction of a connection. Both sizes,
//! before and after, are bounded: a small block can decompress to a very large one.

use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};

use super::dictionary::dictionary;
use super::error::SpdyError;

/// Longest header block after decompression, in bytes. A stream's headers are three short ones.
pub(crate) const BLOCK_BYTES_MAX: usize = 16 * 1024;

/// Headers of one stream.
pub(crate) const HEADERS_MAX: usize = 64;

/// Headers as pairs of a name, in lower case, and a value.
pub type Headers = Vec<(String, String)>;

/// Decompresses the peer's blocks, in their order: all share one context.
#[derive(Debug)]
pub(crate) struct Inflater(Decompress);

/// Compresses this side's blocks, in their order.
#[derive(Debug)]
pub(crate) struct Deflater(Compress);

impl Inflater {
    pub(crate) fn new() -> Inflater {
        Inflater(Decompress::new(true))
    }

    /// Returns the headers of the next block. After an error the context is unusable.
    pub(crate) fn read(&mut self, block: &[u8]) -> Result<Headers, SpdyError> {
        parse(&self.inflate(block)?)
    }

    fn inflate(&mut self, block: &[u8]) -> Result<Vec<u8>, SpdyError> {
        let mut plain = Vec::with_capacity(BLOCK_BYTES_MAX + 1);
        let mut rest = block;
        loop {
            let before = (self.0.total_in(), plain.len());
            let outcome = self.0.decompress_vec(rest, &mut plain, FlushDecompress::Sync);
            let taken = usize::try_from(self.0.total_in() - before.0).unwrap_or(rest.len());
            rest = rest.get(taken..).unwrap_or_default();
            match outcome {
                Err(error) if error.needs_dictionary().is_some() => {
                    self.0.set_dictionary(&dictionary()).map_err(|_| SpdyError::Compression)?;
                    continue;
                }
                Err(_) => return Err(SpdyError::Compression),
                Ok(Status::StreamEnd) if !rest.is_empty() => return Err(SpdyError::Compression),
                Ok(_) => {}
            }
            if plain.len() > BLOCK_BYTES_MAX {
                return Err(SpdyError::HeadersTooLong);
            }
            let stalled = before == (self.0.total_in(), plain.len());
            match (rest.is_empty(), stalled) {
                // After a decompression with `Sync` nothing of the block is left inside.
                (true, _) => return Ok(plain),
                (false, true) => return Err(SpdyError::Compression),
                (false, false) => {}
            }
        }
    }
}

impl Deflater {
    pub(crate) fn new() -> Result<Deflater, SpdyError> {
        let mut compress = Compress::new(Compression::fast(), true);
        compress.set_dictionary(&dictionary()).map_err(|_| SpdyError::Compression)?;
        Ok(Deflater(compress))
    }

    /// Returns the next block, with these headers.
    pub(crate) fn write(&mut self, headers: &[(&str, &str)]) -> Result<Vec<u8>, SpdyError> {
        let mut plain = Vec::new();
        push_length(&mut plain, headers.len());
        for (name, value) in headers {
            for text in [name, value] {
                push_length(&mut plain, text.len());
                plain.extend_from_slice(text.as_bytes());
            }
        }
        // Deflate's worst case is a few bytes for each 16 KiB, and a sync flush has five.
        let mut block = Vec::with_capacity(plain.len() + plain.len() / 1024 + 64);
        let before = self.0.total_in();
        self.0.compress_vec(&plain, &mut block, FlushCompress::Sync).map_err(|_| SpdyError::Compression)?;
        if self.0.total_in() - before != plain.len() as u64 {
            return Err(SpdyError::Compression);
        }
        Ok(block)
    }
}

fn push_length(into: &mut Vec<u8>, length: usize) {
    into.extend_from_slice(&u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes());
}

/// Parses a count, and then names and values, each after its length. Several values of one name are separated
/// by NULs. Only the first is used.
fn parse(mut plain: &[u8]) -> Result<Headers, SpdyError> {
    let count = take_length(&mut plain)?;
    if count > HEADERS_MAX {
        return Err(SpdyError::HeadersTooLong);
    }
    let mut headers = Vec::with_capacity(count);
    for _ in 0..count {
        let name = take_text(&mut plain)?.to_ascii_lowercase();
        let values = take_text(&mut plain)?;
        let value = values.split('\0').next().unwrap_or_default().to_owned();
        headers.push((name, value));
    }
    if plain.is_empty() { Ok(headers) } else { Err(SpdyError::Malformed("a header block")) }
}

fn take_length(plain: &mut &[u8]) -> Result<usize, SpdyError> {
    let (length, rest) = plain.split_first_chunk().ok_or(SpdyError::Malformed("a header block"))?;
    *plain = rest;
    Ok(usize::try_from(u32::from_be_bytes(*length)).unwrap_or(usize::MAX))
}

fn take_text(plain: &mut &[u8]) -> Result<String, SpdyError> {
    let length = take_length(plain)?;
    let (text, rest) = plain.split_at_checked(length).ok_or(SpdyError::Malformed("a header block"))?;
    *plain = rest;
    String::from_utf8(text.to_vec()).map_err(|_| SpdyError::Malformed("a header's text"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn blocks_share_one_context_in_their_order() {
        let (mut out, mut into) = (Deflater::new().unwrap(), Inflater::new());
        for number in ["1", "2", "3"] {
            let block = out.write(&[("streamtype", "stdin"), ("requestid", number)]).unwrap();
            let headers = into.read(&block).unwrap();
            assert_eq!(headers[1], ("requestid".to_owned(), number.to_owned()));
        }
    }

    #[test]
    fn a_small_block_that_stands_for_a_large_one_is_refused() {
        let value = "x".repeat(64 << 20);
        let bomb = Deflater::new().unwrap().write(&[("streamtype", &value)]).unwrap();
        assert!(bomb.len() < (64 << 20) / 50);
        assert!(matches!(Inflater::new().read(&bomb), Err(SpdyError::HeadersTooLong)));
    }

    #[test]
    fn a_count_or_length_beyond_the_block_is_refused() {
        for plain in [&b"\xff\xff\xff\xff"[..], b"\0\0\0\x01\x40\0\0\0a", b"\0\0\0\x01", b"", b"\0\0\0\0x"] {
            assert!(parse(plain).is_err(), "{plain:?}");
        }
        assert_eq!(parse(b"\0\0\0\0").unwrap(), Vec::new());
    }

    #[test]
    fn of_several_values_the_first_counts() {
        let headers = parse(b"\0\0\0\x01\0\0\0\x01A\0\0\0\x03b\0c").unwrap();
        assert_eq!(headers, [("a".to_owned(), "b".to_owned())]);
    }

    proptest! {
        #[test]
        fn noise_is_an_error_or_headers_and_never_more(noise in proptest::collection::vec(any::<u8>(), 0..512)) {
            if let Ok(headers) = Inflater::new().read(&noise) {
                prop_assert!(headers.len() <= HEADERS_MAX);
            }
            let _ = parse(&noise);
        }

        #[test]
        fn headers_survive(pairs in proptest::collection::vec(("[a-z]{1,20}", "[ -~]{0,50}"), 0..20)) {
            let borrowed: Vec<_> = pairs.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
            let block = Deflater::new().unwrap().write(&borrowed).unwrap();
            prop_assert_eq!(Inflater::new().read(&block).unwrap(), pairs);
        }
    }
}
