//! Reads a connection and returns events. A control frame is held whole, within a bound. Data passes in
//! chunks, regardless of its frame's length. The reader never answers: its caller does, by the writer.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt};

use super::error::SpdyError;
use super::frame::{Control, HEADER_BYTES, Head};
use super::headers::{Headers, Inflater};
use crate::channels::PIECE_BYTES;

/// Bytes read at once, at least: enough for short frames. After a read has filled its buffer, the next one
/// gets [`PIECE_BYTES`].
const AHEAD_BYTES: usize = 8 * 1024;

/// An action of the peer.
#[derive(Debug, PartialEq, Eq)]
pub enum Event {
    /// A stream was opened; with `fin`, its data has ended already.
    Opened {
        /// The stream's number.
        id: u32,
        /// The stream's headers, with its purpose.
        headers: Headers,
        /// No data will follow.
        fin: bool,
    },
    /// The peer accepted a stream opened by this side.
    Replied(u32),
    /// Data of a stream.
    Data {
        /// The stream's number.
        id: u32,
        /// The data. It may be empty.
        bytes: Bytes,
        /// No data will follow.
        fin: bool,
    },
    /// A stream was reset.
    Reset {
        /// The stream's number.
        id: u32,
    },
    /// A ping, to be answered with the same number.
    Ping(u32),
}

/// The reading side of a connection.
#[derive(Debug)]
pub(crate) struct Reader<R> {
    io: R,
    /// Bytes read, but not yet parsed.
    ahead: BytesMut,
    /// Bytes to reserve for the next read.
    room: usize,
    inflater: Inflater,
    /// The highest stream number so far. Numbers only grow.
    last: u32,
    /// The data frame being read: its stream, whether the stream ends with it, and the number of bytes left.
    data: Option<(u32, bool, usize)>,
}

impl<R: AsyncRead + Unpin> Reader<R> {
    pub(crate) fn new(io: R) -> Reader<R> {
        Reader {
            io,
            ahead: BytesMut::new(),
            room: AHEAD_BYTES,
            inflater: Inflater::new(),
            last: 0,
            data: None,
        }
    }

    /// Returns the peer's next action, or `None` if the peer has closed between two frames. Not cancel-safe.
    pub(crate) async fn next(&mut self) -> Result<Option<Event>, SpdyError> {
        loop {
            if let Some(data) = self.data.take() {
                return self.chunk(data).await.map(Some);
            }
            let Some(head) = self.head().await? else { return Ok(None) };
            match head {
                Head::Data { id, fin, length: 0 } => {
                    return Ok(Some(Event::Data { id, bytes: Bytes::new(), fin }));
                }
                Head::Data { id, fin, length } => self.data = Some((id, fin, length)),
                Head::Control { kind, fin, length } => {
                    self.have(length).await?;
                    let body = self.ahead.split_to(length).freeze();
                    if let Some(event) = self.control(Control::parse(kind, body)?, fin)? {
                        return Ok(Some(event));
                    }
                }
            }
        }
    }

    async fn head(&mut self) -> Result<Option<Head>, SpdyError> {
        if self.ahead.is_empty() && self.read().await? == 0 {
            return Ok(None);
        }
        self.have(HEADER_BYTES).await?;
        let mut head = [0; HEADER_BYTES];
        self.ahead.copy_to_slice(&mut head);
        Head::parse(head).map(Some)
    }

    async fn chunk(&mut self, (id, fin, length): (u32, bool, usize)) -> Result<Event, SpdyError> {
        self.have(1).await?;
        let bytes = self.ahead.split_to(self.ahead.len().min(length).min(PIECE_BYTES)).freeze();
        let left = length - bytes.len();
        if left > 0 {
            self.data = Some((id, fin, left));
        }
        Ok(Event::Data { id, bytes, fin: fin && left == 0 })
    }

