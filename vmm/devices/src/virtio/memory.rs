//! Guest memory as devices reach it: the addresses open to their writes and to their reads, at a moment.
//!
//! ```text
//!              RAM      plugged blocks     images (pmem windows)
//!   writable    ×             ×
//!   readable    ×             ×                    ×
//! ```
//!
//! Memory never plugged, or unplugged, is in neither map. A byte written there would take a large page of the
//! host without being part of the pod's memory. Images are readable: a guest writes a page of an image to a
//! disk or to a socket without copying it first.
//!
//! A [`MemoryMap`] never changes. A change makes new maps, and the holder of an old one keeps its mappings
//! until it lets go. So no address goes stale during a request. A device holds a map for one request, or
//! checks that it is the current one ([`GuestMemory::changes`]).

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockWriteGuard};

use vm_memory::{
    GuestAddress, GuestMemory as _, GuestMemoryMmap, GuestMemoryRegion as _, GuestRegionMmap,
    MemoryRegionAddress, MmapRegion,
};

/// Most parts of a map besides RAM and images: runs of plugged blocks. A driver plugging from one end needs
/// one. A driver giving back any free blocks needs some hundred. Each costs a search a step and the host 110
/// bytes.
pub(crate) const RUNS_MAX: usize = 4096;

/// Parts of guest memory overlap, or there are too many.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("guest memory cannot have this part at {base:#x}")]
pub struct MemoryPartError {
    /// Guest-physical address of the part.
    pub base: u64,
}

/// Addresses at a moment, with the mappings behind them.
#[derive(Debug)]
pub struct MemoryMap {
    regions: GuestMemoryMmap,
    /// The regions, in ascending order.
    parts: Vec<Arc<GuestRegionMmap>>,
    /// The mapping around the plugged blocks.
    _room: Option<Arc<GuestRegionMmap>>,
}

impl Deref for MemoryMap {
    type Target = GuestMemoryMmap;

    fn deref(&self) -> &GuestMemoryMmap {
        &self.regions
    }
}

impl MemoryMap {
    /// Returns the part with these bytes, and their offset in it. Returns `None` if no single part has them
    /// all.
    #[inline]
    pub(super) fn part(
        &self,
        address: GuestAddress,
        bytes: usize,
    ) -> Option<(&Arc<GuestRegionMmap>, MemoryRegionAddress)> {
        let behind = self.parts.partition_point(|part| part.start_addr() <= address);
        let part = self.parts.get(behind.checked_sub(1)?)?;
        let offset = address.0 - part.start_addr().0;
        let end = offset.checked_add(bytes as u64)?;
        (end <= part.len()).then_some((part, MemoryRegionAddress(offset)))
    }

    /// Returns true if these bytes are in the map, in one part or in several consecutive ones.
    #[inline]
    pub(super) fn has(&self, address: GuestAddress, bytes: usize) -> bool {
        self.part(address, bytes).is_some() || self.regions.check_range(address, bytes)
    }
}

/// Guest memory, shared by all devices and vCPUs of a VM; clones are the same memory.
#[derive(Clone, Debug)]
pub struct GuestMemory(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    maps: RwLock<Maps>,
    /// Number of changes of the writable map.
    changes: AtomicU64,
}

#[derive(Debug)]
struct Maps {
    ram: Vec<Arc<GuestRegionMmap>>,
    plugged: Vec<Arc<GuestRegionMmap>>,
    room: Option<Arc<GuestRegionMmap>>,
    /// By guest-physical address.
    images: BTreeMap<u64, Arc<GuestRegionMmap>>,
    writable: Arc<MemoryMap>,
    readable: Arc<MemoryMap>,
}

impl GuestMemory {
    /// Starts with RAM only. It must be in ascending order and without overlaps.
    ///
    /// # Errors
    /// There is none, or its parts overlap.
    pub fn new(ram: Vec<GuestRegionMmap>) -> Result<GuestMemory, MemoryPartError> {
        let ram: Vec<_> = ram.into_iter().map(Arc::new).collect();
        let map = map(ram.clone(), None)?;
        let maps = Maps {
            ram,
            plugged: Vec::new(),
            room: None,
            images: BTreeMap::new(),
            writable: map.clone(),
            readable: map,
        };
        Ok(GuestMemory(Arc::new(Shared { maps: RwLock::new(maps), changes: AtomicU64::new(0) })))
    }

    /// Returns the map of the memory now open to devices for writing, and for reading.
    pub fn writable(&self) -> Arc<MemoryMap> {
        self.0.maps.read().unwrap_or_else(PoisonError::into_inner).writable.clone()
    }

    /// Returns the map of the memory now readable by devices: all writable memory, and images. Callers let go
    /// of it soon, because an unplugged image stays open for as long.
    pub fn readable(&self) -> Arc<MemoryMap> {
        self.0.maps.read().unwrap_or_else(PoisonError::into_inner).readable.clone()
    }

