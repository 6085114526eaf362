//! The back-end thread: waits for the guest and the hosts, and moves packets.
//!
//! Owns the three queues while the device is active. Each wake-up is one or more *turns*: take packets from
//! tx, put packets into rx, interrupt the driver. Turns are bounded, so a busy guest cannot prevent the
//! thread from being stopped. Without work the thread sleeps without a limit.
//!
//! ```text
//!            ┌────────────── after a restore ─────────────┐
//!   start ──>│ Owed ──event written──> Sent ──buffer back─┼──> None: streams flow
//!            └────────────────────────────────────────────┘
//! ```
//! A restored guest must drop its old connections first (virtio 1.2 section 5.10.6.7). The driver gives the
//! event's buffer back afterwards. Until then nothing else moves, so no new connection can be taken for an
//! old one.

use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::Duration;

use virtio_queue::{Queue, QueueT as _};
use vmm_sys_util::epoll::{ControlOperation, EpollEvent, EventSet};
use vmm_sys_util::eventfd::EventFd;

use super::lane::{Access, Lane, Next};
use super::mux::Mux;
use super::packet::HEADER_BYTES;
use super::tx::Packet;
use crate::virtio::ring::{Faults, Ring};
use crate::virtio::worker::Stop;
use crate::virtio::{Activation, DeviceError, Interrupt};

/// The device's name in errors, and its thread's name.
pub(super) const NAME: &str = "vsock";

/// Packets moved each way before the thread looks at its events again, and the most packets for one
/// interrupt.
const PACKETS_PER_TURN: usize = 64;

/// Milliseconds before the next accept after a failed one.
const ACCEPT_PAUSE_MS: i32 = 100;

/// Events taken from epoll at once.
const EVENTS_MAX: usize = 64;

/// VIRTIO_VSOCK_EVENT_TRANSPORT_RESET, as `struct virtio_vsock_event`.
const TRANSPORT_RESET: [u8; 4] = 0_u32.to_le_bytes();

/// Token of the stop event. A queue event's token is 1 + its queue's number.
const STOP: u64 = 0;
const LISTENER: u64 = 4;

/// Progress of the announcement to the guest that its connections are gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Announcement {
    None,
    Owed,
    /// With the number of buffers the driver had offered before.
    Sent(u16),
}

/// See the module.
#[derive(Debug)]
pub(super) struct Backend {
    mux: Mux,
    rx: Lane,
    tx: Lane,
    /// The bare queue, if the driver left it disabled.
    events: Result<Lane, Queue>,
    queue_events: Vec<EventFd>,
    interrupt: Arc<dyn Interrupt>,
    announcement: Announcement,
    faults: Faults,
    /// The guest's faults have been logged.
    complained: bool,
}

/// The part outliving the thread.
#[derive(Debug)]
pub(super) struct Parked {
    /// The queues in their current state.
    pub(super) queues: Vec<Queue>,
    /// All connections.
    pub(super) mux: Mux,
    /// The guest has not yet learned that its connections are gone.
    pub(super) announce_reset: bool,
}

impl Backend {
    /// Prepares to [`run`](Self::run).
    ///
    /// # Errors
    /// If the driver left the rx or tx queue disabled, or the process is out of descriptors.
    pub(super) fn new(
        mux: Mux,
        activation: Activation,
        announce_reset: bool,
        faults: Faults,
    ) -> Result<Backend, DeviceError> {
        let Activation { memory, queues, queue_events, interrupt, .. } = activation;
        let Ok([rx, tx, events]) = <[Queue; 3]>::try_from(queues) else {
            return Err(failed("the transport gave another number of queues than three"));
        };
        let lane = |queue: Queue, access| {
            let ring = Ring::open(NAME, queue, &memory, &faults)?;
            Ok::<_, DeviceError>(Lane::new(ring, faults.clone(), access))
        };
        let rx = lane(rx, Access::Write)?;
        let tx = lane(tx, Access::Read)?;
        let events = if events.ready() { Ok(lane(events, Access::Write)?) } else { Err(events) };
        // A driver without an event queue cannot learn of it. This is its choice.
        let announcement =
            if announce_reset && events.is_ok() { Announcement::Owed } else { Announcement::None };
        let complained = faults.total() > 0;
        let backend =
            Backend { mux, rx, tx, events, queue_events, interrupt, announcement, faults, complained };
        backend.watch().map_err(failed)?;
        Ok(backend)
    }

    fn watch(&self) -> io::Result<()> {
        for (token, event) in (1_u64..).zip(&self.queue_events) {
            // Edges: each notification wakes, and none has to be read.
            let notified = EpollEvent::new(EventSet::IN | EventSet::EDGE_TRIGGERED, token);
            self.mux.epoll.ctl(ControlOperation::Add, event.as_raw_fd(), notified)?;
        }
        self.mux.watch_listener(LISTENER)
    }

