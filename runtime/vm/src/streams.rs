//! Numbers of the guest's opened but not yet accepted streams, by port. At most [`WAITING_MAX`] wait for each
//! port. One more replaces the oldest, and its VMM resets the oldest in time.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, PoisonError};

use tokio::sync::Notify;

/// Numbers kept for each port: as many streams as a VMM allows its guest at once.
const WAITING_MAX: usize = 64;

/// Most ports with waiting streams. A VMM lets its guest dial fewer. A stream to a further port is ignored.
const PORTS_MAX: usize = 4;

#[derive(Debug, Default)]
pub(crate) struct Streams {
    waiting: Mutex<BTreeMap<u32, VecDeque<u64>>>,
    arrived: Notify,
}

impl Streams {
    /// Keeps a stream's number, replacing the oldest if there are too many. This is not logged, because a
    /// guest can cause it at will.
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
            // Before the check, so that a stream arriving after it is noticed.
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