    /// Returns the number of changes of the writable map.
    pub fn changes(&self) -> u64 {
        self.0.changes.load(Ordering::Acquire)
    }

    /// Lets devices read `image`. It is mapped read-only.
    ///
    /// # Errors
    /// Something else lies there.
    pub fn add_image(&self, image: Arc<GuestRegionMmap>) -> Result<(), MemoryPartError> {
        let base = image.start_addr().0;
        let mut maps = self.lock();
        if maps.images.contains_key(&base) {
            return Err(MemoryPartError { base });
        }
        maps.images.insert(base, image);
        let added = maps.renew_readable().map_err(|_| MemoryPartError { base });
        if added.is_err() {
            maps.images.remove(&base);
        }
        added
    }

    /// Ends the devices' access to the image at `base`. Only requests in progress can still read it.
    pub fn remove_image(&self, base: u64) {
        let mut maps = self.lock();
        if maps.images.remove(&base).is_some() {
            // The parts did not overlap before, so they do not overlap with one less.
            let _ = maps.renew_readable();
        }
    }

    /// Lets devices reach exactly these parts of `room`, as (offset, length) in ascending order.
    ///
    /// # Errors
    /// A part does not lie in `room`, there are more than [`RUNS_MAX`], or something else lies there. Then
    /// nothing changes.
    pub(crate) fn set_plugged(
        &self,
        room: &Arc<GuestRegionMmap>,
        runs: &[(u64, u64)],
    ) -> Result<(), MemoryPartError> {
        if runs.len() > RUNS_MAX {
            return Err(MemoryPartError { base: room.start_addr().0 });
        }
        let plugged = runs.iter().map(|run| part(room, *run)).collect::<Result<Vec<_>, _>>()?;
        let mut maps = self.lock();
        let old = (std::mem::replace(&mut maps.plugged, plugged), maps.room.replace(room.clone()));
        let renewed = maps.renew();
        if renewed.is_err() {
            (maps.plugged, maps.room) = old;
        }
        // While the lock is held: a reader of the new number finds the new map.
        self.0.changes.fetch_add(1, Ordering::Release);
        renewed
    }

