//! Puts file contents into blobs. Owns their alignment; never knows names.

use std::io::{self, Read, Write};

use serde::{Deserialize, Serialize};

use crate::format::BLOCK_SIZE;

/// The place of a regular file's content in its layer's blob.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Extent {
    /// Byte offset in the blob, a multiple of 4 KiB.
    pub offset: u64,
    /// Bytes of content.
    pub length: u64,
}

/// Appends file contents to one blob, each at a multiple of 4 KiB for direct mapping by the guest (DAX).
#[derive(Debug)]
pub struct DataWriter<W> {
    out: W,
    position: u64,
}

impl<W: Write> DataWriter<W> {
    /// Creates a writer at the start of the empty output `out`.
    pub fn new(out: W) -> Self {
        DataWriter { out, position: 0 }
    }

    /// Copies all of `content`, then pads to the block. Empty content takes no block.
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
        Ok(Extent { offset, length })
    }

    /// Flushes. Returns the output and its length in bytes, a multiple of 4 KiB.
    ///
    /// # Errors
    /// A failure of the output.
    pub fn finish(mut self) -> io::Result<(W, u64)> {
        self.out.flush()?;
        Ok((self.out, self.position))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contents_start_at_block_boundaries_and_empty_ones_take_none() {
        let mut writer = DataWriter::new(Vec::new());
        let first = writer.append(&mut &b"hello"[..]).unwrap();
        let empty = writer.append(&mut &b""[..]).unwrap();
        let second = writer.append(&mut &vec![9u8; 4096][..]).unwrap();
        assert_eq!(first, Extent { offset: 0, length: 5 });
        assert_eq!(empty, Extent { offset: 4096, length: 0 });
        assert_eq!(second, Extent { offset: 4096, length: 4096 });
        let (bytes, length) = writer.finish().unwrap();
        assert_eq!((bytes.len(), length), (8192, 8192));
        assert_eq!(&bytes[..6], b"hello\0");
    }
}
