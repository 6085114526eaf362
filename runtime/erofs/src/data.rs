//! Puts file contents into blobs. Owns their alignment; never knows names.

use std::io::{self, Read, Write};

use crate::format::BLOCK_SIZE;

/// Where a regular file's content lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// Number of the blob; the caller numbers them.
    pub blob: u32,
    /// Byte offset in the blob, a multiple of 4 KiB.
    pub offset: u64,
    /// Bytes of content.
    pub length: u64,
}

/// Blobs that [`crate::write_image`] reads from.
pub trait BlobSource {
    /// Fills `buffer` with the bytes at `offset` of blob `blob`, or fails: never fewer.
    fn read_at(&mut self, blob: u32, offset: u64, buffer: &mut [u8]) -> io::Result<()>;
}

/// Appends file contents to one blob, each at a multiple of 4 KiB, so that the guest can map them directly (DAX).
#[derive(Debug)]
pub struct DataWriter<W> {
    out: W,
    blob: u32,
    position: u64,
}

impl<W: Write> DataWriter<W> {
    /// A writer at the start of the empty output `out`, which will be blob number `blob`.
    pub fn new(out: W, blob: u32) -> Self {
        DataWriter { out, blob, position: 0 }
    }

    /// Copies all of `content`, then pads to the block. An empty content takes no block.
    ///
    /// # Errors
    /// A failure of `content` or of the output.
    pub fn append(&mut self, content: &mut impl Read) -> io::Result<Extent> {
        let offset = self.position;
        let length = io::copy(content, &mut self.out)?;
        let end = offset + length;
        let padded = end.next_multiple_of(u64::from(BLOCK_SIZE));
        io::copy(&mut io::repeat(0).take(padded - end), &mut self.out)?;
        self.position = padded;
        Ok(Extent { blob: self.blob, offset, length })
    }

    /// Flushes and gives the output back.
    ///
    /// # Errors
    /// A failure of the output.
    pub fn finish(mut self) -> io::Result<W> {
        self.out.flush()?;
        Ok(self.out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contents_start_at_block_boundaries_and_empty_ones_take_none() {
        let mut writer = DataWriter::new(Vec::new(), 3);
        let first = writer.append(&mut &b"hello"[..]).unwrap();
        let empty = writer.append(&mut &b""[..]).unwrap();
        let second = writer.append(&mut &vec![9u8; 4096][..]).unwrap();
        assert_eq!(first, Extent { blob: 3, offset: 0, length: 5 });
        assert_eq!(empty, Extent { blob: 3, offset: 4096, length: 0 });
        assert_eq!(second, Extent { blob: 3, offset: 4096, length: 4096 });
        let bytes = writer.finish().unwrap();
        assert_eq!(bytes.len(), 8192);
        assert_eq!(&bytes[..6], b"hello\0");
    }
}
