//! Two connections over one stream: frames in, frames out. The form of a frame is in `proto/nri`.
//!
//! ```text
//!   ttrpc client ─► pipe ─► messages ─┐                 ┌─► pipe ─► ttrpc client
//!                                     ├─► stream ─► ... ┤
//!   ttrpc server ─► pipe ─► messages ─┘                 └─► pipe ─► ttrpc server
//! ```
//!
//! The other side may be hostile. A frame's length is bounded, and its bytes go to their pipe without being
//! gathered. A pipe without a reader blocks the stream. Nothing here knows the messages' meaning.

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream};
use tokio::net::UnixStream;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use proto_nri::{MESSAGE_BYTES_MAX, MESSAGE_HEADER_BYTES, PLUGIN_CONNECTION, RUNTIME_CONNECTION};

/// Bytes of a frame's header.
const HEADER_BYTES: usize = 8;

/// Most bytes of a frame: a whole ttrpc message with its header. The public library sends no more either.
const FRAME_BYTES_MAX: usize = MESSAGE_HEADER_BYTES + MESSAGE_BYTES_MAX;

/// Bytes of a message's first frame. The public library reads the beginning of a message through a buffer of
/// this size, and the rest as one frame. A frame larger than its read buffer breaks its connection, and so do
/// too many small ones.
const FIRST_FRAME_BYTES: usize = 4096;

/// Bytes that may wait for our reader: one message. Memory is allocated as they arrive.
const PIPE_BYTES: usize = FRAME_BYTES_MAX;

/// Reason for a stream's end.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MuxError {
    #[error("the other side sent a frame of {0} bytes, and {FRAME_BYTES_MAX} are the most")]
    FrameTooLong(u32),
    #[error("a message of {0} bytes cannot be sent, {MESSAGE_BYTES_MAX} are the most")]
    MessageTooLong(u32),
    #[error("the stream broke")]
    Stream(#[from] std::io::Error),
}

/// The two connections of a stream. The stream is closed when they are dropped.
#[derive(Debug)]
pub struct Connections {
    /// The connection on which the runtime calls the plugin.
    pub plugin: DuplexStream,
    /// The connection on which the plugin calls the runtime.
    pub runtime: DuplexStream,
    /// The task carrying the bytes.
    pub trunk: Trunk,
}

/// The task carrying the bytes of both connections. It runs until it is dropped or the stream ends.
#[derive(Debug)]
pub struct Trunk {
    task: JoinHandle<()>,
    open: watch::Receiver<()>,
}

impl Trunk {
    /// Waits until the stream has ended.
    pub async fn closed(&self) {
        let mut open = self.open.clone();
        while open.changed().await.is_ok() {}
    }
}

