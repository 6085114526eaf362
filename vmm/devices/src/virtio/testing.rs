//! A driver for tests. It lays a queue out in memory, offers chains and reads the results.

use std::io;
use std::os::fd::AsRawFd as _;
use std::process::{Child, Command};
use std::sync::atomic::{AtomicU32, Ordering, fence};
use std::sync::{Arc, RwLock, RwLockReadGuard};

use virtio_bindings::virtio_ring::VRING_USED_F_NO_NOTIFY;
use virtio_queue::{Queue, QueueState};
use vm_memory::{Bytes as _, FileOffset, GuestAddress, GuestRegionMmap, MmapRegion};
use vmm_sys_util::eventfd::{EFD_NONBLOCK, EventFd};

use super::chain::{Segment, Segments};
use super::{Activation, GuestMemory, Interrupt, MemoryMap};

pub(crate) const WRITE: u16 = 2;
pub(crate) const INDIRECT: u16 = 4;
pub(crate) const NEXT: u16 = 1;

/// Bytes of memory in tests: rings below 0x10000, buffers above.
pub(crate) const MEMORY: usize = 0x40_0000;

/// Longest wait of a test for a worker, in milliseconds.
const WAIT_MS: i32 = 20_000;

pub(crate) fn memory() -> GuestMemory {
    GuestMemory::new(vec![GuestRegionMmap::from_range(GuestAddress(0), MEMORY, None).unwrap()]).unwrap()
}

/// Returns memory of two adjoining parts: 0 to 0x2000, and up to 0x4000.
pub(crate) fn two_parts() -> Arc<MemoryMap> {
    let region = |base| GuestRegionMmap::from_range(GuestAddress(base), 0x2000, None).unwrap();
    GuestMemory::new(vec![region(0), region(0x2000)]).unwrap().writable()
}

/// A run of buffers, as (address, bytes), to be written to.
pub(crate) fn run(map: &Arc<MemoryMap>, segments: &[(u64, u32)]) -> Segments {
    let mut run = Segments::default();
    for (address, length) in segments {
        run.push(Segment { address: GuestAddress(*address), length: *length }, || map.clone());
    }
    run
}

/// Where [`image`] lies, and its bytes.
pub(crate) const IMAGE: u64 = 1 << 32;
pub(crate) const IMAGE_BYTES: usize = 0x4000;

/// Returns the content of [`image`]. It differs from place to place.
pub(crate) fn image_content() -> Vec<u8> {
    (0..IMAGE_BYTES).map(|at| (at % 251) as u8).collect()
}

/// Adds an image to `memory` as a VM does: a file mapped read-only.
pub(crate) fn image(memory: &GuestMemory) {
    let file = tempfile::tempfile().unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &image_content(), 0).unwrap();
    let file = Some(FileOffset::new(file, 0));
    let mapping = MmapRegion::build(file, IMAGE_BYTES, libc::PROT_READ, libc::MAP_SHARED).unwrap();
    memory.add_image(Arc::new(GuestRegionMmap::new(mapping, GuestAddress(IMAGE)).unwrap())).unwrap();
}

/// Counts interrupts and lets a test wait for one.
#[derive(Debug)]
pub(crate) struct Line(EventFd, AtomicU32);

impl Interrupt for Line {
    fn used_buffer(&self) -> io::Result<()> {
        self.0.write(1)
    }
    fn config_changed(&self, _config: &[u8]) -> io::Result<()> {
        self.1.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }
}

impl Line {
    pub(crate) fn new() -> Arc<Line> {
        Arc::new(Line(EventFd::new(EFD_NONBLOCK).unwrap(), AtomicU32::new(0)))
    }

    /// Waits on an event written elsewhere.
    pub(crate) fn over(event: EventFd) -> Line {
        Line(event, AtomicU32::new(0))
    }

    /// Returns the number of configuration changes reported by the device.
    pub(crate) fn config_changes(&self) -> u32 {
        self.1.load(Ordering::SeqCst)
    }

    /// Interrupts since the last call.
    pub(crate) fn interrupts(&self) -> u64 {
        self.0.read().unwrap_or(0)
    }

