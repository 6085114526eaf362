//! The interface's back end: one thread. It moves frames both ways, and sets the tap's filter by the driver's
//! commands.
//!
//! The thread sleeps until the tap has frames, the driver has given buffers for receiving, or the driver has
//! frames to send or has changed its settings. The tap wakes it only once per arrival, so frames without
//! buffers do not keep the thread awake. It remembers the waiting frames, and continues when there are
//! buffers.
//!
//! A driver that has sent little is not interrupted for it at once. In most cases it soon receives a frame,
//! and one interrupt is for all queues. Otherwise it is notified of sent frames after a moment without any
//! work.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use virtio_queue::Queue;
use vmm_sys_util::eventfd::EventFd;

use super::commands::Commands;
use super::drops::Drops;
use super::filter::TapFilter;
use super::rx::{Received, Rx};
use super::tap::TapSettings;
use super::tx::Tx;
use crate::virtio::Interrupt;
use crate::virtio::worker::{Stop, Wakeups, Woken};

/// Frames moved in one direction before the worker looks at the other, and checks for a stop.
const BATCH: usize = 64;

/// Time without work before a driver is notified of a few sent frames.
const UNHEARD_FOR: Duration = Duration::from_millis(1);

/// Numbers of the worker's wake-ups.
const TAP: u8 = 0;
const RX: u8 = 1;
const TX: u8 = 2;
const CONTROL: u8 = 3;

/// An interface at work.
#[derive(Debug)]
pub(super) struct NetWorker {
    pub(super) tap: Arc<OwnedFd>,
    pub(super) rx: Rx,
    pub(super) tx: Tx,
    pub(super) rx_event: EventFd,
    pub(super) tx_event: EventFd,
    /// Shared with the front end. The driver notifies the front end of commands.
    pub(super) commands: Arc<Commands>,
    pub(super) control_event: EventFd,
    pub(super) settings: Arc<dyn TapSettings>,
    /// Kept by the front end across a pause and a reset.
    pub(super) filter: Arc<Mutex<TapFilter>>,
    pub(super) interrupt: Arc<dyn Interrupt>,
    pub(super) drops: Drops,
    /// The tap may have frames.
    pub(super) tap_ready: bool,
    /// Frames wait in the tap until the driver gives buffers.
    pub(super) starved: bool,
    /// The driver may have frames.
    pub(super) tx_ready: bool,
    /// The driver may have commands, or settings not yet in the tap's filter.
    pub(super) control_ready: bool,
}

impl NetWorker {
    /// Serves until `stop` is readable, then returns the queues of frames.
    pub(super) fn run(mut self, stop: Stop) -> Vec<Queue> {
        if let Err(error) = self.serve(stop) {
            tracing::error!(%error, "an interface's thread cannot wait for frames");
        }
        // The next user of the queue does not know of the driver's pending notifications.
        self.tx.signal(&*self.interrupt);
        vec![self.rx.into_ring().into_queue(), self.tx.ring.into_queue()]
    }

    fn serve(&mut self, stop: Stop) -> io::Result<()> {
        let wakeups = Wakeups::new(stop)?;
        wakeups.add(&*self.tap, TAP, true)?;
        // An event wakes the thread each time the driver writes it, and is never read.
        wakeups.add(&self.rx_event, RX, true)?;
        wakeups.add(&self.tx_event, TX, true)?;
        wakeups.add(&self.control_event, CONTROL, true)?;
        loop {
            let work_left = self.control_ready || self.tx_ready || (self.tap_ready && !self.starved);
            let patience = match work_left {
                true => Some(Duration::ZERO),
                false => self.tx.has_unheard().then_some(UNHEARD_FOR),
            };
            let woken = wakeups.wait_at_most(patience)?;
            if woken.stop {
                return Ok(());
            }
            if !work_left && woken == Woken::default() {
                self.tx.signal(&*self.interrupt);
            }
            self.starved &= !woken.has(RX);
            self.tx_ready |= woken.has(TX);
            self.control_ready |= woken.has(CONTROL);
            self.tap_ready |= woken.has(TAP);
            self.control();
            self.receive();
            self.transmit();
        }
    }

    /// Carries out the driver's remaining commands, and sets the tap's filter.
    pub(super) fn control(&mut self) {
        let mut filter = self.filter.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.control_ready && !filter.is_behind() {
            return;
        }
        if self.control_ready {
            self.control_ready = self.commands.carry_out();
        }
        let wanted = self.commands.receive().filter();
        filter.settle(wanted, &*self.settings, self.tap.as_fd(), Instant::now());
    }

    /// Takes some frames off the tap.
    pub(super) fn receive(&mut self) {
        if !self.tap_ready || self.starved {
            return;
        }
        self.rx.ring.mute();
        for _ in 0..BATCH {
            match self.rx.receive(self.tap.as_fd(), &self.drops) {
                Received::Frame => {}
                Received::Drained => {
                    self.tap_ready = false;
                    break;
                }
                Received::Starved => {
                    self.starved = !self.rx.ring.listen();
                    break;
                }
            }
        }
        if self.rx.ring.is_awaited() {
            // The guest may run before this thread continues. The thread looks for an answer in any case.
            self.tx.ring.mute();
            self.tx_ready = true;
            self.rx.ring.interrupt(&*self.interrupt);
            self.tx.heard();
        }
    }

    /// Sends some of the driver's frames.
    pub(super) fn transmit(&mut self) {
        if !self.tx_ready {
            return;
        }
        self.tx.ring.mute();
        for _ in 0..BATCH {
            if !self.tx.transmit(self.tap.as_fd(), &self.drops) {
                self.tx_ready = self.tx.ring.listen();
                break;
            }
        }
        self.tx.signal_much(&*self.interrupt);
    }
}