    /// Works until `stop` is readable. If waiting itself fails, the device is silent until reset.
    pub(super) fn run(mut self, stop: &Stop) -> Parked {
        let watched = EpollEvent::new(EventSet::IN, STOP);
        if let Err(error) = self.mux.epoll.ctl(ControlOperation::Add, stop.as_raw_fd(), watched) {
            tracing::error!(%error, "vsock: the thread cannot be stopped and does not start");
            return self.park(stop);
        }
        let mut events = [EpollEvent::default(); EVENTS_MAX];
        loop {
            let timeout = match self.turn() {
                true => 0,
                false if self.mux.accept_failed() => ACCEPT_PAUSE_MS,
                false => -1,
            };
            let timeout = earlier(timeout, self.mux.give_up_awaited());
            match self.mux.epoll.wait(timeout, &mut events) {
                Ok(count) => {
                    if self.take_events(&events[..count]) {
                        return self.park(stop);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    tracing::error!(%error, "vsock: epoll failed; streams stand still");
                    return self.park(stop);
                }
            }
        }
    }

    /// Returns true if the thread should stop.
    fn take_events(&mut self, events: &[EpollEvent]) -> bool {
        let mut stop = false;
        for event in events {
            match event.data() {
                STOP => stop = true,
                LISTENER => self.mux.listener_event(),
                // The next turn looks at the rings.
                1..LISTENER => {}
                id => self.mux.stream_event(id, event.event_set()),
            }
        }
        stop
    }

    /// Moves packets and bytes as far as possible. Returns true if there are more at once.
    fn turn(&mut self) -> bool {
        if !self.announced() {
            return false;
        }
        self.mux.accept();
        let more_tx = self.drain_tx();
        let more_rx = self.fill_rx();
        self.notify();
        more_rx || (more_tx && self.mux.takes_packets())
    }

    /// Takes packets from the guest. Returns true if it stopped before the queue was empty.
    fn drain_tx(&mut self) -> bool {
        for _ in 0..PACKETS_PER_TURN {
            if !self.mux.takes_packets() {
                return true;
            }
            match self.tx.next() {
                Next::Empty => return false,
                Next::Malformed => {}
                Next::Chain(taken) => {
                    let packet = Packet::parse(self.tx.buffer());
                    if !packet.is_some_and(|packet| self.mux.receive(&packet)) {
                        self.faults.count();
                    }
                    self.tx.used(taken, 0);
                }
            }
        }
        true
    }

    /// Gives packets to the guest. Returns true if there may be more, and buffers for them.
    fn fill_rx(&mut self) -> bool {
        for _ in 0..PACKETS_PER_TURN {
            if !self.mux.has_waiting() {
                return false;
            }
            match self.rx.next() {
                Next::Empty => return false,
                Next::Malformed => {}
                // No room for a byte: a connection could make no progress with it.
                Next::Chain(taken) if self.rx.buffer().bytes() <= HEADER_BYTES => {
                    self.faults.count();
                    self.rx.used(taken, 0);
                }
                Next::Chain(taken) => match self.mux.fill(self.rx.buffer()) {
                    Some(length) => self.rx.used(taken, length),
                    None => {
                        self.rx.put_back(taken);
                        return false;
                    }
                },
            }
        }
        true
    }

    /// Returns true if the guest knows that its connections are gone. If not, takes the next step of the
    /// announcement.
    fn announced(&mut self) -> bool {
        let Ok(events) = &mut self.events else { return true };
        if self.announcement == Announcement::Owed {
            let before = events.on_offer();
            if let Next::Chain(taken) = events.next() {
                events.buffer().write(&TRANSPORT_RESET);
                events.used(taken, TRANSPORT_RESET.len() as u32);
                self.announcement = Announcement::Sent(before);
            }
            events.notify(self.interrupt.as_ref());
        }
        if let Announcement::Sent(before) = self.announcement
            && events.on_offer() >= before
        {
            self.announcement = Announcement::None;
        }
        self.announcement == Announcement::None
    }

    /// Interrupts the driver for used chains, and logs its faults once: a guest must not fill the log.
    fn notify(&mut self) {
        self.rx.notify(self.interrupt.as_ref());
        self.tx.notify(self.interrupt.as_ref());
        if !self.complained && self.faults.total() > 0 {
            self.complained = true;
            tracing::warn!(
                "vsock: the guest sent a malformed packet or chain; further ones are only counted"
            );
        }
    }

    /// Releases everything of this activation.
    fn park(mut self, stop: &Stop) -> Parked {
        for fd in self.queue_events.iter().map(AsRawFd::as_raw_fd).chain([stop.as_raw_fd()]) {
            // Fails harmlessly for descriptors not watched.
            let _absent = self.mux.epoll.ctl(ControlOperation::Delete, fd, EpollEvent::default());
        }
        self.mux.unwatch_listener();
        let queue = |lane: Lane| lane.into_ring().into_queue();
        Parked {
            queues: vec![queue(self.rx), queue(self.tx), self.events.map_or_else(|queue| queue, queue)],
            announce_reset: self.announcement != Announcement::None,
            mux: self.mux,
        }
    }
}

/// Returns the earlier of epoll's timeout and the due time, in whole milliseconds.
fn earlier(timeout: i32, due: Option<Duration>) -> i32 {
    let Some(due) = due else { return timeout };
    let due = i32::try_from(due.as_millis()).unwrap_or(i32::MAX).saturating_add(1);
    if timeout < 0 { due } else { timeout.min(due) }
}

/// An error of this device.
pub(super) fn failed(cause: impl std::fmt::Display) -> DeviceError {
    DeviceError { device: NAME, message: cause.to_string() }
}