    fn lock(&self) -> RwLockWriteGuard<'_, Maps> {
        self.0.maps.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Maps {
    /// Makes both maps again. On an error both stay.
    fn renew(&mut self) -> Result<(), MemoryPartError> {
        let writable = map(self.memory(), self.room.clone())?;
        let before = std::mem::replace(&mut self.writable, writable);
        let renewed = self.renew_readable();
        if renewed.is_err() {
            self.writable = before;
        }
        renewed
    }

    fn renew_readable(&mut self) -> Result<(), MemoryPartError> {
        let images = self.images.values().cloned();
        self.readable = map(self.memory().into_iter().chain(images).collect(), self.room.clone())?;
        Ok(())
    }

    fn memory(&self) -> Vec<Arc<GuestRegionMmap>> {
        self.ram.iter().chain(&self.plugged).cloned().collect()
    }
}

/// Returns the map of `regions`, in any order.
fn map(
    mut regions: Vec<Arc<GuestRegionMmap>>,
    room: Option<Arc<GuestRegionMmap>>,
) -> Result<Arc<MemoryMap>, MemoryPartError> {
    regions.sort_by_key(|region| region.start_addr());
    let base = regions.last().map_or(0, |region| region.start_addr().0);
    let parts = regions.clone();
    let regions = GuestMemoryMmap::from_arc_regions(regions).map_err(|_| MemoryPartError { base })?;
    Ok(Arc::new(MemoryMap { regions, parts, _room: room }))
}

/// The protection of plugged memory. The room was mapped without access, and is opened before a guest plugs a
/// part.
const PLUGGED: libc::c_int = libc::PROT_READ | libc::PROT_WRITE;

/// Returns a part of `room` as its own region. It must not outlive the room: a [`MemoryMap`] keeps both.
fn part(
    room: &GuestRegionMmap,
    (offset, length): (u64, u64),
) -> Result<Arc<GuestRegionMmap>, MemoryPartError> {
    let base = room.start_addr().0.saturating_add(offset);
    let outside = MemoryPartError { base };
    if length == 0 || offset.checked_add(length).is_none_or(|end| end > room.len()) {
        return Err(outside);
    }
    let (start, size) = (usize::try_from(offset), usize::try_from(length));
    let (Ok(start), Ok(size)) = (start, size) else { return Err(outside) };
    let address = room.as_ptr().wrapping_add(start);
    // SAFETY: `address` and the `size` bytes behind it lie in the room's mapping. It is not unmapped with
    // this region, but by the room, and the map holds a reference to the room beside it.
    let mapping = unsafe { MmapRegion::build_raw(address, size, PLUGGED, room.flags()) };
    let region = mapping.ok().and_then(|mapping| GuestRegionMmap::new(mapping, GuestAddress(base)));
    region.map(Arc::new).ok_or(outside)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use vm_memory::Bytes as _;

    use super::*;

    const ROOM: u64 = 0x10_0000;
    const ROOM_BYTES: u64 = 0x1_0000;
    const IMAGE: u64 = 0x20_0000;

    fn region(base: u64, bytes: u64) -> GuestRegionMmap {
        GuestRegionMmap::from_range(GuestAddress(base), bytes as usize, None).unwrap()
    }

    fn memory() -> GuestMemory {
        GuestMemory::new(vec![region(0, 0x1_0000)]).unwrap()
    }

    fn has(map: &MemoryMap, base: u64, bytes: u64) -> bool {
        map.check_range(GuestAddress(base), bytes as usize)
    }

    #[test]
    fn what_is_not_plugged_is_not_there_and_what_was_unplugged_is_gone() {
        let (memory, room) = (memory(), Arc::new(region(ROOM, ROOM_BYTES)));
        assert!(!has(&memory.writable(), ROOM, 1) && !has(&memory.readable(), ROOM, 1));
        memory.set_plugged(&room, &[(0x1000, 0x2000), (0x8000, 0x1000)]).unwrap();
        for map in [memory.writable(), memory.readable()] {
            assert!(has(&map, ROOM + 0x1000, 0x2000) && has(&map, ROOM + 0x8000, 0x1000));
            assert!(!has(&map, ROOM + 0xfff, 1) && !has(&map, ROOM + 0x1000, 0x2001));
        }
        let before = memory.changes();
        memory.set_plugged(&room, &[(0x8000, 0x1000)]).unwrap();
        assert!(memory.changes() > before);
        assert!(!has(&memory.writable(), ROOM + 0x1000, 1) && !has(&memory.readable(), ROOM + 0x1000, 1));
    }

    #[test]
    fn a_map_that_is_held_keeps_its_mappings() {
        let (memory, room) = (memory(), Arc::new(region(ROOM, ROOM_BYTES)));
        memory.set_plugged(&room, &[(0, 0x1000)]).unwrap();
        let held = memory.writable();
        memory.set_plugged(&room, &[]).unwrap();
        drop((memory, room));
        held.write_obj(7u32, GuestAddress(ROOM)).unwrap();
        assert_eq!(held.read_obj::<u32>(GuestAddress(ROOM)).unwrap(), 7);
    }

    #[test]
    fn images_are_read_and_never_written() {
        let memory = memory();
        memory.add_image(Arc::new(region(IMAGE, 0x1000))).unwrap();
        assert!(has(&memory.readable(), IMAGE, 0x1000) && !has(&memory.writable(), IMAGE, 1));
        assert_eq!(memory.add_image(Arc::new(region(IMAGE, 0x1000))), Err(MemoryPartError { base: IMAGE }));
        let over = Arc::new(region(IMAGE + 0x800, 0x1000));
        assert!(memory.add_image(over).is_err());
        memory.remove_image(IMAGE + 0x800);
        assert!(has(&memory.readable(), IMAGE, 0x1000));
        memory.remove_image(IMAGE);
        assert!(!has(&memory.readable(), IMAGE, 1));
    }

    #[test]
    fn parts_beyond_the_room_or_too_many_change_nothing() {
        let (memory, room) = (memory(), Arc::new(region(ROOM, ROOM_BYTES)));
        memory.set_plugged(&room, &[(0, 0x1000)]).unwrap();
        let many = vec![(0x2000, 1); RUNS_MAX + 1];
        for runs in
            [&[(0xf000, 0x1001)][..], &[(u64::MAX, 2)], &[(0, 0)], &[(0, 0x2000), (0x1000, 1)], &many[..]]
        {
            assert!(memory.set_plugged(&room, runs).is_err());
            assert!(has(&memory.writable(), ROOM, 0x1000) && !has(&memory.writable(), ROOM + 0x1000, 1));
        }
    }

    proptest! {
        #[test]
        fn a_byte_is_reached_if_and_only_if_its_block_is_plugged(
            steps in proptest::collection::vec(proptest::collection::vec(any::<bool>(), 16), 1..8),
        ) {
            let (memory, room) = (memory(), Arc::new(region(ROOM, ROOM_BYTES)));
            for plugged in steps {
                let runs: Vec<_> = (0u64..)
                    .zip(&plugged)
                    .filter(|(_, plugged)| **plugged)
                    .map(|(block, _)| (block * 0x1000, 0x1000))
                    .collect();
                memory.set_plugged(&room, &runs).unwrap();
                let (writable, readable) = (memory.writable(), memory.readable());
                for (block, plugged) in (0u64..).zip(&plugged) {
                    for place in [0, 0xfff] {
                        let address = ROOM + block * 0x1000 + place;
                        prop_assert_eq!(has(&writable, address, 1), *plugged);
                        prop_assert_eq!(has(&readable, address, 1), *plugged);
                    }
                }
            }
        }
    }
}
