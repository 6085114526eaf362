//! The transfer of one blob: its bytes in order, from any of its hosts. Owns the retries of a broken
//! transfer, and the minimum speed. Never checks the bytes; `blob.rs` does.
//!
//! ```text
//!   host ──► pieces ──► reader
//!     └─ breaks off ──► wait ──► the same or the next host, from where it broke off ──► …
//! ```
//! A transfer has no time limit as a whole, because a large layer may take hours. It ends if a host is silent
//! for too long (`client.rs`), sends less than the minimum, or breaks off several times without sending a
//! byte.

use std::collections::HashSet;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::{Buf, Bytes};
use futures::StreamExt;
use futures::stream::BoxStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use crate::error::ImageError;
use crate::limits::Limits;
use crate::manifest::Descriptor;
use crate::registry::{HostNumber, Registry};

/// Pieces queued between network and disk. Each is the result of one read of the connection, up to some 400
/// KiB.
const QUEUE: usize = 32;

/// Most bytes of all queued pieces.
const QUEUE_BYTES: usize = 1 << 20;

/// The sources of one blob's bytes, over all attempts to get it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Sources {
    seen: Arc<Mutex<Seen>>,
    /// Ends the transfers of a failed pull.
    pub(crate) ended: CancellationToken,
}

#[derive(Debug, Default)]
struct Seen {
    /// Hosts of the current attempt.
    used: HashSet<HostNumber>,
    /// Hosts of attempts with wrong bytes.
    wrong: HashSet<HostNumber>,
    /// Whether a part of the blob was already there, and may be at fault.
    resumed: bool,
    /// Whether such a part has excused the hosts of an attempt.
    excused: bool,
    /// Whether the bytes have the blob's digest.
    right: bool,
}

impl Sources {
    pub(crate) fn new(ended: CancellationToken) -> Sources {
        Sources { seen: Arc::default(), ended }
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that a part of the blob was already there.
    pub(crate) fn resume(&self) {
        self.seen().resumed = true;
    }

    /// Records that the part stays, because the hosts of this attempt are at fault.
    pub(crate) fn keep_part(&self) {
        self.seen().resumed = false;
    }

    /// Records that the bytes have the blob's digest.
    pub(crate) fn verify(&self) {
        self.seen().right = true;
    }

    fn wrong(&self) -> HashSet<HostNumber> {
        self.seen().wrong.clone()
    }

    /// Returns true if another attempt may bring other bytes than the last one. Each attempt excludes one
    /// more host. The exception is one attempt after resuming, because the old part may be at fault. It is
    /// removed by then. Without this bound, a host with other bytes than its manifest says would be asked for
    /// ever.
    pub(crate) fn try_others(&self, registry: &Registry) -> bool {
        let mut seen = self.seen();
        if seen.right || self.ended.is_cancelled() {
            return false;
        }
        let used = std::mem::take(&mut seen.used);
        if std::mem::take(&mut seen.resumed) && !std::mem::replace(&mut seen.excused, true) {
            return true;
        }
        seen.wrong.extend(used);
        registry.has_other(&seen.wrong)
    }
}

/// Queued bytes, and their share of the queue.
#[derive(Debug)]
struct Piece {
    bytes: Bytes,
    _room: OwnedSemaphorePermit,
}

/// A blob in transfer.
#[derive(Debug)]
pub(crate) struct Transfer {
    /// Offset of the first byte.
    pub(crate) offset: u64,
    pieces: mpsc::Receiver<Result<Piece, ImageError>>,
    _task: AbortOnDropHandle<()>,
}

impl Transfer {
    /// Requests a blob from `offset`. It begins at 0 if the host cannot resume.
    pub(crate) async fn start(
        registry: &Arc<Registry>,
        descriptor: &Descriptor,
        offset: u64,
        sources: &Sources,
    ) -> Result<Transfer, ImageError> {
        let what = descriptor.to_string();
        let (blob, host) = registry.blob(&descriptor.digest, &what, offset, &sources.wrong()).await?;
        sources.seen().used.insert(host);
        let (sender, pieces) = mpsc::channel(QUEUE);
        let offset = blob.offset;
        let way = Way {
            registry: Arc::clone(registry),
            descriptor: descriptor.clone(),
            sources: sources.clone(),
            queue: Queue { sender, room: Arc::new(Semaphore::new(QUEUE_BYTES)) },
            stream: blob.stream,
            position: offset,
            skip: 0,
        };
        let ended = sources.ended.clone();
        let task = tokio::spawn(async move {
            let _ = ended.run_until_cancelled(way.follow()).await;
        });
        Ok(Transfer { offset, pieces, _task: AbortOnDropHandle::new(task) })
    }