impl Drop for Trunk {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Carries two connections over the stream.
pub fn connect(stream: UnixStream) -> Connections {
    let (plugin, of_plugin) = tokio::io::duplex(PIPE_BYTES);
    let (runtime, of_runtime) = tokio::io::duplex(PIPE_BYTES);
    let (open_sender, open) = watch::channel(());
    let task = tokio::spawn(async move {
        if let Err(error) = carry(stream, of_plugin, of_runtime).await {
            tracing::debug!(%error, "a plugin's stream ends");
        }
        drop(open_sender);
    });
    Connections { plugin, runtime, trunk: Trunk { task, open } }
}

/// Carries bytes both ways until any connection or the stream ends.
async fn carry(
    stream: UnixStream,
    of_plugin: DuplexStream,
    of_runtime: DuplexStream,
) -> Result<(), MuxError> {
    let (reader, writer) = stream.into_split();
    let (from_plugin, to_plugin) = tokio::io::split(of_plugin);
    let (from_runtime, to_runtime) = tokio::io::split(of_runtime);
    let (messages, waiting) = mpsc::channel(1);
    tokio::select! {
        read = demultiplex(reader, to_plugin, to_runtime) => read,
        written = write(writer, waiting) => written,
        sent = send(from_plugin, PLUGIN_CONNECTION, messages.clone()) => sent,
        sent = send(from_runtime, RUNTIME_CONNECTION, messages.clone()) => sent,
    }
}

/// Routes each frame to its connection. Frames of unknown connections are skipped, as in the public library.
pub(crate) async fn demultiplex(
    mut stream: impl AsyncRead + Unpin,
    mut plugin: impl AsyncWrite + Unpin,
    mut runtime: impl AsyncWrite + Unpin,
) -> Result<(), MuxError> {
    let mut header = [0; HEADER_BYTES];
    loop {
        if !header_read(&mut stream, &mut header).await? {
            return Ok(());
        }
        let [connection, length] = numbers(header);
        if length as usize > FRAME_BYTES_MAX {
            return Err(MuxError::FrameTooLong(length));
        }
        let mut payload = (&mut stream).take(length.into());
        let copied = match connection {
            PLUGIN_CONNECTION => tokio::io::copy(&mut payload, &mut plugin).await?,
            RUNTIME_CONNECTION => tokio::io::copy(&mut payload, &mut runtime).await?,
            _ => tokio::io::copy(&mut payload, &mut tokio::io::sink()).await?,
        };
        if copied < u64::from(length) {
            return Err(std::io::Error::from(std::io::ErrorKind::UnexpectedEof).into());
        }
    }
}

/// Reads a header. Returns false if the stream ends before it.
async fn header_read(
    stream: &mut (impl AsyncRead + Unpin),
    header: &mut [u8; HEADER_BYTES],
) -> Result<bool, MuxError> {
    if stream.read(&mut header[..1]).await? == 0 {
        return Ok(false);
    }
    stream.read_exact(&mut header[1..]).await?;
    Ok(true)
}

fn numbers(header: [u8; HEADER_BYTES]) -> [u32; 2] {
    let [a, b, c, d, e, f, g, h] = header;
    [u32::from_be_bytes([a, b, c, d]), u32::from_be_bytes([e, f, g, h])]
}

/// A whole message on its way to the stream.
type Message = (u32, Vec<u8>);

/// Takes whole ttrpc messages from our connection. A message's first four bytes are the length after its
/// header.
async fn send(
    mut connection: impl AsyncRead + Unpin,
    number: u32,
    messages: mpsc::Sender<Message>,
) -> Result<(), MuxError> {
    loop {
        let mut message = vec![0; MESSAGE_HEADER_BYTES];
        connection.read_exact(&mut message).await?;
        let length = u32::from_be_bytes([message[0], message[1], message[2], message[3]]);
        if length as usize > MESSAGE_BYTES_MAX {
            return Err(MuxError::MessageTooLong(length));
        }
        message.resize(MESSAGE_HEADER_BYTES + length as usize, 0);
        connection.read_exact(&mut message[MESSAGE_HEADER_BYTES..]).await?;
        if messages.send((number, message)).await.is_err() {
            return Ok(());
        }
    }
}

async fn write(
    mut stream: impl AsyncWrite + Unpin,
    mut messages: mpsc::Receiver<Message>,
) -> Result<(), MuxError> {
    while let Some((connection, message)) = messages.recv().await {
        let (first, rest) = message.split_at(message.len().min(FIRST_FRAME_BYTES));
        for frame in [first, rest].into_iter().filter(|frame| !frame.is_empty()) {
            let mut bytes = Vec::with_capacity(HEADER_BYTES + frame.len());
            bytes.extend(connection.to_be_bytes());
            // No frame is longer than a message, whose length fits.
            bytes.extend(u32::try_from(frame.len()).unwrap_or(u32::MAX).to_be_bytes());
            bytes.extend(frame);
            stream.write_all(&bytes).await?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(connection: u32, payload: &[u8]) -> Vec<u8> {
        let length = u32::try_from(payload.len()).unwrap();
        [&connection.to_be_bytes()[..], &length.to_be_bytes(), payload].concat()
    }

    /// The bytes received on each connection, and the reason for the stream's end.
    async fn led(bytes: &[u8]) -> (Vec<u8>, Vec<u8>, Result<(), MuxError>) {
        let (mut plugin, mut runtime) = (Vec::new(), Vec::new());
        let ended = demultiplex(bytes, &mut plugin, &mut runtime).await;
        (plugin, runtime, ended)
    }

    /// A message of ttrpc with so many bytes after its header.
    fn message(length: u32, fill: u8) -> Vec<u8> {
        let mut message = vec![fill; MESSAGE_HEADER_BYTES + length as usize];
        message[..4].copy_from_slice(&length.to_be_bytes());
        message
    }

    #[tokio::test]
    async fn frames_go_to_their_connection_in_their_order() {
        let bytes = [frame(1, b"ab"), frame(2, b"xy"), frame(1, b""), frame(1, b"c")].concat();
        let (plugin, runtime, ended) = led(&bytes).await;
        ended.unwrap();
        assert_eq!((plugin.as_slice(), runtime.as_slice()), (&b"abc"[..], &b"xy"[..]));
    }

    #[tokio::test]
    async fn frames_of_a_connection_that_nobody_knows_are_passed_over() {
        let (plugin, runtime, ended) = led(&[frame(0, b"a"), frame(77, b"b"), frame(2, b"c")].concat()).await;
        ended.unwrap();
        assert_eq!((plugin.as_slice(), runtime.as_slice()), (&b""[..], &b"c"[..]));
    }

    #[tokio::test]
    async fn a_frame_that_is_too_long_ends_the_stream_before_its_bytes() {
        for connection in [1, 2, 9] {
            let mut bytes = frame(connection, b"");
            bytes[4..].copy_from_slice(&(FRAME_BYTES_MAX as u32 + 1).to_be_bytes());
            let (plugin, runtime, ended) = led(&bytes).await;
            assert!(matches!(ended, Err(MuxError::FrameTooLong(_))), "{ended:?}");
            assert!(plugin.is_empty() && runtime.is_empty());
        }
    }

    #[tokio::test]
    async fn a_stream_that_ends_within_a_frame_is_an_error() {
        let whole = frame(1, b"abc");
        for end in 1..whole.len() {
            let (_, _, ended) = led(&whole[..end]).await;
            assert!(matches!(ended, Err(MuxError::Stream(_))), "{end}: {ended:?}");
        }
        led(&whole).await.2.unwrap();
        led(&[]).await.2.unwrap();
    }

    #[tokio::test]
    async fn a_message_is_sent_in_the_frames_that_the_public_library_can_read() {
        for (length, expected) in
            [(0, vec![10]), (4086, vec![4096]), (4087, vec![4096, 1]), (9000, vec![4096, 4914])]
        {
            let (messages, waiting) = mpsc::channel(1);
            messages.send((7, message(length, 3))).await.unwrap();
            drop(messages);
            let mut bytes = Vec::new();
            write(&mut bytes, waiting).await.unwrap();
            let (mut lengths, mut rest, mut whole) = (Vec::new(), &bytes[..], Vec::<u8>::new());
            while let Some((header, after)) = rest.split_first_chunk::<HEADER_BYTES>() {
                let [connection, frame] = numbers(*header);
                assert_eq!(connection, 7);
                lengths.push(frame);
                whole.extend(&after[..frame as usize]);
                rest = &after[frame as usize..];
            }
            assert_eq!(lengths, expected);
            assert_eq!(whole, message(length, 3));
        }
    }

    #[tokio::test]
    async fn both_connections_carry_messages_both_ways() {
        let (a, b) = UnixStream::pair().unwrap();
        let (mut a, mut b) = (connect(a), connect(b));
        let long = message(200_000, 1);
        a.plugin.write_all(&long).await.unwrap();
        a.runtime.write_all(&message(3, 2)).await.unwrap();
        b.plugin.write_all(&message(4, 3)).await.unwrap();
        let mut got = vec![0; long.len()];
        b.plugin.read_exact(&mut got).await.unwrap();
        assert_eq!(got, long);
        let mut got = vec![0; 13];
        b.runtime.read_exact(&mut got).await.unwrap();
        assert_eq!(got, message(3, 2));
        let mut got = vec![0; 14];
        a.plugin.read_exact(&mut got).await.unwrap();
        assert_eq!(got, message(4, 3));
    }

    #[tokio::test]
    async fn the_end_of_one_side_is_the_end_of_both_connections_of_the_other() {
        let (a, b) = UnixStream::pair().unwrap();
        let (a, mut b) = (connect(a), connect(b));
        drop(a);
        b.trunk.closed().await;
        assert_eq!(b.plugin.read(&mut [0; 1]).await.unwrap(), 0);
        assert_eq!(b.runtime.read(&mut [0; 1]).await.unwrap(), 0);
    }
}
