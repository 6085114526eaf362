//! Carries out the driver's commands.
//!
//! ```text
//!   driver notifies ──► vCPU's thread: command, answer ──► interface's thread: tap's filter, other commands
//! ```
//!
//! A driver spins until it has its answer (`virtnet_send_command` in Linux `drivers/net/virtio_net.c`). If
//! the interface's thread had to answer on the same processor, the guest would spin until its time slice is
//! over. So the vCPU's thread answers, because the notification has stopped it anyway. The filter is never
//! set there: the kernel may wait for other changes of the node's networks.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use virtio_queue::Queue;
use vmm_sys_util::eventfd::EventFd;

use super::control::Control;
use super::receive::{Mac, ReceiveMode};
use crate::virtio::Interrupt;

/// Commands carried out at a time. Drivers wait for each answer.
const BATCH: usize = 64;

/// The driver's settings, and its commands for changing them. The vCPUs' threads and the interface's share
/// it.
#[derive(Debug)]
pub(super) struct Commands {
    /// None while the interface is not active.
    active: Mutex<Option<Active>>,
    receive: Mutex<ReceiveMode>,
}

#[derive(Debug)]
struct Active {
    control: Control,
    interrupt: Arc<dyn Interrupt>,
    /// Wakes the interface's thread.
    event: EventFd,
}

impl Commands {
    /// Starts for an interface with the address `mac`, without settings of the driver.
    pub(super) fn new(mac: Mac) -> Commands {
        Commands { active: Mutex::new(None), receive: Mutex::new(ReceiveMode::new(mac)) }
    }

    /// Returns the driver's settings. No thread waits while holding this lock.
    pub(super) fn receive(&self) -> MutexGuard<'_, ReceiveMode> {
        self.receive.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Serves this queue from now on. `event` wakes the interface's thread.
    pub(super) fn begin(&self, control: Control, interrupt: Arc<dyn Interrupt>, event: EventFd) {
        *self.active() = Some(Active { control, interrupt, event });
    }

    /// Stops serving, and returns the queue.
    pub(super) fn end(&self) -> Option<Queue> {
        self.active().take().map(|active| active.control.into_queue())
    }

    /// Carries out some commands, and leaves deferrable work to the interface's thread. Returns true if the
    /// driver may have more.
    pub(super) fn carry_out(&self) -> bool {
        self.active().as_mut().is_some_and(|active| active.serve(&self.receive).1)
    }

    /// Does the same on a vCPU's thread after a notification by the driver.
    pub(super) fn notified(&self) {
        if let Some(active) = &mut *self.active() {
            let (served, more) = active.serve(&self.receive);
            if served || more {
                // Fails only if the counter is full, and then the event is readable already.
                let _ = active.event.write(1);
            }
        }
    }

    fn active(&self) -> MutexGuard<'_, Option<Active>> {
        self.active.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Active {
    /// Returns whether there was a command, and whether there may be more.
    fn serve(&mut self, receive: &Mutex<ReceiveMode>) -> (bool, bool) {
        let mut receive = receive.lock().unwrap_or_else(PoisonError::into_inner);
        let served = (0..BATCH).take_while(|_| self.control.serve(|command| receive.change(command))).count();
        let more = served == BATCH || self.control.listen();
        self.control.signal(&*self.interrupt);
        (served > 0, more)
    }
}
