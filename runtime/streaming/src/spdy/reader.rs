//! Reads a connection frame by frame. A control frame is held whole, which is bounded; data passes in
//! chunks, however long its frame.

use bytes::{BufMut, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, BufReader};

use super::SpdyError;
use super::frame::{Control, HEADER_BYTES, Head};
use super::headers::{Headers, Inflater};
use crate::channels::PIECE_BYTES;

/// Read ahead, in bytes: what short frames come in. Long data passes it by.
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
    io: BufReader<R>,
    inflater: Inflater,
    /// Highest stream number seen: numbers only grow.
    last: u32,
    /// The data frame that is being read: its stream, whether it is the last, and what is left of it.
    data: Option<(u32, bool, usize)>,
}

impl<R: AsyncRead + Unpin> Reader<R> {
    pub(crate) fn new(io: R) -> Reader<R> {
        Reader {
            io: BufReader::with_capacity(AHEAD_BYTES, io),
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
                    let mut body = BytesMut::zeroed(length);
                    self.io.read_exact(&mut body).await?;
                    if let Some(event) = self.control(Control::parse(kind, body.freeze())?, fin)? {
                        return Ok(Some(event));
                    }
                }
            }
        }
    }

    async fn head(&mut self) -> Result<Option<Head>, SpdyError> {
        let mut head = [0; HEADER_BYTES];
        if self.io.read(&mut head[..1]).await? == 0 {
            return Ok(None);
        }
        self.io.read_exact(&mut head[1..]).await?;
        Head::parse(head).map(Some)
    }

    async fn chunk(&mut self, (id, fin, length): (u32, bool, usize)) -> Result<Event, SpdyError> {
        let wanted = length.min(PIECE_BYTES);
        let mut bytes = BytesMut::with_capacity(wanted);
        let count = self.io.read_buf(&mut (&mut bytes).limit(wanted)).await?;
        if count == 0 {
            return Err(std::io::Error::from(std::io::ErrorKind::UnexpectedEof).into());
        }
        let left = length - count;
        if left > 0 {
            self.data = Some((id, fin, left));
        }
        Ok(Event::Data { id, bytes: bytes.freeze(), fin: fin && left == 0 })
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
