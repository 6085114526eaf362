//! A command over SPDY: the client opens one stream for each channel, and names each by a header.
//! `session.rs` has all code common to both transports.

use std::time::Duration;

use runtime_pieces::Piece;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;

use super::session::{Outbound, Session, Stream, carry};
use crate::channels::{INPUT_PIECES, Input, Outcome, Streams};
use crate::disconnect::{BROKEN_CLOSE_TIMEOUT, CLOSE_TIMEOUT, DisconnectWatch};
use crate::input_queue::InputQueue;
use crate::negotiate::Version;
use crate::resize::Sizes;
use crate::spdy::SpdyError;
use crate::spdy::frame::{CANCEL, Frame, REFUSED_STREAM};
use crate::spdy::headers::Headers;
use crate::spdy::reader::{Event, Reader};
use crate::spdy::writer::{Closed, Writer};
use crate::splice::SpliceSender;
use crate::status;

/// Time limit for a client to open its streams.
const OPEN_TIMEOUT: Duration = Duration::from_secs(30);

/// Serves the connection to its end, and the command to its own. Output in pipes is spliced if there is a
/// splice sender.
pub(crate) async fn serve<S>(
    io: S,
    version: Version,
    session: Session,
    disconnect: DisconnectWatch,
    splice: Option<SpliceSender>,
) -> Result<(), SpdyError>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let (read, write) = tokio::io::split(io);
    let (writer, mut writing) = Writer::start(write, splice)?;
    let (queue, received) = mpsc::channel(INPUT_PIECES);
    let (reader, open) = (Reader::new(read), Open::default());
    let mut client = Client { reader, writer: writer.clone(), open, input: InputQueue { queue, disconnect } };
    let mut missing = wanted(session.streams, version);
    let opening = tokio::time::timeout(OPEN_TIMEOUT, client.open_all(&mut missing)).await;
    let opening = opening.unwrap_or_else(|_| Err(SpdyError::Unopened(missing.join(", "))));
    if let Err(error) = opening {
        refuse(&writer, client.open.error, &error, version.json).await;
        let _ = tokio::time::timeout(BROKEN_CLOSE_TIMEOUT, &mut writing).await;
        return Err(error);
    }
    let out = SpdyOut { writer: writer.clone(), open: client.open };
    let unfinished = [client.open.stdin, client.open.resize];
    let carrying = carry(session, received, out, version.json);
    let reading = client.read();
    tokio::pin!(carrying, reading);
    tokio::select! {
        () = &mut carrying => {}
        // The client is gone, and its input with it. The command notices, and ends on its own.
        outcome = &mut reading => {
            writing.abort();
            carrying.await;
            return outcome;
        }
    }
    for id in unfinished.into_iter().flatten() {
        let _ = writer.send(Frame::Reset { id, status: CANCEL }).await;
    }
    let _ = writer.send(Frame::GoAway { last: 0 }).await;
    tokio::select! {
        _ = &mut writing => {}
        outcome = &mut reading => return outcome,
    }
    // The server goes on reading meanwhile. With unread bytes its close would be a reset.
    tokio::time::timeout(CLOSE_TIMEOUT, reading).await.unwrap_or(Ok(()))
}

/// Ends a session before its command starts, and sends the reason if the client has opened the error stream.
async fn refuse(writer: &Writer, stream: Option<u32>, error: &SpdyError, json: bool) {
    if let Some(id) = stream {
        let status = status::encode(&Outcome::failed(error.to_string()), json);
        let _ = writer.data(id, status.into(), true).await;
    }
    let _ = writer.send(Frame::GoAway { last: 0 }).await;
}

/// Returns the names of the streams to be opened by the client.
fn wanted(streams: Streams, version: Version) -> Vec<&'static str> {
    let Streams { stdin, stdout, stderr, tty } = streams;
    let names = [
        ("error", true),
        ("stdin", stdin),
        ("stdout", stdout),
        ("stderr", stderr),
        ("resize", tty && version.resize),
    ];
    names.into_iter().filter_map(|(name, wanted)| wanted.then_some(name)).collect()
}

/// The numbers of the streams opened by the client.
#[derive(Clone, Copy, Debug, Default)]
struct Open {
    error: Option<u32>,
    stdin: Option<u32>,
    stdout: Option<u32>,
    stderr: Option<u32>,
    resize: Option<u32>,
}

