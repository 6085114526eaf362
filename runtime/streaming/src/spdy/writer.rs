//! Writes a connection: one task owns the socket, and all senders pass frames to it through a bounded queue.
//! So a peer that does not read blocks only its own senders.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::{Buf, Bytes, BytesMut};
use runtime_pieces::{Piece, Piped};
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::error::SpdyError;
use super::frame::{Frame, put_data_head};
use super::headers::Deflater;
use crate::splice::SpliceSender;

/// Most frames waiting for the socket. With this crate's longest frames they take half a megabyte in memory,
/// or one megabyte in pipes.
const QUEUE_FRAMES: usize = 4;
/// Short frames waiting together are written together, up to this many bytes.
const BATCH_BYTES: usize = 16 * 1024;

/// The connection is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Closed;

/// The sending side of the queue. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Writer {
    queue: mpsc::Sender<Queued>,
    deflater: Arc<Mutex<Deflater>>,
}

/// A frame waiting for the socket.
#[derive(Debug)]
enum Queued {
    Frame(Frame),
    /// A data frame of this stream, with its bytes in a pipe.
    Piped(u32, Piped),
}

/// The end of a batch of short frames.
enum Long {
    Nothing,
    Held(Bytes),
    Piped(Piped),
    /// The last frame was a GOAWAY. Nothing is written after it.
    End,
}

impl Writer {
    /// Returns a writer and its task. The task ends after a GOAWAY, when all writers are dropped, or when the
    /// socket fails. Data in pipes is spliced if `splice` is given, and read into memory otherwise.
    pub(crate) fn start<W>(io: W, splice: Option<SpliceSender>) -> Result<(Writer, JoinHandle<()>), SpdyError>
    where
        W: AsyncWrite + Send + Unpin + 'static,
    {
        let (queue, queued) = mpsc::channel(QUEUE_FRAMES);
        let deflater = Arc::new(Mutex::new(Deflater::new()?));
        // The reader of the socket sees its failure.
        let task = tokio::spawn(async move { drop(write(io, splice, queued).await) });
        Ok((Writer { queue, deflater }, task))
    }

    pub(crate) async fn send(&self, frame: Frame) -> Result<(), Closed> {
        self.queue.send(Queued::Frame(frame)).await.map_err(|_| Closed)
    }

    /// Accepts a stream. Only the reading task may do this, so that blocks leave in the order of their
    /// compression.
    pub(crate) async fn reply(&self, id: u32) -> Result<(), Closed> {
        let block = self.block(&[])?;
        self.send(Frame::SynReply { id, block }).await
    }

    /// Opens a stream. Only one task may do this, for the same reason.
    pub(crate) async fn open(&self, id: u32, headers: &[(&str, &str)]) -> Result<(), Closed> {
        let block = self.block(headers)?;
        self.send(Frame::SynStream { id, block }).await
    }

    pub(crate) async fn data(&self, id: u32, bytes: Bytes, fin: bool) -> Result<(), Closed> {
        self.send(Frame::Data { id, fin, bytes }).await
    }

    /// Sends a piece. The last piece of a stream is sent from memory, because a spliced frame cannot end a
    /// stream.
    pub(crate) async fn piece(&self, id: u32, piece: Piece, fin: bool) -> Result<(), Closed> {
        match piece {
            Piece::Piped(piped) if !fin => {
                self.queue.send(Queued::Piped(id, piped)).await.map_err(|_| Closed)
            }
            piece => self.data(id, piece.into_bytes().map_err(|_| Closed)?, fin).await,
        }
    }

    fn block(&self, headers: &[(&str, &str)]) -> Result<Vec<u8>, Closed> {
        let mut deflater = self.deflater.lock().unwrap_or_else(PoisonError::into_inner);
        deflater.write(headers).map_err(|_| Closed)
    }
}

async fn write<W: AsyncWrite + Unpin>(
    mut io: W,
    splice: Option<SpliceSender>,
    mut queue: mpsc::Receiver<Queued>,
) -> io::Result<()> {
    let mut batch = BytesMut::new();
    while let Some(queued) = queue.recv().await {
        let mut long = queued.put_short(&mut batch);
        while matches!(long, Long::Nothing) && batch.len() < BATCH_BYTES {
            let Ok(queued) = queue.try_recv() else { break };
            long = queued.put_short(&mut batch);
        }
        match (long, &splice) {
            (Long::Piped(piped), Some(splice)) => splice.send(&batch, piped).await?,
            (Long::Piped(piped), None) => {
                let bytes = Piece::Piped(piped).into_bytes()?;
                io.write_all_buf(&mut (&batch[..]).chain(bytes)).await?;
            }
            (Long::Held(bytes), _) => io.write_all_buf(&mut (&batch[..]).chain(bytes)).await?,
            (Long::Nothing, _) => io.write_all(&batch).await?,
            (Long::End, _) => {
                io.write_all(&batch).await?;
                // The peer closes first, so that it loses nothing.
                return io.flush().await;
            }
        }
        io.flush().await?;
        batch.clear();
    }
    io.shutdown().await
}

impl Queued {
    /// Appends the frame. Long data is returned instead, to be written behind the batch without a copy.
    fn put_short(self, into: &mut BytesMut) -> Long {
        match self {
            Queued::Piped(id, piped) => {
                put_data_head(into, id, false, piped.len());
                Long::Piped(piped)
            }
            Queued::Frame(frame @ Frame::GoAway { .. }) => {
                frame.put(into);
                Long::End
            }
            Queued::Frame(frame) => match frame.put_before_data(into) {
                nothing if nothing.is_empty() => Long::Nothing,
                bytes => Long::Held(bytes),
            },
        }
    }
}
