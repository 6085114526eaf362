//! A command's session, common to both transports: the command runs, its output is sent, and the outcome
//! follows the last byte of output.

use bytes::Bytes;
use runtime_pieces::Piece;
use tokio::sync::mpsc;

use crate::channels::{Channels, Command, Input, OUTPUT_PIECES, PIECE_BYTES, Streams};
use crate::own_task::in_own_task;
use crate::spdy::writer::Closed;
use crate::status;

/// A command, and the streams requested by its client.
pub(crate) struct Session {
    pub(crate) streams: Streams,
    pub(crate) command: Box<dyn Command>,
}

/// The streams with the server as the sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stream {
    Stdout,
    Stderr,
    Error,
}

/// A transport's sending side, for a command's output.
pub(crate) trait Outbound: Clone + Send + 'static {
    /// Sends a piece, and with `end` closes the stream after it. Waits until the client takes it.
    fn send(
        &self,
        stream: Stream,
        piece: Piece,
        end: bool,
    ) -> impl Future<Output = Result<(), Closed>> + Send;
}

/// Runs the command to its end, and sends the outcome after both outputs.
pub(super) async fn carry<O: Outbound>(session: Session, input: mpsc::Receiver<Input>, out: O, json: bool) {
    let Session { streams, command } = session;
    let pipe = |wanted: bool| wanted.then(|| mpsc::channel(OUTPUT_PIECES)).unzip();
    let (stdout, from_stdout) = pipe(streams.stdout);
    let (stderr, from_stderr) = pipe(streams.stderr);
    let running = command.run(Channels { input, stdout, stderr });
    let (outcome, _, _) = tokio::join!(
        running,
        in_own_task(pump(from_stdout, Stream::Stdout, out.clone())),
        in_own_task(pump(from_stderr, Stream::Stderr, out.clone())),
    );
    let status = status::encode(&outcome, json);
    // A client that is gone needs no outcome.
    let _ = out.send(Stream::Error, Piece::Held(status.into()), true).await;
}

async fn pump<O: Outbound>(
    source: Option<mpsc::Receiver<Piece>>,
    stream: Stream,
    out: O,
) -> Result<(), Closed> {
    let Some(mut source) = source else { return Ok(()) };
    while let Some(piece) = source.recv().await {
        let Piece::Held(mut bytes) = piece else {
            out.send(stream, piece, false).await?;
            continue;
        };
        while !bytes.is_empty() {
            let piece = bytes.split_to(bytes.len().min(PIECE_BYTES));
            out.send(stream, piece.into(), false).await?;
        }
    }
    out.send(stream, Piece::Held(Bytes::new()), true).await
}
