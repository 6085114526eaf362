//! The WebSocket transport: the longest messages accepted, and a byte stream in binary messages.
//! `command/websocket.rs` and `port_channels.rs` carry channels in messages.

use bytes::Bytes;
use futures::stream::SplitSink;
use futures::{SinkExt, StreamExt};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream};
use tokio::sync::{Semaphore, SemaphorePermit, mpsc};
use tokio::task::JoinHandle;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Message, Role, WebSocketConfig};

use crate::disconnect::BROKEN_CLOSE_TIMEOUT;

/// Longest message of a client with channels, in bytes. Some clients send all that their caller writes in one
/// message. containerd accepts as much. A longer length is refused before memory is reserved for the message.
const CHANNELS_MESSAGE_BYTES_MAX: usize = 32 * 1024 * 1024;
/// Sessions at once whose messages may be that long. This bounds the memory of all of them.
const LONG_SESSIONS_MAX: usize = 32;
/// Longest message of a client with channels beside so many others, in bytes.
const SHORT_MESSAGE_BYTES_MAX: usize = 1024 * 1024;
/// Longest message of a byte stream, in bytes. Clients send 32 KiB at a time.
const STREAM_MESSAGE_BYTES_MAX: usize = 1024 * 1024;

/// Bytes on their way between a byte stream's two ends, each way.
const STREAM_BYTES: usize = 64 * 1024;
/// Longest message sent, in bytes.
const CHUNK_BYTES: usize = 16 * 1024;

static LONG_SESSIONS: Semaphore = Semaphore::const_new(LONG_SESSIONS_MAX);

/// A session's place among those with long messages, if it has one. Kept as long as the session.
#[derive(Debug)]
pub(crate) struct Place(Option<SemaphorePermit<'static>>);

impl Place {
    fn take() -> Place {
        Place(LONG_SESSIONS.try_acquire().ok())
    }

    fn message_bytes_max(&self) -> usize {
        if self.0.is_some() { CHANNELS_MESSAGE_BYTES_MAX } else { SHORT_MESSAGE_BYTES_MAX }
    }
}

/// Returns the server's side of a WebSocket with channels, after the handshake.
pub(crate) async fn accept_channels<S>(io: S) -> (WebSocketStream<S>, Place)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let place = Place::take();
    (accept(io, place.message_bytes_max()).await, place)
}

/// Returns the server's side of a WebSocket after the handshake. No message may be longer than
/// `message_bytes_max`.
async fn accept<S>(io: S, message_bytes_max: usize) -> WebSocketStream<S>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let config = WebSocketConfig::default()
        .max_message_size(Some(message_bytes_max))
        .max_frame_size(Some(message_bytes_max));
    WebSocketStream::from_raw_socket(io, Role::Server, Some(config)).await
}

/// Most messages waiting for the socket. At full length they take half a megabyte.
const QUEUE_MESSAGES: usize = 8;

/// Returns a queue of messages and its task. The task ends with a close frame once all senders are dropped,
/// or when the socket fails.
pub(crate) fn start_writer<S>(
    mut sink: SplitSink<WebSocketStream<S>, Message>,
) -> (mpsc::Sender<Message>, JoinHandle<()>)
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let (queue, mut messages) = mpsc::channel(QUEUE_MESSAGES);
    let writing = tokio::spawn(async move {
        while let Some(message) = messages.recv().await {
            if sink.send(message).await.is_err() {
                return;
            }
        }
        let frame = CloseFrame { code: CloseCode::Normal, reason: "".into() };
        // A client that is gone needs no close frame.
        let _ = sink.send(Message::Close(Some(frame))).await;
    });
    (queue, writing)
}

/// Returns a WebSocket's binary messages as a byte stream. The end of either ends the other.
pub(crate) async fn byte_stream<S>(io: S) -> DuplexStream
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let (mut sink, mut stream) = accept(io, STREAM_MESSAGE_BYTES_MAX).await.split();
    let (near, far) = tokio::io::duplex(STREAM_BYTES);
    let (mut read, mut write) = tokio::io::split(near);
    let inward = async move {
        while let Some(Ok(message)) = stream.next().await {
            match message {
                Message::Binary(bytes) if write.write_all(&bytes).await.is_ok() => {}
                Message::Ping(_) | Message::Pong(_) => {}
                _ => break,
            }
        }
        let _ = write.shutdown().await;
    };
    let outward = async move {
        let mut chunk = vec![0; CHUNK_BYTES];
        while let Ok(count @ 1..) = read.read(&mut chunk).await {
            if sink.send(Message::Binary(Bytes::copy_from_slice(&chunk[..count]))).await.is_err() {
                return;
            }
        }
        let _ = sink.close().await;
    };
    tokio::spawn(async move {
        tokio::pin!(inward, outward);
        tokio::select! {
            // The far end sees the end of the stream, and closes in turn.
            () = &mut inward => outward.await,
            () = &mut outward => drop(tokio::time::timeout(BROKEN_CLOSE_TIMEOUT, inward).await),
        }
    });
    far
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_so_many_sessions_have_long_messages_at_once() {
        // Other tests of this process have places, too.
        let places: Vec<Place> = (0..LONG_SESSIONS_MAX).map(|_| Place::take()).collect();
        let one_more = Place::take();
        assert_eq!(one_more.message_bytes_max(), SHORT_MESSAGE_BYTES_MAX);
        drop(places);
        assert!((0..LONG_SESSIONS_MAX).any(|_| Place::take().message_bytes_max() > SHORT_MESSAGE_BYTES_MAX));
    }
}
