//! Port-forward over WebSocket channels, for clients without SPDY. The ports come with the session, and each
//! has one connection: channel 2i has the bytes of the port number i, and channel 2i + 1 its error. Each
//! channel begins with the port, as two bytes in little-endian order. A channel has no end of its own, so the
//! session ends with its last connection.

use std::sync::Arc;

use bytes::Bytes;
use futures::StreamExt;
use futures::stream::SplitStream;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, DuplexStream, WriteHalf};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::Message;

use crate::channel_message;
use crate::channels::{FORWARD_PORTS_MAX, Forward};
use crate::disconnect::{CLOSE_TIMEOUT, DisconnectWatch};
use crate::forward::{CONNECTION_BYTES, carry};
use crate::spdy::writer::Closed;
use crate::status;
use crate::websocket;

/// Serves the client until all its connections have ended, or until it closes.
pub(crate) async fn serve<S>(io: S, base64: bool, forward: Arc<dyn Forward>, disconnect: DisconnectWatch)
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let (socket, _place) = websocket::accept_channels(io).await;
    let (sink, stream) = socket.split();
    let (queue, mut writing) = websocket::start_writer(sink);
    let (mut inputs, mut connections) = (Vec::new(), JoinSet::new());
    for (port, data) in forward.ports().iter().take(FORWARD_PORTS_MAX).zip((0..).step_by(2)) {
        let (near, far) = tokio::io::duplex(CONNECTION_BYTES);
        let (from_pod, to_pod) = tokio::io::split(near);
        let (out, forward, port) = (Out { queue: queue.clone(), base64 }, Arc::clone(&forward), *port);
        connections.spawn(async move {
            out.put(data, &port.to_le_bytes()).await?;
            out.put(data + 1, &port.to_le_bytes()).await?;
            let send = |bytes: Bytes, _| out.bytes(data, bytes);
            match carry(&*forward, port, from_pod, far, send).await? {
                Ok(()) => Ok(()),
                Err(text) => out.put(data + 1, status::of_forward(port, &text).as_bytes()).await,
            }
        });
        inputs.push(to_pod);
    }
    drop(queue);
    let ended = async { while connections.join_next().await.is_some() {} };
    let reading = read(stream, base64, inputs);
    tokio::pin!(reading);
    tokio::select! {
        () = ended => {}
        () = &mut reading => return writing.abort(),
        // While a pod takes nothing, nothing more is read, so a read cannot show that the client has gone.
        () = disconnect.wait() => return writing.abort(),
    }
    // The writer ends with its close frame, and the client answers with its own.
    tokio::select! {
        _ = &mut writing => {}
        () = &mut reading => return writing.abort(),
        () = disconnect.wait() => return writing.abort(),
    }
    let _ = tokio::time::timeout(CLOSE_TIMEOUT, reading).await;
}

/// Takes bytes until the client closes the connection. Messages of other channels are passed over, and bytes
/// for ended connections are dropped. If a pod does not take its bytes, its client's other connections wait,
/// too.
async fn read<S>(
    mut stream: SplitStream<WebSocketStream<S>>,
    base64: bool,
    mut inputs: Vec<WriteHalf<DuplexStream>>,
) where
    S: AsyncRead + AsyncWrite + Unpin,
{
    while let Some(Ok(message)) = stream.next().await {
        let message = match message {
            Message::Binary(_) | Message::Text(_) => message.into_data(),
            Message::Close(_) => return,
            _ => continue,
        };
        let Some((channel, content)) = channel_message::decode(message, base64) else { continue };
        let input = inputs.get_mut(usize::from(channel / 2)).filter(|_| channel.is_multiple_of(2));
        if let Some(to_pod) = input {
            let _ = to_pod.write_all(&content).await;
        }
    }
}

struct Out {
    queue: mpsc::Sender<Message>,
    base64: bool,
}

impl Out {
    async fn bytes(&self, channel: u8, bytes: Bytes) -> Result<(), Closed> {
        // A channel's end has no message.
        if bytes.is_empty() { Ok(()) } else { self.put(channel, &bytes).await }
    }

    async fn put(&self, channel: u8, content: &[u8]) -> Result<(), Closed> {
        let message = channel_message::encode(channel, content, self.base64);
        self.queue.send(message).await.map_err(|_| Closed)
    }
}
