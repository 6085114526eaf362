//! The share's front end: its name, and the life of a session.

use virtio_bindings::virtio_config::VIRTIO_F_VERSION_1;
use virtio_bindings::virtio_ids::VIRTIO_ID_FS;
use virtio_bindings::virtio_ring::{VIRTIO_RING_F_EVENT_IDX, VIRTIO_RING_F_INDIRECT_DESC};
use virtio_queue::Queue;

use super::worker::{FsWorker, QUEUES};
use super::{DEVICE, FsSnapshot, ShareLink};
use crate::virtio::ring::{Faults, Ring};
use crate::virtio::worker::Worker;
use crate::virtio::{Activation, Counts, DeviceError, VirtioDevice, front};

/// Bytes of a tag: it fills its field or ends with a NUL (section 5.11.4).
const TAG_BYTES_MAX: usize = 36;

/// A directory of the host as a file system.
#[derive(Debug)]
pub struct Fs {
    tag: String,
    link: ShareLink,
    faults: Faults,
    session: Option<Worker<Vec<Queue>>>,
    /// A pause took the queues away. The next session goes on with the open files.
    paused: bool,
}

impl Fs {
    /// The share at the other end of `link`. Drivers mount it as `tag`.
    pub fn new(tag: &str, link: ShareLink) -> Result<Fs, DeviceError> {
        if tag.is_empty() || tag.len() > TAG_BYTES_MAX || tag.bytes().any(|byte| byte == 0) {
            let message = format!("a tag has 1 to {TAG_BYTES_MAX} bytes, none of them zero; this is {tag:?}");
            return Err(DeviceError { device: DEVICE, message });
        }
        Ok(Fs { tag: tag.to_owned(), link, faults: Faults::default(), session: None, paused: false })
    }

    #[cfg(test)]
    pub(super) fn link(&self) -> &ShareLink {
        &self.link
    }

    fn config(&self) -> [u8; TAG_BYTES_MAX + 4] {
        let mut config = [0; TAG_BYTES_MAX + 4];
        config[..self.tag.len()].copy_from_slice(self.tag.as_bytes());
        // One queue of requests.
        config[TAG_BYTES_MAX..].copy_from_slice(&1u32.to_le_bytes());
        config
    }

    pub(super) fn back_end(&self, activation: Activation) -> Result<FsWorker, DeviceError> {
        let ([urgent, requests], events) =
            front::queues::<QUEUES>(DEVICE, activation.queues, activation.queue_events)?;
        let open = |queue: Queue| Ring::open(DEVICE, queue, &activation.memory, &self.faults);
        let rings = [open(urgent)?, open(requests)?];
        Ok(FsWorker::new(rings, events, activation.interrupt, self.faults.clone()))
    }
}

impl VirtioDevice for Fs {
    fn device_id(&self) -> u32 {
        VIRTIO_ID_FS
    }

    fn features(&self) -> u64 {
        1 << VIRTIO_F_VERSION_1 | 1 << VIRTIO_RING_F_EVENT_IDX | 1 << VIRTIO_RING_F_INDIRECT_DESC
    }

    /// Linux splits requests to fit into the ring: 256 entries are just under 1 MiB of pages.
    fn queue_sizes(&self) -> &[u16] {
        &[64, 256]
    }

    fn uses_queue_event(&self, _index: u16) -> bool {
        true
    }

    fn read_config(&self, offset: u64, data: &mut [u8]) {
        front::read_config(&self.config(), offset, data);
    }

    fn activate(&mut self, activation: Activation) -> Result<(), DeviceError> {
        // One after the other: open files are of one session.
        self.session = None;
        let worker = self.back_end(activation)?;
        let afresh = !std::mem::take(&mut self.paused);
        let link = self.link.clone();
        self.session = Some(Worker::spawn(DEVICE, DEVICE, move |stop| worker.run(&link, afresh, stop))?);
        Ok(())
    }

    fn counts(&self) -> Counts {
        self.faults.counts()
    }

    fn request_queues(&self) -> &'static [usize] {
        &[0, 1]
    }

    fn reset(&mut self) {
        self.session = None;
        self.paused = false;
    }

    fn pause(&mut self) -> Option<Vec<Queue>> {
        let queues = self.session.take()?.stop();
        self.paused = true;
        Some(queues)
    }

    fn save(&self) -> serde_json::Value {
        serde_json::json!(FsSnapshot { tag: self.tag.clone(), mounted: self.link.mounted() })
    }

    /// Refuses a share mounted in the saved VM: its driver holds numbers of files known only to the old
    /// process.
    fn restore(&mut self, state: &serde_json::Value) -> Result<(), DeviceError> {
        front::check_state(DEVICE, state, &FsSnapshot { tag: self.tag.clone(), mounted: false })
    }
}
