//! A command over WebSocket: a message's first byte is its channel. Only v5 lets a client end a channel.
//! `session.rs` has all code common to both transports.

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use futures::stream::SplitStream;
use futures::{SinkExt, StreamExt};
use runtime_pieces::Piece;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Message};

use super::session::{Outbound, Session, Stream, carry};
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

/// Most messages waiting for the socket. At full length they take half a megabyte.
const QUEUE_MESSAGES: usize = 8;

/// Serves the connection to its end, and the command to its own.
pub(crate) async fn serve<S>(io: S, framing: Framing, session: Session, disconnect: DisconnectWatch)
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let (mut sink, stream) = websocket::accept(io, websocket::COMMAND_MESSAGE_BYTES_MAX).await.split();
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
        let Some((channel, mut content)) = decode(message, framing) else { continue };
        let mut events = Vec::new();
        match channel {
            STDIN if streams.stdin => {
                while !content.is_empty() {
                    let piece = content.split_to(content.len().min(PIECE_BYTES));
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

/// Splits a message into channel and content. `None` if it has neither.
pub(crate) fn decode(mut message: Bytes, framing: Framing) -> Option<(u8, Bytes)> {
    let channel = *message.first()?;
    let content = message.split_off(1);
    if framing.base64 {
        let digit = channel.checked_sub(b'0').filter(|digit| *digit <= 9)?;
        return Some((digit, BASE64.decode(content).ok()?.into()));
    }
    Some((channel, content))
}

#[derive(Clone)]
struct WebSocketOut {
    queue: mpsc::Sender<Message>,
    framing: Framing,
}

impl WebSocketOut {
    async fn put(&self, channel: u8, bytes: Bytes) -> Result<(), Closed> {
        let message = if self.framing.base64 {
            let mut text = String::from(char::from(b'0' + channel));
            BASE64.encode_string(&bytes, &mut text);
            Message::text(text)
        } else {
            let mut framed = Vec::with_capacity(1 + bytes.len());
            framed.push(channel);
            framed.extend_from_slice(&bytes);
            Message::binary(framed)
        };
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

#[cfg(test)]
mod tests {
    use super::*;

    const BARE: Framing = Framing { json: true, base64: false, close: true };
    const DIGITS: Framing = Framing { json: true, base64: true, close: false };

    #[test]
    fn a_message_is_a_channel_and_its_content() {
        let decode = |message: &'static [u8], framing| decode(Bytes::from_static(message), framing);
        assert_eq!(decode(b"\x04{}", BARE), Some((RESIZE, "{}".into())));
        assert_eq!(decode(b"0aGk=", DIGITS), Some((STDIN, "hi".into())));
        assert_eq!(decode(b"", BARE), None);
        assert_eq!(decode(b"0!!", DIGITS), None);
        assert_eq!(decode(b"xaGk=", DIGITS), None);
    }
}
