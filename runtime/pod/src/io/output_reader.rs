//! Reads one output stream of a container over any number of connections.
//!
//! ```text
//!   Opening ──opened──► Reading ──breaks off, ends──► Opening, from the last byte in the log
//!      │                                                 │
//!      └──the agent does not have the stream,            └──the stream ends there, too──► Ended
//!         the VM has ended──► Ended
//! ```
//!
//! For the agent, opening a stream at some place acknowledges everything before it. So the place is never
//! beyond the log: bytes read before but not yet in the log come again, and are skipped. A lost connection
//! looks like the stream's end, so an end counts only if a second connection confirms it.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures::future::BoxFuture;
use proto_agent::agent::StreamKind;
use tokio::io::{AsyncRead, ReadBuf};
use tokio::sync::Mutex;

use crate::backend::{Acknowledge, BackendError, BackendErrorKind, Output};
use crate::error::chain_of;
use crate::live::Live;

/// How long the agent may take to open a stream.
const OPEN_WITHIN: Duration = Duration::from_secs(30);

/// The pause before a broken stream is opened again.
const BETWEEN_OPENS: Duration = Duration::from_secs(1);

/// Number of consecutive ends, without a byte in between, for the stream's end.
const ENDS: u32 = 2;

/// A stream of a container in its guest.
#[derive(Clone, Debug)]
pub(super) struct OutputSource {
    pub(super) live: Live,
    pub(super) container_id: String,
    pub(super) kind: StreamKind,
}

impl OutputSource {
    /// Opens the stream at this byte.
    pub(super) async fn open(&self, offset: u64) -> Result<Output, BackendError> {
        let unreachable = |text: &str| Err(BackendError::new(BackendErrorKind::Unreachable, text));
        tokio::select! {
            opened = tokio::time::timeout(
                OPEN_WITHIN,
                self.live.agent.output(&self.container_id, self.kind, offset),
            ) => opened.unwrap_or_else(|_| unreachable("the agent does not open the stream in time")),
            _ = self.live.vm.stopped() => unreachable("the VM has ended"),
        }
    }

    /// Opens the stream after the last byte in the log, with retries. `None` if the stream no longer exists.
    async fn reopen(self, place: Arc<OutputPlace>) -> Option<Opened> {
        let mut tries = 0u32;
        loop {
            let from = place.logged.load(Ordering::Acquire);
            let error = match self.open(from).await {
                Ok(Output { reader, acknowledge }) => {
                    *place.acknowledge.lock().await = Some(acknowledge);
                    return Some(Opened { reader, from });
                }
                Err(error) => error,
            };
            let (container, kind) = (&self.container_id, self.kind);
            if error.kind() != BackendErrorKind::Unreachable {
                tracing::info!(container, ?kind, from, error = chain_of(&error), "an output stream is over");
                return None;
            }
            if tries == 0 {
                let error = chain_of(&error);
                tracing::warn!(
                    container,
                    ?kind,
                    from,
                    error,
                    "an output stream is not open, and is tried again"
                );
            }
            tries = tries.saturating_add(1);
            tokio::select! {
                () = tokio::time::sleep(BETWEEN_OPENS) => {}
                _ = self.live.vm.stopped() => return None,
            }
        }
    }
}

/// The position of the log, and the means to acknowledge it over the newest connection.
#[derive(Default)]
pub(super) struct OutputPlace {
    /// Bytes of the stream in the log.
    pub(super) logged: AtomicU64,
    pub(super) acknowledge: Mutex<Option<Box<dyn Acknowledge>>>,
}

struct Opened {
    reader: Box<dyn AsyncRead + Send + Unpin>,
    /// The place at which the stream was opened.
    from: u64,
}

enum State {
    Opening(BoxFuture<'static, Option<Opened>>),
    Reading {
        reader: Box<dyn AsyncRead + Send + Unpin>,
        /// Bytes still to come, already read over an earlier connection.
        skip: u64,
    },
    Ended,
}

/// The stream as one, over all its connections.
pub(super) struct OutputReader {
    source: OutputSource,
    place: Arc<OutputPlace>,
    state: State,
    /// Bytes of the stream read so far, counted from its beginning.
    read: u64,
    /// Ends since the last new byte.
    ends: u32,
}

impl OutputReader {
    /// Continues with an open stream, or opens it at the log's position.
    pub(super) fn new(
        source: OutputSource,
        place: Arc<OutputPlace>,
        open: Option<Box<dyn AsyncRead + Send + Unpin>>,
    ) -> OutputReader {
        let read = place.logged.load(Ordering::Acquire);
        let state = match open {
            Some(reader) => State::Reading { reader, skip: 0 },
            None => State::Opening(Box::pin(source.clone().reopen(place.clone()))),
        };
        OutputReader { source, place, state, read, ends: 0 }
    }

    fn open_again(&mut self, after: Duration) {
        let (source, place) = (self.source.clone(), self.place.clone());
        self.state = State::Opening(Box::pin(async move {
            tokio::time::sleep(after).await;
            source.reopen(place).await
        }));
    }
}

impl AsyncRead for OutputReader {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        let this = &mut *self;
        loop {
            let (reader, skip) = match &mut this.state {
                State::Ended => return Poll::Ready(Ok(())),
                State::Opening(opening) => {
                    this.state = match ready!(opening.as_mut().poll(context)) {
                        Some(Opened { reader, from }) => {
                            State::Reading { reader, skip: this.read.saturating_sub(from) }
                        }
                        None => State::Ended,
                    };
                    continue;
                }
                State::Reading { reader, skip } => (reader, skip),
            };
            let before = buffer.filled().len();
            let outcome = ready!(Pin::new(reader).poll_read(context, buffer));
            let came = buffer.filled().len() - before;
            if let Err(error) = outcome {
                let (container, kind) = (&this.source.container_id, this.source.kind);
                tracing::warn!(container, ?kind, %error, "an output stream broke off, and is opened again");
                this.open_again(BETWEEN_OPENS);
            } else if came == 0 {
                this.ends += 1;
                if this.ends == ENDS {
                    this.state = State::Ended;
                } else {
                    this.open_again(Duration::ZERO);
                }
            } else {
                let known = usize::try_from(*skip).unwrap_or(usize::MAX).min(came);
                *skip -= known as u64;
                buffer.filled_mut().copy_within(before + known.., before);
                buffer.set_filled(before + came - known);
                if came > known {
                    this.read += (came - known) as u64;
                    this.ends = 0;
                    return Poll::Ready(Ok(()));
                }
            }
        }
    }
}
