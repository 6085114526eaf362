//! A session's side of the server: the traits that a session implements, and the channels that carry a command's
//! streams, whatever its client speaks. All channels are bounded, and none knows a transport.

use async_trait::async_trait;
use bytes::Bytes;
use runtime_pieces::Piece;
use tokio::io::DuplexStream;
use tokio::sync::mpsc;

/// Longest piece of input or output that is passed on at once, in bytes: two of the packets that a pod's VM sends.
/// Each piece costs wake-ups and system calls, whatever its length.
pub(crate) const PIECE_BYTES: usize = 128 * 1024;

/// Pieces of input that wait for the session; with the longest, half a megabyte.
pub(crate) const INPUT_PIECES: usize = 4;

/// Pieces of output that wait for the client's connection, for each stream.
pub(crate) const OUTPUT_PIECES: usize = 1;

/// The streams that a command's client is to have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Streams {
    /// Standard input.
    pub stdin: bool,
    /// Standard output, or a terminal's.
    pub stdout: bool,
    /// Standard error; a terminal has none.
    pub stderr: bool,
    /// A terminal, which also has a size.
    pub tty: bool,
}

/// A terminal's size in characters; neither is zero.
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

/// How a command's session ended, as the client will be informed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The process ended with this code, 0 to 255.
    Exited(i32),
    /// The container that was attached to has ended. Nothing failed, and there is no code to report.
    Done,
    /// The command could not be run or carried on.
    Failed {
        /// Text for people.
        text: String,
        /// Name of the cause for programs, where clients act on it.
        cause: Option<&'static str>,
    },
}

impl Outcome {
    /// A failure whose cause has no name.
    pub fn failed(text: impl Into<String>) -> Outcome {
        Outcome::Failed { text: text.into(), cause: None }
    }
}

/// An exec or an attach whose client has come.
#[async_trait]
pub trait Command: Send + 'static {
    /// Carries the streams to their end. The server sends the outcome to the client after the last byte of output.
    async fn run(self: Box<Self>, channels: Channels) -> Outcome;
}

/// A pod whose ports a client wants to reach.
#[async_trait]
pub trait Forward: Send + Sync + 'static {
    /// Connects to the port inside the pod and carries bytes both ways, each way to its own end.
    ///
    /// # Errors
    /// The port cannot be reached; the text is for the client.
    async fn forward(&self, port: u16, connection: DuplexStream) -> Result<(), String>;
}
