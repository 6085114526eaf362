//! Streams that the guest opened and nobody has taken yet, by port. At most [`WAITING_MAX`] wait: a stream beyond
//! that is closed, which the guest sees as a reset.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::{Mutex, PoisonError};

use tokio::sync::Notify;

/// Streams kept for whoever comes to take them.
const WAITING_MAX: usize = 32;

#[derive(Debug, Default)]
pub(crate) struct Streams {
    waiting: Mutex<VecDeque<(u32, OwnedFd)>>,
    arrived: Notify,
}

impl Streams {
    /// Keeps a stream, if there is room.
    pub(crate) fn put(&self, port: u32, stream: OwnedFd) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if waiting.len() < WAITING_MAX {
            waiting.push_back((port, stream));
            drop(waiting);
            self.arrived.notify_waiters();
        } else {
            tracing::warn!(port, "too many streams of the guest wait; one was closed");
        }
    }

    /// Returns the oldest stream to `port`, once there is one.
    pub(crate) async fn take(&self, port: u32) -> OwnedFd {
        loop {
            let arrived = self.arrived.notified();
            tokio::pin!(arrived);
            // Before the look, so that a stream that comes after it is noticed.
            arrived.as_mut().enable();
            if let Some(stream) = self.try_take(port) {
                return stream;
            }
            arrived.await;
        }
    }

    fn try_take(&self, port: u32) -> Option<OwnedFd> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let place = waiting.iter().position(|(p, _)| *p == port)?;
        waiting.remove(place).map(|(_, stream)| stream)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream() -> OwnedFd {
        std::os::unix::net::UnixStream::pair().unwrap().0.into()
    }

    #[tokio::test]
    async fn a_stream_waits_for_its_taker_and_a_taker_for_its_stream() {
        let streams = Streams::default();
        streams.put(1, stream());
        streams.put(2, stream());
        streams.take(2).await;
        streams.take(1).await;
        let (_, ()) = tokio::join!(streams.take(3), async { streams.put(3, stream()) });
    }

    #[test]
    fn no_more_than_the_bound_are_kept() {
        let streams = Streams::default();
        for _ in 0..WAITING_MAX + 3 {
            streams.put(1, stream());
        }
        assert_eq!(streams.waiting.lock().unwrap().len(), WAITING_MAX);
    }
}
