//! The memory device's front end.

use std::sync::Arc;

use nix::sys::eventfd::EventFd;
use serde::Deserialize as _;
use virtio_bindings::virtio_config::VIRTIO_F_VERSION_1;
use virtio_queue::Queue;
use vm_memory::GuestRegionMmap;

use super::region::{MemHandle, Region};
use super::request;
use super::snapshot::MemSnapshot;
use crate::virtio::chain::Chain;
use crate::virtio::ring::{Faults, Ring};
use crate::virtio::{Activation, Counts, DeviceError, GuestMemory, VirtioDevice, front};

/// The device's name in errors.
const DEVICE: &str = "mem";

/// Device ID of a memory device (virtio 1.2, section 5).
const DEVICE_ID: u32 = 24;

/// VIRTIO_MEM_F_UNPLUGGED_INACCESSIBLE: the driver does not access unplugged memory.
const UNPLUGGED_INACCESSIBLE: u32 = 1;

/// Memory to plug.
#[derive(Debug)]
pub struct Mem {
    region: Arc<Region>,
    faults: Faults,
    active: Option<Active>,
}

#[derive(Debug)]
struct Active {
    ring: Ring,
    chain: Chain,
}

impl Mem {
    /// Returns a device over `room`. Its address and length are multiples of [`BLOCK_BYTES`], and nothing of
    /// it is plugged or requested. `memory` has the plugged parts. `settled` is written when the requested
    /// size is reached.
    pub fn new(room: Arc<GuestRegionMmap>, memory: GuestMemory, settled: Arc<EventFd>) -> Mem {
        let region = Arc::new(Region::new(room, memory, settled));
        Mem { region, faults: Faults::default(), active: None }
    }

    /// Returns the VM's handle of the device.
    pub fn handle(&self) -> MemHandle {
        MemHandle(Arc::clone(&self.region))
    }

    fn serve(&mut self) {
        let Some(Active { ring, chain }) = &mut self.active else { return };
        // At most the queue's size: notifications are never muted, so the driver notifies us if it has added
        // more meanwhile.
        for _ in 0..ring.size() {
            let Some(taken) = ring.take(chain) else { break };
            let written = request::read(chain, taken.fault)
                .and_then(|request| request::write(chain, self.region.serve(request)));
            if written.is_none() && taken.fault.is_none() {
                self.faults.count();
            }
            ring.complete(taken, written.unwrap_or(0));
            let interrupt = self.region.book().interrupt.clone();
            if let Some(interrupt) = interrupt {
                ring.signal(&*interrupt);
            }
        }
    }
}

impl VirtioDevice for Mem {
    fn device_id(&self) -> u32 {
        DEVICE_ID
    }

    fn features(&self) -> u64 {
        1 << VIRTIO_F_VERSION_1 | 1 << UNPLUGGED_INACCESSIBLE
    }

    fn queue_sizes(&self) -> &[u16] {
        &[16]
    }

    fn uses_queue_event(&self, _index: u16) -> bool {
        false
    }

    fn read_config(&self, offset: u64, data: &mut [u8]) {
        front::read_config(&self.region.book().config(&self.region), offset, data);
    }

    fn activate(&mut self, activation: Activation) -> Result<(), DeviceError> {
        let Activation { memory, queues, queue_events, interrupt, .. } = activation;
        let ([queue], [_event]) = front::queues(DEVICE, queues, queue_events)?;
        let ring = Ring::open(DEVICE, queue, &memory, &self.faults)?;
        self.active = Some(Active { ring, chain: Chain::default() });
        self.region.book().interrupt = Some(interrupt);
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

    /// Plugged blocks stay plugged, and a returning driver finds them so (virtio 1.2, section 5.15.5).
    fn reset(&mut self) {
        self.active = None;
        self.region.book().interrupt = None;
    }

    fn pause(&mut self) -> Option<Vec<Queue>> {
        self.region.book().interrupt = None;
        self.active.take().map(|active| vec![active.ring.into_queue()])
    }

    fn save(&self) -> serde_json::Value {
        serde_json::json!(self.region.save())
    }

    fn restore(&mut self, state: &serde_json::Value) -> Result<(), DeviceError> {
        let malformed =
            |error| DeviceError { device: DEVICE, message: format!("the saved state is malformed: {error}") };
        self.region.restore(&MemSnapshot::deserialize(state).map_err(malformed)?)
    }
}
