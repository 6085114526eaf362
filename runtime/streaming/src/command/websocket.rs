//! A command over WebSocket: a message's first byte is its channel. Only v5 lets a client end a channel.
//! `session.rs` has all code common to both transports.

use bytes::Bytes;
use futures::StreamExt;
use futures::stream::SplitStream;
use runtime_pieces::Piece;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::Message;

use super::session::{Outbound, Session, Stream, carry};
use crate::channel_message;
use crate::channels::{INPUT_PIECES, Input, PIECE_BYTES, Streams};
use crate::disconnect::{CLOSE_TIMEOUT, DisconnectWatch};
use crate::input_queue::InputQueue;
use crate::negotiate::Framing;
use crate::resize::{InvalidSize, Sizes};
use crate::spdy::writer::Closed;
use crate::websocket;

const STDIN: u8 = 0;
const STDOUT: u8 = 1;
const STDERR: u8 = 2;
const ERROR: u8 = 3;
const RESIZE: u8 = 4;
/// Channel of messages ending another channel.
const CLOSE: u8 = 255;

/// Serves the connection to its end, and the command to its own.
pub(crate) async fn serve<S>(io: S, framing: Framing, session: Session, disconnect: DisconnectWatch)
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let (socket, _place) = websocket::accept_channels(io).await;
    let (sink, stream) = socket.split();
    let (queue, writing) = websocket::start_writer(sink);
    let (input, received) = mpsc::channel(INPUT_PIECES);
    let out = WebSocketOut { queue, framing };
    // Clients take the first message as a sign of the ready session.
    let _ = out.put(first_writable(session.streams), Bytes::new()).await;
    let streams = session.streams;
    let carrying = carry(session, received, out, framing.json);
    let reading = read(stream, framing, streams, InputQueue { queue: input, disconnect });
    tokio::pin!(carrying, reading);
    tokio::select! {
        () = &mut carrying => {}
        () = &mut reading => {
            writing.abort();
            carrying.await;
            return;
        }
    }
    tokio::pin!(writing);
    // The writer ends with its close frame, and the client answers with its own.
    tokio::select! {
        _ = &mut writing => {}
        () = &mut reading => return,
    }
    let _ = tokio::time::timeout(CLOSE_TIMEOUT, reading).await;
}

fn first_writable(streams: Streams) -> u8 {
    match streams {
        Streams { stdout: true, .. } => STDOUT,
        Streams { stderr: true, .. } => STDERR,
        _ => ERROR,
    }
}

/// Takes input until the client closes the connection. A message that cannot be read is passed over, as by
/// containerd.
async fn read<S>(
    mut stream: SplitStream<WebSocketStream<S>>,
    framing: Framing,
    streams: Streams,
    input: InputQueue,
) where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut sizes = Sizes::default();
    while let Some(Ok(message)) = stream.next().await {
        let message = match message {
            Message::Binary(_) | Message::Text(_) => message.into_data(),
            Message::Close(_) => return,
            _ => continue,
        };
        let Some((channel, mut content)) = channel_message::decode(message, framing.base64) else { continue };
        let mut events = Vec::new();
        match channel {
            STDIN if streams.stdin => {
                let is_long = content.len() > PIECE_BYTES;
                while !content.is_empty() {
                    let piece = content.split_to(content.len().min(PIECE_BYTES));
                    // A piece outlives its session, and must not keep a long message.
                    let piece = if is_long { Bytes::copy_from_slice(&piece) } else { piece };
                    if !input.put(Input::Bytes(piece)).await {
                        return;
                    }
                }
            }
            RESIZE if streams.tty => match sizes.push(&content) {
                Ok(sizes) => events.extend(sizes.into_iter().map(Input::Resize)),
                Err(InvalidSize) => sizes = Sizes::default(),
            },
            CLOSE if framing.close && *content == [STDIN] => events.push(Input::End),
            _ => {}
        }
        for event in events {
            if !input.put(event).await {
                return;
            }
        }
    }
}

#[derive(Clone)]
struct WebSocketOut {
    queue: mpsc::Sender<Message>,
    framing: Framing,
}

impl WebSocketOut {
    async fn put(&self, channel: u8, bytes: Bytes) -> Result<(), Closed> {
        let message = channel_message::encode(channel, &bytes, self.framing.base64);
        self.queue.send(message).await.map_err(|_| Closed)
    }
}

impl Outbound for WebSocketOut {
    async fn send(&self, stream: Stream, piece: Piece, _: bool) -> Result<(), Closed> {
        let bytes = piece.into_bytes().map_err(|_| Closed)?;
        // The protocol has no message for a channel's end.
        if bytes.is_empty() {
            return Ok(());
        }
        let channel = match stream {
            Stream::Stdout => STDOUT,
            Stream::Stderr => STDERR,
            Stream::Error => ERROR,
        };
        self.put(channel, bytes).await
    }
}
