//! A container's live output, for attached clients. The log comes first: a slow client is dropped with an
//! explaining error, and delays neither the log nor the others.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use runtime_logs::LogStream;
use tokio::io::{AsyncRead, ReadBuf};
use tokio::sync::mpsc;

use crate::error::{PodError, PodErrorKind};

/// Bytes waiting for one client. A process may write a burst of this size before a slow client is lost.
const WAITING_BYTES: usize = 4 << 20;

/// The cost of a piece beside its bytes, so many small ones count too.
const PIECE_BYTES: usize = 128;

/// The beginning of the output shown to an interactive container's first client: a prompt, a greeting. If
/// there was more output before the first client, nothing is shown.
const BEGINNING_BYTES_MAX: usize = 16 << 10;

/// Most clients attached to one stream.
const CLIENTS_MAX: usize = 64;

/// The outputs of one container.
#[derive(Debug, Default)]
pub(crate) struct OutputFollowers {
    stdout: StreamFollowers,
    stderr: StreamFollowers,
}

impl OutputFollowers {
    pub(crate) fn of(&self, stream: LogStream) -> &StreamFollowers {
        match stream {
            LogStream::Stdout => &self.stdout,
            LogStream::Stderr => &self.stderr,
        }
    }
}

/// One output and its followers; `None` after its end.
#[derive(Debug)]
pub(crate) struct StreamFollowers(Mutex<Option<Following>>);

impl Default for StreamFollowers {
    fn default() -> Self {
        StreamFollowers(Mutex::new(Some(Following::default())))
    }
}

#[derive(Debug, Default)]
struct Following {
    clients: Vec<Client>,
    /// The output up to now, until the first client comes.
    beginning: Option<Vec<u8>>,
}

/// Bytes on their way to one client.
#[derive(Debug, Default)]
struct Waiting {
    bytes: AtomicUsize,
    /// The client was too slow.
    dropped: AtomicBool,
}

#[derive(Debug)]
struct Client {
    /// Pieces for the client, limited by the number of waiting bytes.
    pieces: mpsc::UnboundedSender<Bytes>,
    waiting: Arc<Waiting>,
}

impl Client {
    /// Sends a piece; false if the client has gone, or was too slow.
    fn send(&self, piece: &Bytes) -> bool {
        let cost = piece.len() + PIECE_BYTES;
        if self.waiting.bytes.load(Ordering::Acquire) + cost > WAITING_BYTES {
            self.waiting.dropped.store(true, Ordering::Release);
            return false;
        }
        self.waiting.bytes.fetch_add(cost, Ordering::AcqRel);
        self.pieces.send(piece.clone()).is_ok()
    }
}

/// The client's side of a followed stream.
#[derive(Debug)]
pub(crate) struct Follower {
    pieces: mpsc::UnboundedReceiver<Bytes>,
    waiting: Arc<Waiting>,
}

impl StreamFollowers {
    /// Follows the output from now on. After the output's end there is nothing.
    pub(crate) fn follow(&self) -> Result<Follower, PodError> {
        let (sender, pieces) = mpsc::unbounded_channel();
        let waiting = Arc::new(Waiting::default());
        if let Some(following) = &mut *self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            let clients = &mut following.clients;
            clients.retain(|client| !client.pieces.is_closed());
            if clients.len() >= CLIENTS_MAX {
                let text = format!("{CLIENTS_MAX} clients are attached already");
                return Err(PodError::new(PodErrorKind::FailedPrecondition, text));
            }
            let client = Client { pieces: sender, waiting: waiting.clone() };
            if let Some(beginning) = following.beginning.take().filter(|bytes| !bytes.is_empty()) {
                client.send(&beginning.into());
            }
            clients.push(client);
        }
        Ok(Follower { pieces, waiting })
    }

    /// Keeps the beginning for the first client; to be called before the first byte.
    pub(crate) fn keep_beginning(&self) {
        if let Some(following) = &mut *self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            following.beginning = Some(Vec::new());
        }
    }

    fn publish(&self, bytes: &[u8]) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(following) = state.as_mut() else { return };
        if let Some(beginning) = &mut following.beginning {
            beginning.extend_from_slice(bytes);
            following.beginning.take_if(|bytes| bytes.len() > BEGINNING_BYTES_MAX);
        }
        if !following.clients.is_empty() {
            let piece = Bytes::copy_from_slice(bytes);
            following.clients.retain(|client| client.send(&piece));
        }
    }

    /// Ends the stream of all clients.
    pub(crate) fn end(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

impl Follower {
    /// Waits for the next piece; `None` at the end.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, PodError> {
        let piece = self.pieces.recv().await;
        match &piece {
            Some(piece) => {
                self.waiting.bytes.fetch_sub(piece.len() + PIECE_BYTES, Ordering::AcqRel);
            }
            None if self.waiting.dropped.load(Ordering::Acquire) => {
                let text = "the client did not keep up with the container's output and was dropped";
                return Err(PodError::new(PodErrorKind::Unavailable, text));
            }
            None => {}
        }
        Ok(piece)
    }
}