    /// Waits for the next bytes. Returns `None` at the end. Blocks.
    pub(crate) fn next(&mut self) -> Option<Result<Bytes, ImageError>> {
        self.pieces.blocking_recv().map(|piece| piece.map(|piece| piece.bytes))
    }
}

/// The sending end of the queue between network and disk.
struct Queue {
    sender: mpsc::Sender<Result<Piece, ImageError>>,
    /// Free bytes in the queue.
    room: Arc<Semaphore>,
}

impl Queue {
    /// Queues bytes once there is space. A piece larger than the queue takes all of it. Returns false if the
    /// reader is gone.
    async fn send(&self, bytes: Bytes) -> bool {
        let wanted = u32::try_from(bytes.len().min(QUEUE_BYTES)).unwrap_or(u32::MAX);
        // When the reader is dropped, its queued pieces are dropped too, and this frees the space.
        let Ok(room) = Arc::clone(&self.room).acquire_many_owned(wanted).await else { return false };
        self.sender.send(Ok(Piece { bytes, _room: room })).await.is_ok()
    }

    async fn fail(&self, error: ImageError) {
        let _ = self.sender.send(Err(error)).await;
    }
}

/// The sending side of a transfer.
struct Way {
    registry: Arc<Registry>,
    descriptor: Descriptor,
    sources: Sources,
    queue: Queue,
    stream: BoxStream<'static, io::Result<Bytes>>,
    /// Offset of the next byte to send.
    position: u64,
    /// Bytes before `position` still to be skipped in the stream.
    skip: u64,
}

impl Way {
    /// Sends the blob to its end, or to the failure.
    async fn follow(mut self) {
        let mut waits = self.registry.waits();
        let mut pace = Pace::new(self.registry.limits());
        loop {
            let piece = pace.wait(self.stream.next()).await;
            if let Err(slow) = pace.check() {
                let error = self.broken(slow);
                return self.queue.fail(error).await;
            }
            let failure = match piece {
                Some(Ok(mut piece)) => {
                    let skipped = self.skip.min(piece.len() as u64);
                    piece.advance(skipped as usize);
                    self.skip -= skipped;
                    // The host is as fast with these bytes as with others. They are no progress, so they end
                    // no row of failures.
                    pace.bytes += skipped;
                    if piece.is_empty() {
                        continue;
                    }
                    self.position += piece.len() as u64;
                    pace.bytes += piece.len() as u64;
                    waits = self.registry.waits();
                    if !self.queue.send(piece).await {
                        return;
                    }
                    continue;
                }
                // Also after too many bytes: the reader refuses those.
                _ if self.position >= self.descriptor.size => return,
                Some(Err(error)) => Some(error),
                None => None,
            };
            let again = match waits.next() {
                Some(wait) => pace.wait(self.again(wait)).await,
                // A body ending early is the host's own fault.
                None => match failure {
                    Some(error) => Err(self.broken(error)),
                    None => return,
                },
            };
            if let Err(error) = again {
                return self.queue.fail(error).await;
            }
        }
    }

