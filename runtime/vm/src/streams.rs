//! Streams that the guest opened and nobody has taken yet, by port. At most [`WAITING_MAX`] wait for each: one more closes the
//! oldest, which the guest sees as a reset, so that what nobody takes is in nobody's way.

use std::collections::{BTreeMap, VecDeque};
use std::os::fd::OwnedFd;
use std::sync::{Mutex, PoisonError};

use tokio::sync::Notify;

/// Streams kept for whoever comes to take them, for each port: as many as a VMM lets its guest have at once.
const WAITING_MAX: usize = 64;

/// Ports with streams that wait: a VMM lets its guest dial fewer. A stream to one more is closed.
const PORTS_MAX: usize = 4;

#[derive(Debug, Default)]
pub(crate) struct Streams {
    waiting: Mutex<BTreeMap<u32, VecDeque<OwnedFd>>>,
    arrived: Notify,
}

impl Streams {
    /// Keeps a stream, in the place of the oldest if there are too many. A guest can make this happen at will, so
    /// that no log line says so.
    pub(crate) fn put(&self, port: u32, stream: OwnedFd) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if waiting.len() >= PORTS_MAX && !waiting.contains_key(&port) {
            return;
        }
        let of_port = waiting.entry(port).or_default();
        let oldest = if of_port.len() >= WAITING_MAX { of_port.pop_front() } else { None };
        of_port.push_back(stream);
        drop((waiting, oldest));
        self.arrived.notify_waiters();
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
        waiting.get_mut(&port)?.pop_front()
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

    #[tokio::test]
    async fn streams_that_nobody_takes_are_not_in_the_way_of_the_one_that_is_awaited() {
        let streams = Streams::default();
        for _ in 0..WAITING_MAX * 10 {
            streams.put(1, stream());
        }
        streams.put(1024, stream());
        streams.take(1024).await;
        assert_eq!(streams.waiting.lock().unwrap()[&1].len(), WAITING_MAX);
        for port in 2..100 {
            streams.put(port, stream());
        }
        assert_eq!(streams.waiting.lock().unwrap().len(), PORTS_MAX);
    }
}
