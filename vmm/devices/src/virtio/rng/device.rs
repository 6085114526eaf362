//! The entropy device: its front end, and everything behind it.

use std::sync::Arc;

use virtio_bindings::virtio_config::VIRTIO_F_VERSION_1;
use virtio_queue::Queue;

use super::request::gather;
use super::snapshot::RngSnapshot;
use crate::virtio::chain::Chain;
use crate::virtio::iovec::Iovecs;
use crate::virtio::ring::{Faults, Ring};
use crate::virtio::{Activation, Counts, DeviceError, Interrupt, VirtioDevice, front};

/// The device's name in errors.
const DEVICE: &str = "rng";

/// Device ID of an entropy source (virtio 1.2, section 5).
const DEVICE_ID: u32 = 4;

/// A source of random bytes.
#[derive(Debug, Default)]
pub struct Rng {
    faults: Faults,
    active: Option<Active>,
}

#[derive(Debug)]
struct Active {
    ring: Ring,
    interrupt: Arc<dyn Interrupt>,
    chain: Chain,
    iovecs: Iovecs,
}

impl Rng {
    /// Returns a source of the host kernel's random bytes.
    pub fn new() -> Rng {
        Rng::default()
    }

    fn serve(&mut self) {
        let Some(Active { ring, interrupt, chain, iovecs }) = &mut self.active else { return };
        // At most the queue's size: notifications are never muted, so the driver notifies us if it has added
        // more meanwhile.
        for _ in 0..ring.size() {
            let Some(taken) = ring.take(chain) else { break };
            let drawn = gather(chain, taken.fault, iovecs).and_then(|buffers| buffers.fill_random().ok());
            if drawn.is_none() && taken.fault.is_none() {
                self.faults.count();
            }
            let written = drawn.and_then(|bytes| u32::try_from(bytes).ok());
            ring.complete(taken, written.unwrap_or(0));
            ring.signal(&**interrupt);
        }
    }
}

impl VirtioDevice for Rng {
    fn device_id(&self) -> u32 {
        DEVICE_ID
    }

    fn features(&self) -> u64 {
        1 << VIRTIO_F_VERSION_1
    }

    fn queue_sizes(&self) -> &[u16] {
        &[16]
    }

    fn uses_queue_event(&self, _index: u16) -> bool {
        false
    }

    fn read_config(&self, offset: u64, data: &mut [u8]) {
        front::read_config(&[], offset, data);
    }

    fn activate(&mut self, activation: Activation) -> Result<(), DeviceError> {
        let Activation { memory, queues, queue_events, interrupt, .. } = activation;
        let ([queue], [_event]) = front::queues(DEVICE, queues, queue_events)?;
        let ring = Ring::open(DEVICE, queue, &memory, &self.faults)?;
        self.active = Some(Active { ring, interrupt, chain: Chain::default(), iovecs: Iovecs::default() });
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
        serde_json::json!(RngSnapshot {})
    }

    fn restore(&mut self, state: &serde_json::Value) -> Result<(), DeviceError> {
        front::check_state(DEVICE, state, &RngSnapshot {})
    }
}
