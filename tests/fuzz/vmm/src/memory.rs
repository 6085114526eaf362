//! Guest memory of a few pages, each part of it between pages with a mark and pages that nobody may touch.
//!
//! ```text
//!   ┌─ no access ─┬─ mark ─┬─ RAM, 16 pages ─┬─ mark ─┬─ no access ─┬─ mark ─┬─ RAM, 4 pages ─┬─ mark ─┬─ no access ─┐
//! ```
//!
//! A device that goes astray by a little changes a mark, or carries it away; one that goes astray by more ends the process. System
//! calls that are given a wrong address only fail, but they begin at its beginning, and there lies a mark. The mark is another one in
//! each run, so that the fuzzer cannot learn to write it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use vm_memory::{Bytes as _, FileOffset, GuestAddress, GuestRegionMmap, MmapRegion};
use vmm_devices::virtio::GuestMemory;
use vmm_devices::virtio::mem::BLOCK_BYTES;

const PAGE: usize = 4096;

/// Pages around each part of RAM: with a mark, and without access.
const MARKED: usize = 1;
const CLOSED: usize = 16;

/// RAM, as guest-physical address and bytes. There is a gap between the parts.
pub const RAM: [(u64, usize); 2] = [(0, 16 * PAGE), (0x2_0000, 4 * PAGE)];

/// An image, which is read and never written.
pub const IMAGE: (u64, usize) = (0x1000_0000, 4 * PAGE);

/// Room for memory that is plugged.
pub const ROOM: (u64, usize) = (0x40_0000, 3 * BLOCK_BYTES as usize);

/// One part of RAM, mapped for the life of the process.
#[derive(Debug)]
struct Part {
    /// Where the first page with a mark lies in this process.
    start: usize,
    bytes: usize,
}

/// The mappings behind all guest memory; a run has them for itself.
#[derive(Debug)]
pub struct Memory {
    parts: Vec<Part>,
    room: Arc<GuestRegionMmap>,
    image: Arc<GuestRegionMmap>,
    mark: AtomicU64,
}

fn map(bytes: usize, protection: libc::c_int, address: usize) -> usize {
    let fixed = if address == 0 { 0 } else { libc::MAP_FIXED };
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | fixed;
    // SAFETY: a new mapping, or one over a part of a mapping that this module made a moment ago.
    let mapped = unsafe { libc::mmap(address as *mut libc::c_void, bytes, protection, flags, -1, 0) };
    assert_ne!(mapped, libc::MAP_FAILED, "no memory to map");
    mapped as usize
}

impl Part {
    fn new(bytes: usize) -> Part {
        let around = (CLOSED + MARKED) * PAGE;
        let closed = map(bytes + 2 * around, libc::PROT_NONE, 0);
        let start = closed + CLOSED * PAGE;
        map(bytes + 2 * MARKED * PAGE, libc::PROT_READ | libc::PROT_WRITE, start);
        Part { start, bytes }
    }

    fn ram(&self) -> *mut u8 {
        (self.start + MARKED * PAGE) as *mut u8
    }

    /// The pages with marks, as words.
    fn marks(&self) -> impl Iterator<Item = *mut u64> {
        let words = |start: usize| (0..MARKED * PAGE).step_by(8).map(move |at| (start + at) as *mut u64);
        words(self.start).chain(words(self.start + MARKED * PAGE + self.bytes))
    }

    fn region(&self, base: u64) -> GuestRegionMmap {
        let (access, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: the part is mapped with this access and for ever.
        let mapping = unsafe { MmapRegion::build_raw(self.ram(), self.bytes, access, flags) };
        GuestRegionMmap::new(mapping.expect("whole pages"), GuestAddress(base)).expect("no overflow")
    }
}

/// The content of the image at a place, which is of no other use to anybody.
fn image() -> GuestRegionMmap {
    let file = tempfile::tempfile().expect("a file");
    file.set_len(IMAGE.1 as u64).expect("room for an image");
    let mapping =
        MmapRegion::build(Some(FileOffset::new(file, 0)), IMAGE.1, libc::PROT_READ, libc::MAP_SHARED);
    GuestRegionMmap::new(mapping.expect("an image"), GuestAddress(IMAGE.0)).expect("no overflow")
}

fn room() -> GuestRegionMmap {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    let mapping = MmapRegion::build(None, ROOM.1, libc::PROT_READ | libc::PROT_WRITE, flags).expect("room");
    GuestRegionMmap::new(mapping, GuestAddress(ROOM.0)).expect("no overflow")
}

impl Memory {
    /// The memory of this process.
    pub fn get() -> &'static Memory {
        static MEMORY: OnceLock<Memory> = OnceLock::new();
        MEMORY.get_or_init(|| Memory {
            parts: RAM.iter().map(|(_, bytes)| Part::new(*bytes)).collect(),
            room: Arc::new(room()),
            image: Arc::new(image()),
            mark: AtomicU64::new(u64::from(std::process::id()) << 32 | 0x5bd1_e995),
        })
    }

    /// Memory of zeros, with new marks around.
    pub fn renew(&self) -> GuestMemory {
        let mark = self
            .mark
            .load(Ordering::Relaxed)
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        self.mark.store(mark, Ordering::Relaxed);
        for part in &self.parts {
            // SAFETY: the part is mapped, and no device is there that has it.
            unsafe { std::ptr::write_bytes(part.ram(), 0, part.bytes) };
            for word in part.marks() {
                // SAFETY: as above.
                unsafe { word.write_volatile(mark) };
            }
        }
        let ram = self.parts.iter().zip(RAM).map(|(part, (base, _))| part.region(base)).collect();
        let memory = GuestMemory::new(ram).expect("parts do not overlap");
        memory.add_image(self.image.clone()).expect("nothing lies there");
        memory
    }

    /// The room for memory that is plugged.
    pub fn room(&self) -> Arc<GuestRegionMmap> {
        self.room.clone()
    }

    /// The mark of this run, as it lies in memory.
    #[must_use]
    pub fn mark(&self) -> [u8; 8] {
        self.mark.load(Ordering::Relaxed).to_ne_bytes()
    }

    /// Fails where a device has written outside guest memory.
    pub fn check(&self) {
        let mark = self.mark.load(Ordering::Relaxed);
        for part in &self.parts {
            for word in part.marks() {
                // SAFETY: the part is mapped, and all devices have stopped.
                let found = unsafe { word.read_volatile() };
                assert!(found == mark, "a device wrote outside guest memory");
            }
        }
    }

    /// Fails where bytes that left a device come from outside guest memory.
    pub fn check_output(&self, bytes: &[u8]) {
        let mark = self.mark();
        assert!(
            !bytes.windows(mark.len()).any(|window| window == mark),
            "a device read outside guest memory"
        );
    }
}

/// Writes to guest memory as a guest does, where there is memory.
pub fn write(memory: &GuestMemory, address: u64, bytes: &[u8]) {
    let _ = memory.writable().write(bytes, GuestAddress(address));
}
