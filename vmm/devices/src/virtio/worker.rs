//! A device's back-end thread: named, stopped by an event, joined before its device is released.
//!
//! ```text
//!   spawn ──> running ──stop()──> the thread's result (its queues)
//! ```
//!
//! A panic ends the process, as everywhere in the VMM. Dropping a worker stops and joins it too. So no thread
//! outlives its device, because it uses the device's memory.

use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::thread::JoinHandle;
use std::time::Duration;

use vmm_sys_util::epoll::{ControlOperation, Epoll, EpollEvent, EventSet};
use vmm_sys_util::eventfd::{EFD_NONBLOCK, EventFd};

use crate::virtio::DeviceError;

/// Most bytes of a thread name kept by Linux.
const NAME_BYTES_MAX: usize = 15;

/// A running thread with a `T` as its result.
#[derive(Debug)]
pub struct Worker<T> {
    stop: EventFd,
    thread: Option<JoinHandle<T>>,
}

impl<T: Send + 'static> Worker<T> {
    /// Starts `run` on a thread called `name`. `run` must return soon after its [`Stop`] is readable.
    pub fn spawn(
        device: &'static str,
        name: &str,
        run: impl FnOnce(Stop) -> T + Send + 'static,
    ) -> Result<Self, DeviceError> {
        let failed = |error: io::Error| DeviceError { device, message: format!("no thread: {error}") };
        let (stop, seen) = Stop::new().map_err(failed)?;
        let name: String = name.chars().take(NAME_BYTES_MAX).collect();
        let thread = std::thread::Builder::new().name(name).spawn(move || run(seen)).map_err(failed)?;
        Ok(Worker { stop, thread: Some(thread) })
    }

    /// Stops the thread and returns its result.
    pub fn stop(mut self) -> T {
        let thread = self.thread.take().expect("only this and the drop that follows take it");
        signal(&self.stop);
        thread.join().expect("a panic ends the process")
    }
}

impl<T> Drop for Worker<T> {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            signal(&self.stop);
            let _ = thread.join();
        }
    }
}

fn signal(stop: &EventFd) {
    // Fails only if the counter is full, and then the event is readable already.
    let _ = stop.write(1);
}

/// The worker's view of its stop event. Once readable, it stays so.
#[derive(Debug)]
pub struct Stop(EventFd);

impl Stop {
    /// Returns the event to write, and the worker's view of it.
    pub(crate) fn new() -> io::Result<(EventFd, Stop)> {
        let event = EventFd::new(EFD_NONBLOCK)?;
        let seen = Stop(event.try_clone()?);
        Ok((event, seen))
    }
}

impl AsRawFd for Stop {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

/// A worker's events: its stop event and up to [`SOURCES_MAX`] others, each with its own number.
#[derive(Debug)]
pub struct Wakeups {
    epoll: Epoll,
    _stop: Stop,
}

/// Sources beside the stop event.
pub const SOURCES_MAX: usize = 7;

const STOP: u64 = u64::MAX;

/// The reasons for a worker's wake-up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Woken {
    /// The worker must end.
    pub stop: bool,
    sources: u64,
}

impl Woken {
    /// Returns true if source `number` is ready.
    pub fn has(self, number: u8) -> bool {
        self.sources & (1 << number) != 0
    }
}

impl Wakeups {
    /// Starts with `stop` only.
    pub fn new(stop: Stop) -> io::Result<Self> {
        let epoll = Epoll::new()?;
        epoll.ctl(ControlOperation::Add, stop.as_raw_fd(), EpollEvent::new(EventSet::IN, STOP))?;
        Ok(Wakeups { epoll, _stop: stop })
    }

    /// Wakes for `source` when it is readable; `number` is below [`SOURCES_MAX`]. With `edge`, it wakes once
    /// for each new arrival, so the worker must read until there is nothing more.
    pub fn add(&self, source: &impl AsRawFd, number: u8, edge: bool) -> io::Result<()> {
        if usize::from(number) >= SOURCES_MAX {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let events = if edge { EventSet::IN | EventSet::EDGE_TRIGGERED } else { EventSet::IN };
        let event = EpollEvent::new(events, u64::from(number));
        self.epoll.ctl(ControlOperation::Add, source.as_raw_fd(), event)
    }

    /// Waits until something is ready. If `work_left`, only checks.
    pub fn wait(&self, work_left: bool) -> io::Result<Woken> {
        self.wait_at_most(work_left.then_some(Duration::ZERO))
    }

    /// Waits until something is ready, or for this long, rounded up to milliseconds. Without a bound, waits
    /// for ever.
    pub fn wait_at_most(&self, patience: Option<Duration>) -> io::Result<Woken> {
        let mut events = [EpollEvent::default(); SOURCES_MAX + 1];
        let timeout = patience.map_or(-1, |patience| {
            i32::try_from(patience.as_nanos().div_ceil(1_000_000)).unwrap_or(i32::MAX)
        });
        let count = loop {
            match self.epoll.wait(timeout, &mut events) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                other => break other?,
            }
        };
        let mut woken = Woken::default();
        for event in &events[..count] {
            match event.data() {
                STOP => woken.stop = true,
                number => woken.sources |= 1 << number,
            }
        }
        Ok(woken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stopping_gives_back_what_the_thread_owned() {
        let worker = Worker::spawn("test", "test-worker-with-a-long-name", |stop| {
            let wakeups = Wakeups::new(stop).unwrap();
            assert!(wakeups.wait(false).unwrap().stop);
            std::thread::current().name().map(str::to_owned)
        })
        .unwrap();
        assert_eq!(worker.stop().as_deref(), Some("test-worker-wit"));
    }

    #[test]
    fn a_dropped_worker_has_ended() {
        let (sender, receiver) = std::sync::mpsc::channel();
        let worker = Worker::spawn("test", "test-drop", move |stop| {
            Wakeups::new(stop).unwrap().wait(false).unwrap();
            sender.send(()).unwrap();
        });
        drop(worker.unwrap());
        receiver.try_recv().unwrap();
    }

    #[test]
    fn sources_wake_by_their_own_numbers() {
        let stop = Stop(EventFd::new(EFD_NONBLOCK).unwrap());
        let wakeups = Wakeups::new(stop).unwrap();
        let (one, two) = (EventFd::new(EFD_NONBLOCK).unwrap(), EventFd::new(EFD_NONBLOCK).unwrap());
        wakeups.add(&one, 0, false).unwrap();
        wakeups.add(&two, 1, true).unwrap();
        assert!(wakeups.add(&two, 7, true).is_err());
        assert_eq!(wakeups.wait(true).unwrap(), Woken::default());
        two.write(1).unwrap();
        let woken = wakeups.wait(false).unwrap();
        assert!(woken.has(1) && !woken.has(0) && !woken.stop);
        assert!(!wakeups.wait(true).unwrap().has(1));
    }
}