/// An output on its way to the log, also seen by followers. Its end, or the reader's drop, ends theirs too.
pub(crate) struct FollowedReader {
    reader: Box<dyn AsyncRead + Send + Unpin>,
    followers: Arc<OutputFollowers>,
    stream: LogStream,
}

impl FollowedReader {
    pub(crate) fn new(
        reader: Box<dyn AsyncRead + Send + Unpin>,
        followers: Arc<OutputFollowers>,
        stream: LogStream,
    ) -> FollowedReader {
        FollowedReader { reader, followers, stream }
    }
}

impl AsyncRead for FollowedReader {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.reader).poll_read(context, buffer))?;
        let new = &buffer.filled()[before..];
        if !new.is_empty() {
            self.followers.of(self.stream).publish(new);
        }
        Poll::Ready(Ok(()))
    }
}

impl Drop for FollowedReader {
    fn drop(&mut self) {
        self.followers.of(self.stream).end();
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt;

    use super::*;

    fn followed(text: &'static [u8]) -> (Arc<OutputFollowers>, FollowedReader) {
        let followers = Arc::new(OutputFollowers::default());
        (followers.clone(), FollowedReader::new(Box::new(text), followers, LogStream::Stdout))
    }

    #[tokio::test]
    async fn all_who_are_attached_see_what_the_log_reads_and_its_end() {
        let (output, mut reader) = followed(b"hello");
        let mut followers: Vec<_> = (0..3).map(|_| output.of(LogStream::Stdout).follow().unwrap()).collect();
        let mut log = String::new();
        reader.read_to_string(&mut log).await.unwrap();
        drop(reader);
        assert_eq!(log, "hello");
        for follower in &mut followers {
            assert_eq!(follower.next().await.unwrap().unwrap(), "hello");
            assert_eq!(follower.next().await.unwrap(), None);
        }
        assert_eq!(output.of(LogStream::Stdout).follow().unwrap().next().await.unwrap(), None);
    }

    #[tokio::test]
    async fn a_client_that_does_not_read_is_dropped_and_the_others_are_not() {
        let stream = StreamFollowers::default();
        let (mut slow, mut quick) = (stream.follow().unwrap(), stream.follow().unwrap());
        let piece = [b'x'; 64 << 10];
        let fits = WAITING_BYTES / (piece.len() + PIECE_BYTES);
        for _ in 0..=fits {
            stream.publish(&piece);
            assert_eq!(quick.next().await.unwrap().unwrap(), piece[..]);
        }
        stream.end();
        assert_eq!(quick.next().await.unwrap(), None);
        for _ in 0..fits {
            slow.next().await.unwrap().unwrap();
        }
        assert_eq!(slow.next().await.unwrap_err().kind(), PodErrorKind::Unavailable);
    }

    #[tokio::test]
    async fn only_the_first_who_comes_is_shown_a_beginning_and_only_a_short_one() {
        let stream = StreamFollowers::default();
        stream.keep_beginning();
        stream.publish(b"prompt");
        stream.publish(b"> ");
        let mut first = stream.follow().unwrap();
        stream.publish(b"answer");
        let mut second = stream.follow().unwrap();
        stream.end();
        assert_eq!(first.next().await.unwrap().unwrap(), "prompt> ");
        assert_eq!(first.next().await.unwrap().unwrap(), "answer");
        assert_eq!(second.next().await.unwrap(), None);

        let stream = StreamFollowers::default();
        stream.keep_beginning();
        stream.publish(&[b'x'; BEGINNING_BYTES_MAX]);
        stream.publish(b"more");
        let mut late = stream.follow().unwrap();
        stream.publish(b"now");
        assert_eq!(late.next().await.unwrap().unwrap(), "now");
    }

    #[test]
    fn those_who_are_attached_are_bounded_and_make_room_when_they_go() {
        let stream = StreamFollowers::default();
        let mut followers: Vec<_> = (0..CLIENTS_MAX).map(|_| stream.follow().unwrap()).collect();
        assert!(stream.follow().is_err());
        followers.pop();
        stream.follow().unwrap();
    }
}
