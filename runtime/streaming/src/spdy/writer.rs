//! Writes a connection: one task owns the socket, and everyone sends it frames through a bounded queue. A
//! peer that does not read so holds those who have something to say to it, and nobody else.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::SpdyError;
use super::frame::Frame;
use super::headers::Deflater;

/// Frames that wait for the socket: with the longest that we make, half a megabyte.
const QUEUE_FRAMES: usize = 4;
/// Short frames that wait together are written together, up to this many bytes.
const BATCH_BYTES: usize = 16 * 1024;

/// The connection is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Closed;

/// Where frames go. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Writer {
    queue: mpsc::Sender<Frame>,
    deflater: Arc<Mutex<Deflater>>,
}

impl Writer {
    /// A writer, and the task that ends after a GOAWAY, when all writers are dropped, or when the socket fails.
    pub(crate) fn start<W>(mut io: W) -> Result<(Writer, JoinHandle<()>), SpdyError>
    where
        W: AsyncWrite + Send + Unpin + 'static,
    {
        let (queue, mut frames) = mpsc::channel::<Frame>(QUEUE_FRAMES);
        let deflater = Arc::new(Mutex::new(Deflater::new()?));
        let task = tokio::spawn(async move {
            let mut batch = BytesMut::new();
            let mut last = false;
            while !last && let Some(frame) = frames.recv().await {
                let mut data = frame.put_before_data(&mut batch);
                last = is_last(&frame);
                while !last && data.is_empty() && batch.len() < BATCH_BYTES {
                    let Ok(frame) = frames.try_recv() else { break };
                    data = frame.put_before_data(&mut batch);
                    last = is_last(&frame);
                }
                let written = io.write_all_buf(&mut (&batch[..]).chain(data)).await;
                if written.is_err() || io.flush().await.is_err() {
                    return;
                }
                batch.clear();
            }
            // After a GOAWAY it is the peer that hangs up first, so that it loses nothing. A peer that is
            // gone needs no goodbye.
            if !last {
                let _ = io.shutdown().await;
            }
        });
        Ok((Writer { queue, deflater }, task))
    }

    pub(crate) async fn send(&self, frame: Frame) -> Result<(), Closed> {
        self.queue.send(frame).await.map_err(|_| Closed)
    }

    /// Accepts a stream. Only the reading task does this, so blocks leave in the order they were made in.
    pub(crate) async fn reply(&self, id: u32) -> Result<(), Closed> {
        let block = self.block(&[])?;
        self.send(Frame::SynReply { id, block }).await
    }

    /// Opens a stream. Only one task may do this.
    pub(crate) async fn open(&self, id: u32, headers: &[(&str, &str)]) -> Result<(), Closed> {
        let block = self.block(headers)?;
        self.send(Frame::SynStream { id, block }).await
    }

    pub(crate) async fn data(&self, id: u32, bytes: Bytes, fin: bool) -> Result<(), Closed> {
        self.send(Frame::Data { id, fin, bytes }).await
    }

    fn block(&self, headers: &[(&str, &str)]) -> Result<Vec<u8>, Closed> {
        let mut deflater = self.deflater.lock().unwrap_or_else(PoisonError::into_inner);
        deflater.write(headers).map_err(|_| Closed)
    }
}

fn is_last(frame: &Frame) -> bool {
    matches!(frame, Frame::GoAway { .. })
}
