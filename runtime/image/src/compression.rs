//! Detects a layer's compression and decompresses it. Owns the detection by the first bytes; never looks into
//! the archive.
//!
//! Media types also name the compression, but builders and mirrors have mislabelled gzip in both directions.
//! Data after the last member of a gzip file is ignored if it is not a member, as in gzip(1): some tools pad
//! to blocks of zeros. The layer's digests still verify all bytes, including this data.

use std::io::{self, BufRead, BufReader, Read};

use flate2::bufread::GzDecoder;

/// Bytes of the buffer before the decoder.
const BUFFER: usize = 256 * 1024;

/// The first bytes of a member (RFC 1952, section 2.3.1).
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// Decompresses the source if it is compressed.
pub(crate) fn decompressed<'a>(mut source: impl Read + 'a) -> io::Result<Box<dyn Read + 'a>> {
    let mut first = Vec::new();
    source.by_ref().take(4).read_to_end(&mut first)?;
    let compression = Compression::of(&first);
    let source = BufReader::with_capacity(BUFFER, io::Cursor::new(first).chain(source));
    Ok(match compression {
        Compression::None => Box::new(source),
        Compression::Gzip => Box::new(Members::new(source)),
        Compression::Zstd => Box::new(zstd::stream::read::Decoder::with_buffer(source)?),
    })
}

/// How a layer is compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Compression {
    None,
    Gzip,
    Zstd,
}

impl Compression {
    /// Checks the magic numbers (RFC 1952; RFC 8878, section 3.1, including skippable frames).
    fn of(first: &[u8]) -> Compression {
        match first {
            [first, second, ..] if [*first, *second] == GZIP => Compression::Gzip,
            [0x28, 0xb5, 0x2f, 0xfd] | [0x50..=0x5f, 0x2a, 0x4d, 0x18] => Compression::Zstd,
            _ => Compression::None,
        }
    }
}

/// The members of a gzip file, one after the other. `None` at its end.
struct Members<R>(Option<GzDecoder<Ahead<R>>>);

impl<R: BufRead> Members<R> {
    fn new(source: R) -> Self {
        Members(Some(GzDecoder::new(Ahead { first: Vec::new(), source })))
    }
}

impl<R: BufRead> Read for Members<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while let Some(member) = &mut self.0 {
            let count = member.read(buffer)?;
            if count > 0 || buffer.is_empty() {
                return Ok(count);
            }
            if member.get_mut().looks_like(&GZIP)? {
                self.0 = self.0.take().map(|member| GzDecoder::new(member.into_inner()));
            } else {
                self.0 = None;
            }
        }
        Ok(0)
    }
}

/// A source with a few bytes read ahead.
struct Ahead<R> {
    first: Vec<u8>,
    source: R,
}

impl<R: BufRead> Ahead<R> {
    /// Returns true if these are the next bytes.
    fn looks_like(&mut self, wanted: &[u8]) -> io::Result<bool> {
        let missing = wanted.len().saturating_sub(self.first.len()) as u64;
        self.source.by_ref().take(missing).read_to_end(&mut self.first)?;
        Ok(self.first.starts_with(wanted))
    }
}

impl<R: BufRead> Read for Ahead<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut ready = self.fill_buf()?;
        let count = ready.read(buffer)?;
        self.consume(count);
        Ok(count)
    }
}

impl<R: BufRead> BufRead for Ahead<R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.first.is_empty() { self.source.fill_buf() } else { Ok(&self.first) }
    }

    fn consume(&mut self, count: usize) {
        let of_first = count.min(self.first.len());
        self.first.drain(..of_first);
        self.source.consume(count - of_first);
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn gzip(content: &[u8]) -> Vec<u8> {
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gzip.write_all(content).unwrap();
        gzip.finish().unwrap()
    }

    fn zstd(content: &[u8]) -> Vec<u8> {
        zstd::encode_all(content, 1).unwrap()
    }

    /// Reads a few bytes at a time, so results do not depend on buffer boundaries.
    struct Slow<'a>(&'a [u8]);

    impl Read for Slow<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let most = buffer.len().min(3);
            self.0.read(&mut buffer[..most])
        }
    }

    fn plain(bytes: &[u8]) -> io::Result<Vec<u8>> {
        let (mut fast, mut slow) = (Vec::new(), Vec::new());
        decompressed(bytes)?.read_to_end(&mut fast)?;
        decompressed(Slow(bytes))?.read_to_end(&mut slow)?;
        assert_eq!(fast, slow);
        Ok(fast)
    }

    #[test]
    fn compression_is_known_by_the_first_bytes() {
        let skipped = [&[0x53, 0x2a, 0x4d, 0x18, 1, 0, 0, 0, 9][..], &zstd(b"content")].concat();
        for bytes in [b"content".to_vec(), gzip(b"content"), zstd(b"content"), skipped] {
            assert_eq!(plain(&bytes).unwrap(), b"content");
        }
        for short in [&b""[..], b"\x1f", b"\x28\xb5\x2f"] {
            assert_eq!(plain(short).unwrap(), short);
        }
        assert_eq!(plain(&gzip(b"")).unwrap(), b"");
        assert_eq!(plain(&zstd(b"")).unwrap(), b"");
    }

    #[test]
    fn members_and_frames_follow_each_other() {
        let skipped = [0x5f, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 0x28, 0xb5, 0x2f];
        for bytes in [
            [gzip(b"one "), gzip(b""), gzip(b"two")].concat(),
            [zstd(b"one "), zstd(b""), zstd(b"two")].concat(),
            [&skipped, &zstd(b"one ")[..], &skipped, &skipped, &zstd(b"two"), &skipped].concat(),
        ] {
            assert_eq!(plain(&bytes).unwrap(), b"one two");
        }
    }

    #[test]
    fn what_follows_the_last_member_is_passed_over_as_by_gzip() {
        let zeros = vec![0; 70_000];
        for after in [&[0][..], &zeros, b"\x1f", b"garbage", b"\0\0\x1f\x8b", b"\x8b\x1f"] {
            assert_eq!(plain(&[&gzip(b"content"), after].concat()).unwrap(), b"content");
            assert_eq!(plain(&[&gzip(b"con"), &gzip(b"tent"), after].concat()).unwrap(), b"content");
        }
    }

    #[test]
    fn what_is_cut_or_broken_is_an_error() {
        let mut wrong_sum = gzip(b"content");
        *wrong_sum.last_mut().unwrap() ^= 1;
        let whole = gzip(b"content");
        for bytes in [
            &whole[..whole.len() - 1],
            &whole[..12],
            &whole[..2],
            &wrong_sum,
            &[&whole[..], b"\x1f\x8b"].concat(),
            &[&whole[..], b"\x1f\x8b\x08\x00broken member"].concat(),
            &zstd(b"content")[..8],
            &[&zstd(b"content")[..], b"garbage"].concat(),
        ] {
            assert!(plain(bytes).is_err(), "{}", bytes.escape_ascii());
        }
    }
}
