//! The balloon: its front end, and everything behind it.

use std::sync::Arc;

use virtio_bindings::virtio_config::VIRTIO_F_VERSION_1;
use virtio_queue::Queue;

use super::snapshot::BalloonSnapshot;
use super::{REPORT_BYTES_MAX, RUNS_MAX};
use crate::virtio::chain::Chain;
use crate::virtio::free_pages::FreePages;
use crate::virtio::ring::{Faults, Ring, Taken};
use crate::virtio::{Activation, Counts, DeviceError, Interrupt, VirtioDevice, front};

/// The device's name in errors.
const DEVICE: &str = "balloon";

/// Device ID of a balloon (virtio 1.2, section 5).
const DEVICE_ID: u32 = 5;

/// VIRTIO_BALLOON_F_REPORTING. We do not offer VIRTIO_BALLOON_F_PAGE_POISON. Without it, a driver does not
/// enable reporting if its kernel relies on the content of free pages (`virtballoon_validate`). So pages may
/// come back with any content.
const REPORTING: u32 = 5;

/// The queue of reports. In the standard it comes after two others with their own features. Drivers and
/// devices leave out missing queues (`vm_find_vqs`, drivers/virtio/virtio_mmio.c).
const REPORTS: u16 = 2;

/// Bytes of the configuration space without poison: the requested and the actual number of pages in the
/// balloon. Both are always 0.
const CONFIG_BYTES: usize = 8;

/// A balloon for reports of free pages only. It is never filled.
#[derive(Debug, Default)]
pub struct Balloon {
    faults: Faults,
    free_pages: FreePages,
    active: Option<Active>,
}

#[derive(Debug)]
struct Active {
    /// Unserved queues, in order.
    idle: Vec<Queue>,
    /// `None` if the driver did not take reporting.
    reports: Option<Ring>,
    interrupt: Arc<dyn Interrupt>,
    chain: Chain,
}

impl Balloon {
    /// An empty balloon.
    pub fn new() -> Balloon {
        Balloon::default()
    }

    fn serve(&mut self) {
        let Some(Active { reports: Some(ring), interrupt, chain, .. }) = &mut self.active else { return };
        // At most the queue's size: notifications are never muted, so the driver notifies us if it has added
        // more meanwhile.
        for _ in 0..ring.size() {
            let Some(taken) = ring.take(chain) else { break };
            if !give_back(&mut self.free_pages, chain, taken) && taken.fault.is_none() {
                self.faults.count();
            }
            ring.complete(taken, 0);
            ring.signal(&**interrupt);
        }
    }
}

/// Gives back the reported pages, up to the bounds. Returns true if the report was valid.
fn give_back(free_pages: &mut FreePages, chain: &mut Chain, taken: Taken) -> bool {
    // Nothing in a faulty chain is trusted.
    if taken.fault.is_some() || chain.writable.bytes() == 0 {
        return false;
    }
    chain.writable.truncate(REPORT_BYTES_MAX);
    let Some(map) = chain.writable.map() else { return false };
    // The host keeps refused pages, so the guest loses nothing.
    free_pages.give_back(map, chain.writable.iter().take(usize::from(RUNS_MAX))).is_ok()
}

impl VirtioDevice for Balloon {
    fn device_id(&self) -> u32 {
        DEVICE_ID
    }

    fn features(&self) -> u64 {
        1 << VIRTIO_F_VERSION_1 | 1 << REPORTING
    }

    fn queue_sizes(&self) -> &[u16] {
        // For inflating, deflating, reports. A Linux driver needs room for a whole report.
        &[16, 16, RUNS_MAX]
    }

    fn uses_queue_event(&self, _index: u16) -> bool {
        false
    }

    fn read_config(&self, offset: u64, data: &mut [u8]) {
        front::read_config(&[0; CONFIG_BYTES], offset, data);
    }

    fn activate(&mut self, activation: Activation) -> Result<(), DeviceError> {
        let Activation { memory, queues, queue_events, interrupt, features } = activation;
        let (queues, _events) = front::queues::<{ REPORTS as usize + 1 }>(DEVICE, queues, queue_events)?;
        let mut idle = Vec::from(queues);
        let taken = (features & 1 << REPORTING != 0).then(|| idle.pop()).flatten();
        let reports = taken.map(|queue| Ring::open(DEVICE, queue, &memory, &self.faults)).transpose()?;
        self.active = Some(Active { idle, reports, interrupt, chain: Chain::default() });
        // Reports from before a pause are answered after it.
        self.serve();
        Ok(())
    }

    fn notify(&mut self, index: u16) {
        if index == REPORTS {
            self.serve();
        }
    }

    fn counts(&self) -> Counts {
        self.faults.counts()
    }

    fn reset(&mut self) {
        self.active = None;
    }

    fn pause(&mut self) -> Option<Vec<Queue>> {
        let Active { mut idle, reports, .. } = self.active.take()?;
        idle.extend(reports.map(Ring::into_queue));
        Some(idle)
    }

    fn save(&self) -> serde_json::Value {
        serde_json::json!(BalloonSnapshot {})
    }

    fn restore(&mut self, state: &serde_json::Value) -> Result<(), DeviceError> {
        front::check_state(DEVICE, state, &BalloonSnapshot {})
    }
}
