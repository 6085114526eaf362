//! Reads a connection frame by frame. A control frame is held whole, which is bounded; data passes in
//! chunks, however long its frame.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt};

use super::error::SpdyError;
use super::frame::{Control, HEADER_BYTES, Head};
use super::headers::{Headers, Inflater};
use crate::channels::PIECE_BYTES;

/// Read at once, in bytes, at least: what short frames come in. After a read that filled it there is more room for the next, up
/// to [`PIECE_BYTES`].
const AHEAD_BYTES: usize = 8 * 1024;

/// What a peer did.
#[derive(Debug, PartialEq, Eq)]
pub enum Event {
    /// A stream was opened; with `fin`, its data has ended already.
    Opened {
        /// The stream's number.
        id: u32,
        /// What it is for.
        headers: Headers,
        /// No data will follow.
        fin: bool,
    },
    /// A stream of ours was accepted.
    Replied(u32),
    /// Data of a stream.
    Data {
        /// The stream's number.
        id: u32,
        /// May be empty.
        bytes: Bytes,
        /// The stream's last.
        fin: bool,
    },
    /// A stream was broken off.
    Reset {
        /// The stream's number.
        id: u32,
    },
    /// Wants the same number back.
    Ping(u32),
}

/// One direction of a connection.
#[derive(Debug)]
pub(crate) struct Reader<R> {
    io: R,
    /// Read and not taken.
    ahead: BytesMut,
    /// For the next read.
    room: usize,
    inflater: Inflater,
    /// Highest stream number seen: numbers only grow.
    last: u32,
    /// The data frame that is being read: its stream, whether it is the last, and what is left of it.
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

    /// The next thing that the peer did; `None` when it has closed between two frames. Not cancel-safe.
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

    /// Reads until this many bytes are there.
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
            // What is left of the last read's room may be a corner of much that others hold.
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
            // Read for the context, which every block goes through. Some servers send an empty block.
            Control::SynReply { id, block } => {
                if !block.is_empty() {
                    self.inflater.read(&block)?;
                }
                Event::Replied(id)
            }
            Control::Reset { id, .. } => Event::Reset { id },
            Control::Ping(number) => Event::Ping(number),
            // The peer opens no more streams; those that are open go on.
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
            // Only between the two frames is an end an end.
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