    /// Requests the rest of the blob.
    async fn again(&mut self, wait: Duration) -> Result<(), ImageError> {
        let Descriptor { digest, .. } = &self.descriptor;
        tracing::debug!(digest, position = self.position, "a transfer broke off, and is resumed");
        tokio::time::sleep(wait).await;
        let (what, wrong) = (self.descriptor.to_string(), self.sources.wrong());
        let (blob, host) = self.registry.blob(digest, &what, self.position, &wrong).await?;
        self.sources.seen().used.insert(host);
        self.skip = self.position - blob.offset;
        self.stream = blob.stream;
        Ok(())
    }

    fn broken(&self, error: io::Error) -> ImageError {
        let (what, received) = (self.descriptor.to_string(), self.position);
        ImageError::Transfer { what, received, source: Arc::new(error) }
    }
}

/// A host's speed, measured only while waiting for it: a slow disk is not its fault.
struct Pace {
    waited: Duration,
    bytes: u64,
    window: Duration,
    bytes_min: u64,
}

impl Pace {
    fn new(limits: &Limits) -> Pace {
        Pace { waited: Duration::ZERO, bytes: 0, window: limits.pace, bytes_min: limits.pace_bytes }
    }

    async fn wait<T>(&mut self, work: impl Future<Output = T>) -> T {
        let begun = Instant::now();
        let done = work.await;
        self.waited += begun.elapsed();
        done
    }

    fn check(&mut self) -> io::Result<()> {
        if self.waited < self.window {
            return Ok(());
        }
        let (bytes, bytes_min) = (self.bytes, self.bytes_min);
        (self.waited, self.bytes) = (Duration::ZERO, 0);
        if bytes < bytes_min {
            let reason = format!("{bytes} bytes in {:?} are fewer than {bytes_min}", self.window);
            return Err(io::Error::new(io::ErrorKind::TimedOut, reason));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::name::Name;
    use crate::registry::RegistryConfig;

    #[test]
    fn an_old_part_excuses_a_host_once() {
        let name = Name::parse("localhost/x").unwrap();
        let registry = Registry::open(&name, None, &RegistryConfig::default()).unwrap();
        let sources = Sources::default();
        let attempt = || {
            sources.seen().used.insert(0);
            sources.resume();
            sources.try_others(&registry)
        };
        assert_eq!([attempt(), attempt()], [true, false]);
        assert!(sources.wrong().contains(&0));
        let sources = Sources::default();
        sources.seen().used.insert(0);
        sources.resume();
        sources.keep_part();
        assert!(!sources.try_others(&registry), "the part stays, so the host is at fault");
    }

    #[tokio::test(start_paused = true)]
    async fn bytes_that_are_skipped_count_for_the_pace() {
        const PIECE: usize = 300 << 10;
        let name = Name::parse("localhost/x").unwrap();
        let registry = Arc::new(Registry::open(&name, None, &RegistryConfig::default()).unwrap());
        let limits = registry.limits().clone();
        assert!(PIECE as u64 > limits.pace_bytes);
        // A host without ranges, after a break: nine pieces again, and a new one.
        let pieces = futures::stream::iter(0..10).then(move |_| async move {
            tokio::time::sleep(limits.pace / 2).await;
            Ok(Bytes::from_static(&[0; PIECE]))
        });
        let (sender, mut received) = mpsc::channel(QUEUE);
        let (digest, size) = ("sha256:x".to_owned(), 10 * PIECE as u64);
        let way = Way {
            registry,
            descriptor: Descriptor { digest, size, part: "layer".into() },
            sources: Sources::default(),
            queue: Queue { sender, room: Arc::new(Semaphore::new(QUEUE_BYTES)) },
            stream: pieces.boxed(),
            position: 9 * PIECE as u64,
            skip: 9 * PIECE as u64,
        };
        tokio::spawn(way.follow());
        let piece = received.recv().await.unwrap().unwrap();
        assert_eq!(piece.bytes.len(), PIECE);
        assert!(received.recv().await.is_none());
    }
}
