//! The region: its front end, and everything behind it.

use std::sync::Arc;

use virtio_bindings::virtio_config::VIRTIO_F_VERSION_1;
use virtio_queue::Queue;

use super::request::answer;
use super::snapshot::PmemSnapshot;
use crate::virtio::chain::Chain;
use crate::virtio::ring::{Faults, Ring};
use crate::virtio::{Activation, Counts, DeviceError, Interrupt, VirtioDevice, front};

/// The device's name in errors.
const DEVICE: &str = "pmem";

/// Device ID of pmem (virtio 1.2, section 5).
const DEVICE_ID: u32 = 27;

/// A read-only region of guest-physical memory.
#[derive(Debug)]
pub struct Pmem {
    place: PmemSnapshot,
    faults: Faults,
    active: Option<Active>,
}

#[derive(Debug)]
struct Active {
    ring: Ring,
    interrupt: Arc<dyn Interrupt>,
    chain: Chain,
}

impl Pmem {
    /// Returns a region of `length` bytes at `guest_base`. The VM has mapped the file there. Linux needs both
    /// to be multiples of 2 MiB for DAX.
    pub fn new(guest_base: u64, length: u64) -> Pmem {
        Pmem { place: PmemSnapshot { guest_base, length }, faults: Faults::default(), active: None }
    }

    fn serve(&mut self) {
        let Some(Active { ring, interrupt, chain }) = &mut self.active else { return };
        // At most the queue's size: notifications are never muted, so the driver notifies us if it has added
        // more meanwhile.
        for _ in 0..ring.size() {
            let Some(taken) = ring.take(chain) else { break };
            let written = answer(chain, taken.fault);
            if written.is_none() && taken.fault.is_none() {
                self.faults.count();
            }
            ring.complete(taken, written.unwrap_or(0));
            ring.signal(&**interrupt);
        }
    }
}

impl VirtioDevice for Pmem {
    fn device_id(&self) -> u32 {
        DEVICE_ID
    }

    fn features(&self) -> u64 {
        1 << VIRTIO_F_VERSION_1
    }

    fn queue_sizes(&self) -> &[u16] {
        &[64]
    }

    fn uses_queue_event(&self, _index: u16) -> bool {
        false
    }

    fn read_config(&self, offset: u64, data: &mut [u8]) {
        let mut config = [0; 16];
        config[..8].copy_from_slice(&self.place.guest_base.to_le_bytes());
        config[8..].copy_from_slice(&self.place.length.to_le_bytes());
        front::read_config(&config, offset, data);
    }

    fn activate(&mut self, activation: Activation) -> Result<(), DeviceError> {
        let Activation { memory, queues, queue_events, interrupt, .. } = activation;
        let ([queue], [_event]) = front::queues(DEVICE, queues, queue_events)?;
        let ring = Ring::open(DEVICE, queue, &memory, &self.faults)?;
        self.active = Some(Active { ring, interrupt, chain: Chain::default() });
        // Requests from before a pause are answered after it.
        self.serve();
        Ok(())
    }

    fn notify(&mut self, _index: u16) {
        self.serve();
    }

    fn counts(&self) -> Counts {
        self.faults.counts()
    }

    fn reset(&mut self) {
        self.active = None;
    }

    fn pause(&mut self) -> Option<Vec<Queue>> {
        self.active.take().map(|active| vec![active.ring.into_queue()])
    }

    fn save(&self) -> serde_json::Value {
        serde_json::json!(self.place)
    }

    fn restore(&mut self, state: &serde_json::Value) -> Result<(), DeviceError> {
        front::check_state(DEVICE, state, &self.place)
    }
}