impl Open {
    /// Returns the entry for a stream of this name.
    fn place(&mut self, name: &str) -> Option<&mut Option<u32>> {
        match name {
            "error" => Some(&mut self.error),
            "stdin" => Some(&mut self.stdin),
            "stdout" => Some(&mut self.stdout),
            "stderr" => Some(&mut self.stderr),
            "resize" => Some(&mut self.resize),
            _ => None,
        }
    }
}

/// The reading side of a session.
struct Client<R> {
    reader: Reader<R>,
    writer: Writer,
    open: Open,
    input: InputQueue,
}

impl<R: AsyncRead + Unpin> Client<R> {
    /// Reads until the client has opened every stream. Early input waits in the queue.
    async fn open_all(&mut self, missing: &mut Vec<&'static str>) -> Result<(), SpdyError> {
        let mut sizes = Sizes::default();
        while !missing.is_empty() {
            match self.reader.next().await?.ok_or_else(closed)? {
                Event::Opened { id, headers, .. } => self.open_one(id, &headers, missing).await?,
                event => self.take(event, &mut sizes).await?,
            }
        }
        Ok(())
    }

    async fn open_one(
        &mut self,
        id: u32,
        headers: &Headers,
        missing: &mut Vec<&'static str>,
    ) -> Result<(), SpdyError> {
        let name = headers.iter().find(|(name, _)| name == "streamtype").map_or("", |(_, value)| value);
        let awaited = missing.iter().position(|missing| *missing == name);
        let (Some(awaited), Some(place)) = (awaited, self.open.place(name)) else {
            let _ = self.writer.send(Frame::Reset { id, status: REFUSED_STREAM }).await;
            return Err(SpdyError::StreamType(status::cut(name).to_owned()));
        };
        missing.remove(awaited);
        *place = Some(id);
        self.writer.reply(id).await.map_err(|Closed| closed())
    }

    /// Takes input until the client closes the connection.
    async fn read(mut self) -> Result<(), SpdyError> {
        let mut sizes = Sizes::default();
        while let Some(event) = self.reader.next().await? {
            match event {
                Event::Opened { id, .. } => {
                    let refusal = Frame::Reset { id, status: REFUSED_STREAM };
                    self.writer.send(refusal).await.map_err(|Closed| closed())?;
                }
                event => self.take(event, &mut sizes).await?,
            }
        }
        Ok(())
    }

    async fn take(&mut self, event: Event, sizes: &mut Sizes) -> Result<(), SpdyError> {
        match event {
            Event::Data { id, bytes, fin } if self.open.stdin == Some(id) => {
                if !bytes.is_empty() {
                    self.put(Input::Bytes(bytes)).await?;
                }
                if fin {
                    self.put(Input::End).await?;
                }
            }
            Event::Data { id, bytes, .. } if self.open.resize == Some(id) => {
                for size in sizes.push(&bytes).map_err(|_| SpdyError::Malformed("a terminal's size"))? {
                    self.put(Input::Resize(size)).await?;
                }
            }
            Event::Reset { id } if self.open.stdin == Some(id) => self.put(Input::End).await?,
            // Even numbers would answer the server's pings, but it sends none. After its GOAWAY the server
            // answers nothing.
            Event::Ping(number) if !number.is_multiple_of(2) => {
                let _ = self.writer.send(Frame::Ping(number)).await;
            }
            _ => {}
        }
        Ok(())
    }

    async fn put(&mut self, input: Input) -> Result<(), SpdyError> {
        if self.input.put(input).await { Ok(()) } else { Err(closed()) }
    }
}

#[derive(Clone)]
struct SpdyOut {
    writer: Writer,
    open: Open,
}

impl Outbound for SpdyOut {
    async fn send(&self, stream: Stream, piece: Piece, end: bool) -> Result<(), Closed> {
        let id = match stream {
            Stream::Stdout => self.open.stdout,
            Stream::Stderr => self.open.stderr,
            Stream::Error => self.open.error,
        };
        match id {
            Some(id) => self.writer.piece(id, piece, end).await,
            None => Ok(()),
        }
    }
}

fn closed() -> SpdyError {
    std::io::Error::from(std::io::ErrorKind::UnexpectedEof).into()
}