    fn wait(&self) {
        let mut poll = libc::pollfd { fd: self.0.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one valid pollfd, as the count says.
        let ready = unsafe { libc::poll(&raw mut poll, 1, WAIT_MS) };
        assert_eq!(ready, 1, "no interrupt came");
        self.0.read().unwrap();
    }
}

/// Held while a process is started.
static STARTS: RwLock<()> = RwLock::new(());

/// Starts a process. It has all descriptors of this process until it runs its program.
pub(crate) fn start(command: &mut Command) -> Child {
    let _starts = STARTS.write().unwrap();
    command.spawn().unwrap()
}

/// For tests of a description's end after its close: no process is started while this is held.
pub(crate) fn no_starts() -> RwLockReadGuard<'static, ()> {
    STARTS.read().unwrap()
}

/// The driver's end of one queue of 64 entries.
#[derive(Debug)]
pub(crate) struct Driver {
    pub(crate) memory: GuestMemory,
    base: u64,
    state: QueueState,
    available: u16,
    free: u16,
    used: u16,
}

impl Driver {
    pub(crate) const SIZE: u16 = 64;

    /// Queue number `index`, with its own place for the rings.
    pub(crate) fn new(memory: &GuestMemory, index: u64) -> Driver {
        Driver::at(memory, 0x1000 + 0x1000 * index)
    }

    /// Returns a queue with its rings at `base`.
    pub(crate) fn at(memory: &GuestMemory, base: u64) -> Driver {
        let state = QueueState {
            max_size: 256,
            size: Self::SIZE,
            ready: true,
            desc_table: base,
            avail_ring: base + 0x400,
            used_ring: base + 0x800,
            ..QueueState::default()
        };
        Driver { memory: memory.clone(), base, state, available: 0, free: 0, used: 0 }
    }

    /// Clears the rings, like a driver setting them up again.
    pub(crate) fn forget(&mut self) {
        self.write(self.base, &[0; 0x1000]);
    }

    pub(crate) fn queue(&self) -> Queue {
        Queue::try_from(self.state).unwrap()
    }

    /// Writes one entry of a descriptor table.
    pub(crate) fn descriptor(&self, table: u64, index: u16, entry: (u64, u32, u16, u16)) {
        let mut bytes = [0; 16];
        bytes[0..8].copy_from_slice(&entry.0.to_le_bytes());
        bytes[8..12].copy_from_slice(&entry.1.to_le_bytes());
        bytes[12..14].copy_from_slice(&entry.2.to_le_bytes());
        bytes[14..16].copy_from_slice(&entry.3.to_le_bytes());
        self.memory.writable().write_slice(&bytes, GuestAddress(table + 16 * u64::from(index))).unwrap();
    }

    pub(crate) fn table(&self) -> u64 {
        self.base
    }

    /// Chains the buffers and makes them available. Returns the head.
    pub(crate) fn put(&mut self, buffers: &[(u64, u32, u16)]) -> u16 {
        let head = self.free;
        for (position, (address, length, flags)) in buffers.iter().enumerate() {
            let next = (self.free + 1) % Self::SIZE;
            let more = if position + 1 < buffers.len() { NEXT } else { 0 };
            self.descriptor(self.base, self.free, (*address, *length, flags | more, next));
            self.free = next;
        }
        self.offer(head);
        head
    }

    /// Makes the chain starting at `head` available.
    pub(crate) fn offer(&mut self, head: u16) {
        let entry = self.base + 0x400 + 4 + 2 * u64::from(self.available % Self::SIZE);
        self.memory.writable().write_obj(head, GuestAddress(entry)).unwrap();
        self.jump(self.available.wrapping_add(1));
    }

    /// Sets the available index, whatever it was.
    pub(crate) fn jump(&mut self, index: u16) {
        self.available = index;
        self.memory.writable().write_obj(index, GuestAddress(self.base + 0x402)).unwrap();
    }

    /// The index of the used ring: how many chains came back so far.
    pub(crate) fn used_index(&self) -> u16 {
        self.memory.writable().load(GuestAddress(self.base + 0x802), Ordering::Acquire).unwrap()
    }

