//! Numbers of streams that the guest opened and nobody has taken yet, by port. At most [`WAITING_MAX`] wait for each: one more
//! takes the place of the oldest, which its VMM resets in time.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, PoisonError};

use tokio::sync::Notify;

/// Numbers kept for each port: as many as a VMM lets its guest have at once.
const WAITING_MAX: usize = 64;

/// Ports with streams that wait: a VMM lets its guest dial fewer. A stream to one more is left alone.
const PORTS_MAX: usize = 4;

#[derive(Debug, Default)]
pub(crate) struct Streams {
    waiting: Mutex<BTreeMap<u32, VecDeque<u64>>>,
    arrived: Notify,
}

impl Streams {
    /// Keeps a stream's number, in the place of the oldest if there are too many. A guest can make this happen at will, so
    /// that no log line says so.
    pub(crate) fn put(&self, port: u32, number: u64) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if waiting.len() >= PORTS_MAX && !waiting.contains_key(&port) {
            return;
        }
        let of_port = waiting.entry(port).or_default();
        if of_port.len() >= WAITING_MAX {
            of_port.pop_front();
        }
        of_port.push_back(number);
        drop(waiting);
        self.arrived.notify_waiters();
    }

    /// Returns the number of the oldest stream to `port`, once there is one.
    pub(crate) async fn take(&self, port: u32) -> u64 {
        loop {
            let arrived = self.arrived.notified();
            tokio::pin!(arrived);
            // Before the look, so that a stream that comes after it is noticed.
            arrived.as_mut().enable();
            if let Some(number) = self.try_take(port) {
                return number;
            }
            arrived.await;
        }
    }

    fn try_take(&self, port: u32) -> Option<u64> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.get_mut(&port)?.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_stream_waits_for_its_taker_and_a_taker_for_its_stream() {
        let streams = Streams::default();
        streams.put(1, 16);
        streams.put(2, 17);
        assert_eq!(streams.take(2).await, 17);
        assert_eq!(streams.take(1).await, 16);
        let (taken, ()) = tokio::join!(streams.take(3), async { streams.put(3, 18) });
        assert_eq!(taken, 18);
    }

    #[tokio::test]
    async fn streams_that_nobody_takes_are_not_in_the_way_of_the_one_that_is_awaited() {
        let streams = Streams::default();
        for number in 0..WAITING_MAX as u64 * 10 {
            streams.put(1, number);
        }
        streams.put(1024, 7);
        assert_eq!(streams.take(1024).await, 7);
        assert_eq!(streams.waiting.lock().unwrap()[&1].len(), WAITING_MAX);
        for port in 2..100 {
            streams.put(port, 8);
        }
        assert_eq!(streams.waiting.lock().unwrap().len(), PORTS_MAX);
    }
}