    /// Reads until at least this many bytes are there.
    async fn have(&mut self, count: usize) -> Result<(), SpdyError> {
        while self.ahead.len() < count {
            if self.read().await? == 0 {
                return Err(std::io::Error::from(std::io::ErrorKind::UnexpectedEof).into());
            }
        }
        Ok(())
    }

    async fn read(&mut self) -> Result<usize, SpdyError> {
        if self.ahead.is_empty() {
            // Reusing the last buffer would keep all of it in memory while others hold parts of it.
            self.ahead = BytesMut::with_capacity(self.room);
        }
        self.ahead.reserve(self.room);
        let count = self.io.read_buf(&mut (&mut self.ahead).limit(self.room)).await?;
        self.room = match count {
            full if full == self.room => PIECE_BYTES,
            little if little <= AHEAD_BYTES => AHEAD_BYTES,
            _ => self.room,
        };
        Ok(count)
    }

    fn control(&mut self, control: Control, fin: bool) -> Result<Option<Event>, SpdyError> {
        Ok(Some(match control {
            Control::SynStream { id, block } => {
                if id.is_multiple_of(2) || id <= self.last {
                    return Err(SpdyError::StreamNumber(id));
                }
                self.last = id;
                Event::Opened { id, headers: self.inflater.read(&block)?, fin }
            }
            // The block is decompressed only for the shared context. Some servers send an empty block.
            Control::SynReply { id, block } => {
                if !block.is_empty() {
                    self.inflater.read(&block)?;
                }
                Event::Replied(id)
            }
            Control::Reset { id, .. } => Event::Reset { id },
            Control::Ping(number) => Event::Ping(number),
            // The peer opens no more streams. Open ones continue.
            Control::GoAway | Control::Other => return Ok(None),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::super::frame::Frame;
    use super::super::headers::Deflater;
    use super::*;

    fn bytes(frames: &[Frame]) -> BytesMut {
        let mut bytes = BytesMut::new();
        frames.iter().for_each(|frame| frame.put(&mut bytes));
        bytes
    }

    fn open(id: u32) -> Frame {
        Frame::SynStream { id, block: Deflater::new().unwrap().write(&[("streamtype", "data")]).unwrap() }
    }

    #[tokio::test]
    async fn long_data_comes_in_chunks_and_ends_once() {
        let sent: Vec<u8> = (0..200_000u32).map(|number| number as u8).collect();
        let wire = bytes(&[Frame::Data { id: 1, fin: true, bytes: sent.clone().into() }]);
        let mut reader = Reader::new(&wire[..]);
        let (mut got, mut fins) = (Vec::new(), 0);
        while let Some(Event::Data { id: 1, bytes, fin }) = reader.next().await.unwrap() {
            assert!(bytes.len() <= PIECE_BYTES);
            got.extend_from_slice(&bytes);
            fins += u32::from(fin);
        }
        assert_eq!((got, fins), (sent, 1));
    }

    #[tokio::test]
    async fn a_connection_that_ends_within_a_frame_is_an_error() {
        let wire = bytes(&[open(1), Frame::Data { id: 1, fin: false, bytes: "hello".into() }]);
        for length in 1..wire.len() {
            let mut reader = Reader::new(&wire[..length]);
            let end = loop {
                match reader.next().await {
                    Ok(Some(_)) => {}
                    end => break end,
                }
            };
            // Only an end between the two frames is in order.
            let between = length == bytes(&[open(1)]).len();
            assert_eq!(end.is_ok(), between, "{length} bytes");
        }
    }

    #[tokio::test]
    async fn a_stream_number_that_is_even_or_used_ends_the_connection() {
        for frames in [vec![open(2)], vec![open(1), open(1)], vec![open(3), open(1)]] {
            let wire = bytes(&frames);
            let mut reader = Reader::new(&wire[..]);
            let mut last = reader.next().await;
            while let Ok(Some(_)) = last {
                last = reader.next().await;
            }
            assert!(matches!(last, Err(SpdyError::StreamNumber(_))), "{frames:?}");
        }
    }
}