    /// Returns the chains used since the last call: head and bytes written.
    pub(crate) fn take_used(&mut self) -> Vec<(u16, u32)> {
        let index = self.used_index();
        let mut all = Vec::new();
        while self.used != index {
            let entry = self.base + 0x804 + 8 * u64::from(self.used % Self::SIZE);
            let pair: [u32; 2] = self.memory.writable().read_obj(GuestAddress(entry)).unwrap();
            all.push((pair[0] as u16, pair[1]));
            self.used = self.used.wrapping_add(1);
        }
        all
    }

    /// Waits until `count` chains have come back.
    pub(crate) fn wait_used(&mut self, line: &Line, count: usize) -> Vec<(u16, u32)> {
        let mut all = self.take_used();
        while all.len() < count {
            // used_event: interrupt for the next one. Only looked at with EVENT_IDX.
            let event = GuestAddress(self.base + 0x404 + 2 * u64::from(Self::SIZE));
            self.memory.writable().store(self.used, event, Ordering::SeqCst).unwrap();
            fence(Ordering::SeqCst);
            let more = self.take_used();
            if more.is_empty() {
                line.wait();
            }
            all.extend(more);
        }
        all
    }

    /// Returns true if the device wants to be notified of the last offered chain, with EVENT_IDX (virtio 1.2,
    /// section 2.7.10).
    pub(crate) fn wants_kick(&self) -> bool {
        fence(Ordering::SeqCst);
        let event = GuestAddress(self.base + 0x804 + 8 * u64::from(Self::SIZE));
        let event: u16 = self.memory.writable().load(event, Ordering::SeqCst).unwrap();
        event == self.available.wrapping_sub(1)
    }

    /// Whether the device wants to hear of chains, without EVENT_IDX.
    pub(crate) fn wants_kicks(&self) -> bool {
        let flags: u16 =
            self.memory.writable().load(GuestAddress(self.state.used_ring), Ordering::SeqCst).unwrap();
        flags & VRING_USED_F_NO_NOTIFY as u16 == 0
    }

    /// The queue with EVENT_IDX.
    pub(crate) fn queue_with_events(&self) -> Queue {
        Queue::try_from(QueueState { event_idx_enabled: true, ..self.state }).unwrap()
    }

    pub(crate) fn write(&self, address: u64, data: &[u8]) {
        self.memory.writable().write_slice(data, GuestAddress(address)).unwrap();
    }

    pub(crate) fn read<const N: usize>(&self, address: u64) -> [u8; N] {
        let mut data = [0; N];
        self.memory.writable().read_slice(&mut data, GuestAddress(address)).unwrap();
        data
    }
}

/// An activation of a device, and the events for its queues' notifications.
pub(crate) fn activation(
    memory: &GuestMemory,
    queues: Vec<Queue>,
    line: &Arc<Line>,
    features: u64,
) -> (Activation, Vec<EventFd>) {
    let kicks: Vec<EventFd> = queues.iter().map(|_| EventFd::new(EFD_NONBLOCK).unwrap()).collect();
    let activation = Activation {
        memory: memory.clone(),
        queues,
        queue_events: kicks.iter().map(|kick| kick.try_clone().unwrap()).collect(),
        interrupt: line.clone(),
        features,
    };
    (activation, kicks)
}

/// Random entries for a table of [`Driver::SIZE`]: mostly plausible, so parsers get far.
pub(crate) fn entries() -> impl proptest::strategy::Strategy<Value = Vec<(u64, u32, u16, u16)>> {
    use proptest::prelude::*;
    let address = prop_oneof![
        8 => 0x1_0000u64..0x3f_0000,
        1 => (MEMORY as u64 - 64)..(MEMORY as u64 + 64),
        1 => 0u64..0x1_0000,
        1 => any::<u64>()
    ];
    let length = prop_oneof![6 => 0u32..64, 3 => 0u32..0x2000, 1 => any::<u32>()];
    let flags = prop_oneof![8 => 0u16..4, 1 => any::<u16>()];
    proptest::collection::vec((address, length, flags, heads()), usize::from(Driver::SIZE))
}

/// A number of an entry: mostly one of the first, so chains meet, and now and then one beyond the table.
pub(crate) fn heads() -> impl proptest::strategy::Strategy<Value = u16> {
    use proptest::prelude::*;
    prop_oneof![8 => 0u16..16, 1 => 0..Driver::SIZE + 2]
}
