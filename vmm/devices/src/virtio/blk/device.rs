//! The disk's front end: its features and configuration for the driver, and the life of its worker.

use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use virtio_bindings::virtio_blk as spec;
use virtio_bindings::virtio_config::VIRTIO_F_VERSION_1;
use virtio_bindings::virtio_ids::VIRTIO_ID_BLOCK;
use virtio_bindings::virtio_ring::{VIRTIO_RING_F_EVENT_IDX, VIRTIO_RING_F_INDIRECT_DESC};
use virtio_queue::Queue;

use super::config::config;
use super::full_disks::FullDisks;
use super::request::Limits;
use super::size;
use super::size::Size;
use super::snapshot::BlkSnapshot;
use super::worker::{BlkQueue, BlkWorker};
use crate::virtio::ring::{Faults, Ring};
use crate::virtio::worker::Worker;
use crate::virtio::{Activation, Counts, DeviceError, VirtioDevice, front};

/// The device's name in errors and thread names.
const DEVICE: &str = "blk";

/// Disks made so far, to number their threads.
static COUNT: AtomicU32 = AtomicU32::new(0);

/// A disk.
#[derive(Debug)]
pub struct Blk {
    file: Arc<File>,
    limits: Limits,
    /// The size in sectors. A block device's worker raises it.
    sectors: Arc<AtomicU64>,
    name: String,
    faults: Faults,
    full_disks: FullDisks,
    worker: Option<Worker<Vec<Queue>>>,
}

impl Blk {
    /// Returns a disk with the content of `file`: a regular file or a block device, opened for writing too
    /// unless `read_only`. The capacity is the file's size now, in whole sectors; a block device's capacity
    /// grows with the device. The disk is counted in `full_disks` while the node has no room for the guest's
    /// writes to a regular file.
    pub fn new(file: File, read_only: bool, full_disks: &FullDisks) -> io::Result<Blk> {
        let is_regular = file.metadata()?.is_file();
        Blk::over(file, read_only, is_regular, full_disks)
    }

    pub(super) fn over(
        file: File,
        read_only: bool,
        is_regular: bool,
        full_disks: &FullDisks,
    ) -> io::Result<Blk> {
        let sectors = size::sectors(&file)?;
        Ok(Blk {
            file: Arc::new(file),
            limits: Limits { sectors, read_only, is_regular },
            sectors: Arc::new(AtomicU64::new(sectors)),
            name: format!("{DEVICE}-{}", COUNT.fetch_add(1, Ordering::Relaxed)),
            faults: Faults::default(),
            full_disks: full_disks.clone(),
            worker: None,
        })
    }

    pub(super) fn back_end(&self, activation: Activation) -> Result<BlkWorker, DeviceError> {
        let limits = Limits { sectors: self.sectors.load(Ordering::Acquire), ..self.limits };
        let ([queue], [event]) = front::queues(DEVICE, activation.queues, activation.queue_events)?;
        let ring = Ring::open(DEVICE, queue, &activation.memory, &self.faults)?;
        Ok(BlkWorker {
            queue: Mutex::new(BlkQueue::new(ring, limits, Size::new(self.sectors.clone()))),
            event,
            interrupt: activation.interrupt,
            file: self.file.clone(),
            is_regular: limits.is_regular,
            write_through: activation.features & (1 << spec::VIRTIO_BLK_F_FLUSH) == 0,
            faults: self.faults.clone(),
            full_disks: self.full_disks.clone(),
        })
    }

    fn state(&self) -> BlkSnapshot {
        BlkSnapshot { sectors: self.sectors.load(Ordering::Acquire), read_only: self.limits.read_only }
    }
}

impl VirtioDevice for Blk {
    fn device_id(&self) -> u32 {
        VIRTIO_ID_BLOCK
    }

    fn features(&self) -> u64 {
        let both = 1 << VIRTIO_F_VERSION_1
            | 1 << VIRTIO_RING_F_EVENT_IDX
            | 1 << VIRTIO_RING_F_INDIRECT_DESC
            | 1 << spec::VIRTIO_BLK_F_SIZE_MAX
            | 1 << spec::VIRTIO_BLK_F_SEG_MAX
            | 1 << spec::VIRTIO_BLK_F_BLK_SIZE
            | 1 << spec::VIRTIO_BLK_F_TOPOLOGY
            | 1 << spec::VIRTIO_BLK_F_FLUSH;
        let kind = if self.limits.read_only {
            1 << spec::VIRTIO_BLK_F_RO
        } else {
            1 << spec::VIRTIO_BLK_F_DISCARD | 1 << spec::VIRTIO_BLK_F_WRITE_ZEROES
        };
        both | kind
    }

    fn queue_sizes(&self) -> &[u16] {
        &[256]
    }

    fn uses_queue_event(&self, _index: u16) -> bool {
        true
    }

    fn read_config(&self, offset: u64, data: &mut [u8]) {
        front::read_config(&config(self.sectors.load(Ordering::Acquire)), offset, data);
    }

    fn activate(&mut self, activation: Activation) -> Result<(), DeviceError> {
        self.reset();
        let back_end = self.back_end(activation)?;
        self.worker = Some(Worker::spawn(DEVICE, &self.name, move |stop| back_end.run(stop))?);
        Ok(())
    }

    fn counts(&self) -> Counts {
        self.faults.counts()
    }

    fn request_queues(&self) -> &'static [usize] {
        &[0]
    }

    fn reset(&mut self) {
        self.worker = None;
    }

    fn pause(&mut self) -> Option<Vec<Queue>> {
        self.worker.take().map(Worker::stop)
    }

    fn save(&self) -> serde_json::Value {
        serde_json::json!(self.state())
    }

    fn restore(&mut self, state: &serde_json::Value) -> Result<(), DeviceError> {
        front::check_state(DEVICE, state, &self.state())
    }
}
