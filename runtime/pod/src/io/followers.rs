//! A container's live output, for attached clients. The log comes first: a slow client is dropped with an
//! explaining error, and delays neither the log nor the others.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use runtime_logs::LogStream;
use tokio::io::{AsyncRead, ReadBuf};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

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

/// One output and its followers.
#[derive(Debug)]
pub(crate) struct StreamFollowers {
    /// `None` after the output's end.
    following: Mutex<Option<Following>>,
    /// A client keeps its place until it leaves, even if it was too slow.
    places: Arc<Semaphore>,
}

impl Default for StreamFollowers {
    fn default() -> Self {
        let following = Mutex::new(Some(Following::default()));
        StreamFollowers { following, places: Arc::new(Semaphore::new(CLIENTS_MAX)) }
    }
}

#[derive(Debug, Default)]
struct Following {
    clients: Vec<Client>,
    /// The output up to now, until the first client comes.
    beginning: Option<Vec<u8>>,
}

/// Pieces on their way to one client.
#[derive(Debug, Default)]
struct Queue {
    waiting: Mutex<Waiting>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct Waiting {
    pieces: VecDeque<Bytes>,
    /// The cost of all pieces.
    bytes: usize,
    end: Option<End>,
}

/// Why no more pieces come.
#[derive(Clone, Copy, Debug)]
enum End {
    Output,
    TooSlow,
}

impl Queue {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The output's side of a client's queue.
#[derive(Debug)]
struct Client(Weak<Queue>);

impl Client {
    /// Sends a piece; false if the client has gone, or was too slow. The pieces of a client that was too slow
    /// are dropped at once, because such a client may never leave.
    fn send(&self, piece: &Bytes) -> bool {
        let Some(queue) = self.0.upgrade() else { return false };
        let mut waiting = queue.waiting();
        let bytes = waiting.bytes + piece.len() + PIECE_BYTES;
        let fits = bytes <= WAITING_BYTES;
        if fits {
            waiting.pieces.push_back(piece.clone());
            waiting.bytes = bytes;
        } else {
            *waiting = Waiting { end: Some(End::TooSlow), ..Waiting::default() };
        }
        queue.changed.notify_one();
        fits
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        if let Some(queue) = self.0.upgrade() {
            queue.waiting().end.get_or_insert(End::Output);
            queue.changed.notify_one();
        }
    }
}

/// The client's side of a followed stream.
#[derive(Debug)]
pub(crate) struct Follower {
    queue: Arc<Queue>,
    /// `None` after the output's end.
    _place: Option<OwnedSemaphorePermit>,
}

impl StreamFollowers {
    /// Follows the output from now on. After the output's end there is nothing.
    ///
    /// # Errors
    /// If too many clients are attached.
    pub(crate) fn follow(&self) -> Result<Follower, PodError> {
        let queue = Arc::new(Queue::default());
        let client = Client(Arc::downgrade(&queue));
        let Some(following) = &mut *self.following() else { return Ok(Follower { queue, _place: None }) };
        let place = self.places.clone().try_acquire_owned().map_err(|_| {
            let text = format!("{CLIENTS_MAX} clients are attached already");
            PodError::new(PodErrorKind::FailedPrecondition, text)
        })?;
        if let Some(beginning) = following.beginning.take().filter(|bytes| !bytes.is_empty()) {
            client.send(&beginning.into());
        }
        following.clients.retain(|client| client.0.strong_count() > 0);
        following.clients.push(client);
        Ok(Follower { queue, _place: Some(place) })
    }

    fn following(&self) -> MutexGuard<'_, Option<Following>> {
        self.following.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps the beginning for the first client; to be called before the first byte.
    pub(crate) fn keep_beginning(&self) {
        if let Some(following) = &mut *self.following() {
            following.beginning = Some(Vec::new());
        }
    }

    fn publish(&self, bytes: &[u8]) {
        let mut state = self.following();
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
        *self.following() = None;
    }
}

impl Follower {
    /// Waits for the next piece; `None` at the end.
    ///
    /// # Errors
    /// If the client was too slow. The pieces that waited for it are gone.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, PodError> {
        loop {
            if let Some(next) = self.ready() {
                return next;
            }
            self.queue.changed.notified().await;
        }
    }

    fn ready(&self) -> Option<Result<Option<Bytes>, PodError>> {
        let mut waiting = self.queue.waiting();
        if let Some(piece) = waiting.pieces.pop_front() {
            waiting.bytes -= piece.len() + PIECE_BYTES;
            return Some(Ok(Some(piece)));
        }
        match waiting.end? {
            End::Output => Some(Ok(None)),
            End::TooSlow => {
                let text = "the client did not keep up with the container's output and was dropped";
                Some(Err(PodError::new(PodErrorKind::Unavailable, text)))
            }
        }
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
        // What waited for the slow client is gone, too.
        assert!(slow.queue.waiting().pieces.is_empty());
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

    #[test]
    fn those_who_were_too_slow_count_until_they_go() {
        let stream = StreamFollowers::default();
        let mut slow: Vec<_> = (0..CLIENTS_MAX).map(|_| stream.follow().unwrap()).collect();
        stream.publish(&vec![b'x'; WAITING_BYTES]);
        assert!(slow.iter().all(|follower| matches!(follower.ready(), Some(Err(_)))));
        assert!(stream.follow().is_err());
        slow.pop();
        stream.follow().unwrap();
    }

    #[tokio::test]
    async fn one_who_waits_is_woken_by_a_piece_and_by_the_end() {
        let stream = Arc::new(StreamFollowers::default());
        let mut follower = stream.follow().unwrap();
        let waiting = tokio::spawn(async move {
            let piece = follower.next().await.unwrap();
            (piece, follower.next().await.unwrap())
        });
        tokio::task::yield_now().await;
        stream.publish(b"late");
        tokio::task::yield_now().await;
        stream.end();
        assert_eq!(waiting.await.unwrap(), (Some("late".into()), None));
    }
}
