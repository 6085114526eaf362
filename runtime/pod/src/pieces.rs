//! A command's output, piece by piece as it comes.

use std::fmt::{self, Debug, Formatter};
use std::io;

use bytes::{Bytes, BytesMut};
use tokio::io::AsyncReadExt;

use crate::outside::CommandOutput;

/// Bytes read at a time. A prompt needs little room; what fills it is given more, up to two of the longest packets that
/// a guest sends.
const PIECE_BYTES_MIN: usize = 4 << 10;
const PIECE_BYTES_MAX: usize = 128 << 10;

/// See the module.
pub(crate) struct Pieces {
    output: CommandOutput,
    /// For the next read.
    room: usize,
}

impl Pieces {
    pub(crate) fn of(output: CommandOutput) -> Pieces {
        Pieces { output, room: PIECE_BYTES_MIN }
    }

    /// The next bytes, 128 KiB at most; `None` at the end.
    pub(crate) async fn next(&mut self) -> io::Result<Option<Bytes>> {
        let mut piece = BytesMut::with_capacity(self.room);
        let count = self.output.read_buf(&mut piece).await?;
        self.room = match count {
            full if full >= self.room => PIECE_BYTES_MAX,
            little if little <= PIECE_BYTES_MIN => PIECE_BYTES_MIN,
            _ => self.room,
        };
        Ok((count > 0).then(|| piece.freeze()))
    }
}

impl Debug for Pieces {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pieces").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn pieces_are_as_long_as_what_comes_lets_them_be() {
        let mut pieces = Pieces::of(Box::new(std::io::Cursor::new(vec![b'x'; 200_000])));
        let mut lengths = Vec::new();
        while let Some(piece) = pieces.next().await.unwrap() {
            lengths.push(piece.len());
        }
        let rest = 200_000 - PIECE_BYTES_MIN - PIECE_BYTES_MAX;
        assert_eq!(lengths, [PIECE_BYTES_MIN, PIECE_BYTES_MAX, rest]);
    }
}
