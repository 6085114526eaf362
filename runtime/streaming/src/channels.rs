//! A session's side of the server: the traits implemented by sessions, and the channels for a command's
//! streams, for all protocols. All channels are bounded and independent of the transport.

use async_trait::async_trait;
use bytes::Bytes;
use runtime_pieces::Piece;
use tokio::io::DuplexStream;
use tokio::sync::mpsc;

use crate::channel_message::CHANNELS_MAX;

/// Longest piece of input or output passed on at once, in bytes: two of the packets sent by a pod's VM. Each
/// piece costs wake-ups and system calls, regardless of its length.
pub(crate) const PIECE_BYTES: usize = 128 * 1024;

/// Most pieces of input waiting for the session. At full length they take half a megabyte.
pub(crate) const INPUT_PIECES: usize = 4;

/// Most pieces of output waiting for the client's connection, for each stream.
pub(crate) const OUTPUT_PIECES: usize = 1;

/// Most ports of a session over WebSocket channels: each has two channels.
pub const FORWARD_PORTS_MAX: usize = CHANNELS_MAX as usize / 2;

/// The streams requested by a command's client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Streams {
    /// Standard input.
    pub stdin: bool,
    /// Standard output, or a terminal's.
    pub stdout: bool,
    /// Standard error; a terminal has none.
    pub stderr: bool,
    /// A terminal. It also has a size.
    pub tty: bool,
}

/// A terminal's size in characters. Neither is zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// Characters in a line.
    pub columns: u16,
    /// Lines.
    pub rows: u16,
}

/// An input event of a client. The channel keeps their order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// Bytes for standard input.
    Bytes(Bytes),
    /// The terminal's new size.
    Resize(Size),
    /// No more bytes for standard input. Sizes may follow.
    End,
}

/// A command's side of its session.
#[derive(Debug)]
pub struct Channels {
    /// The client's input; closed when the client has gone away.
    pub input: mpsc::Receiver<Input>,
    /// Standard output, in pieces of any length. Dropping the sender ends the stream for the client.
    pub stdout: Option<mpsc::Sender<Piece>>,
    /// Standard error, likewise.
    pub stderr: Option<mpsc::Sender<Piece>>,
}

/// The outcome of a command's session, for the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The process ended with this code, 0 to 255.
    Exited(i32),
    /// The attached container has ended. Nothing failed, and there is no code to report.
    Done,
    /// The command could not start or continue.
    Failed {
        /// Text for people.
        text: String,
        /// Name of the cause for programs, if clients act on it.
        cause: Option<&'static str>,
    },
}

impl Outcome {
    /// A failure without a named cause.
    pub fn failed(text: impl Into<String>) -> Outcome {
        Outcome::Failed { text: text.into(), cause: None }
    }
}

/// An exec or an attach with a connected client.
#[async_trait]
pub trait Command: Send + 'static {
    /// Carries the streams to their end. The server sends the outcome to the client after the last byte of
    /// output.
    async fn run(self: Box<Self>, channels: Channels) -> Outcome;
}

/// A pod with ports for forwarding.
#[async_trait]
pub trait Forward: Send + Sync + 'static {
    /// Connects to the port inside the pod and carries bytes both ways, each way to its own end.
    ///
    /// # Errors
    /// The port cannot be reached. The text is for the client.
    async fn forward(&self, port: u16, connection: DuplexStream) -> Result<(), String>;

    /// The ports for a client that cannot name them: one over WebSocket channels. The first
    /// [`FORWARD_PORTS_MAX`] count.
    fn ports(&self) -> &[u16] {
        &[]
    }
}
