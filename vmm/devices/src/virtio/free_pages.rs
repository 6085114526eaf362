//! Gives the memory behind the guest's unused pages back to the host. Only this module decides how, depending
//! on the memory's backing. Images are never touched.
//!
//! | behind the pages | how | content later |
//! |---|---|---|
//! | anonymous memory | `MADV_DONTNEED`, and torn large pages are split | zeros |
//! | a private mapping of a file | `MADV_DONTNEED` | the file's content |
//!
//! RAM is also anonymous where a template's file has no data for whole large pages.
//!
//! RAM is in large pages of the host. If a large page has lost a part, it stays whole in the host's memory
//! until the host is short of it, and khugepaged would fill the gap with zeros again within minutes. So it is
//! split at once (`MADV_COLD` on it does this, `madvise_cold_or_pageout_pte_range` of the kernel's
//! mm/madvise.c). From then on it has small pages (`MADV_NOHUGEPAGE`), until it is given back as a whole. Its
//! neighbours are not like it, so it costs the host mappings, and their number is bounded. All calls except
//! `MADV_DONTNEED` are advice: a host loses nothing by refusing them.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use rustix::fs::SeekFrom;
use vm_memory::{GuestMemory as _, GuestMemoryRegion as _, GuestRegionMmap};

use super::MemoryMap;
use super::chain::Segment;

/// The host's pages, in bytes. Memory is given back in whole pages.
const PAGE: usize = 4096;

/// The host's large pages, in bytes. Advice splits a region of RAM at most at their borders.
const LARGE_PAGE: usize = 2 << 20;

/// Most large pages of a VM with small pages by advice. Each adds at most two mappings to the process, and
/// the host allows 65,530 by default (`vm.max_map_count`). A VM with more torn large pages keeps what they
/// lost in the host's memory until the host is short of it.
const SMALL_MAX: usize = 16_384;

/// A VM's memory as far as it has been given back. It lasts as long as the memory.
#[derive(Debug, Default)]
pub(crate) struct FreePages {
    /// Large pages with small pages by advice, by their address in this process.
    small: BTreeSet<usize>,
}

impl FreePages {
    /// Gives the memory behind these runs back to the host, as far as they are whole pages open to device
    /// writes.
    ///
    /// # Errors
    /// A run does not lie in the map, an image is among them, or the host's kernel refuses. The runs before
    /// have been given back.
    pub(crate) fn give_back(
        &mut self,
        map: &MemoryMap,
        runs: impl Iterator<Item = Segment>,
    ) -> io::Result<()> {
        // Torn large pages, by their address in this process.
        let mut torn = BTreeMap::new();
        for run in runs {
            let (mut done, bytes) = (0, u64::from(run.length));
            while done < bytes {
                let next = run.address.0.checked_add(done).map(vm_memory::GuestAddress);
                let found = next.and_then(|next| map.to_region_addr(next));
                let (region, offset) = found.ok_or(io::ErrorKind::InvalidInput)?;
                let count = (bytes - done).min(region.len() - offset.0);
                let part = Part::of(region, offset.0, count)?;
                part.discard()?;
                self.make_large(&part.whole_large_pages());
                torn.extend(part.torn_large_pages().map(|large| (large.start, large)));
                done += count;
            }
        }
        // A file's pages are in the page cache, and the guest must not split them.
        torn.values().filter(|large| large.is_anonymous()).for_each(|large| self.make_small(large));
        Ok(())
    }

    /// Lets the host use large pages for the part again.
    fn make_large(&mut self, whole: &Part<'_>) {
        let small: Vec<usize> = self.small.range(whole.start..whole.end).copied().collect();
        if !small.is_empty() && whole.is_anonymous() {
            whole.advise(libc::MADV_HUGEPAGE);
            for start in &small {
                self.small.remove(start);
            }
        }
    }

    /// Splits a torn large page, and has it in small pages from then on. Beyond the bound it stays as it is.
    fn make_small(&mut self, large: &Part<'_>) {
        if self.small.len() >= SMALL_MAX && !self.small.contains(&large.start) {
            return;
        }
        self.small.insert(large.start);
        large.advise(libc::MADV_NOHUGEPAGE);
        large.advise(libc::MADV_COLD);
    }
}

/// Whole pages of a region, by their address in the region's mapping.
#[derive(Clone, Copy, Debug)]
struct Part<'map> {
    region: &'map GuestRegionMmap,
    /// Addresses in this process.
    start: usize,
    end: usize,
}

impl<'map> Part<'map> {
    /// Returns the whole pages of these bytes of a region, possibly none.
    fn of(region: &'map GuestRegionMmap, offset: u64, bytes: u64) -> io::Result<Part<'map>> {
        // An image's pages are the page cache's, not the guest's.
        if region.prot() & libc::PROT_WRITE == 0 {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        let (Ok(offset), Ok(bytes)) = (usize::try_from(offset), usize::try_from(bytes)) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let base = region.as_ptr() as usize;
        let start = (base + offset).next_multiple_of(PAGE);
        let end = (base + (offset + bytes).min(region.size())) / PAGE * PAGE;
        Ok(Part { region, start, end: end.max(start) })
    }

    fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Returns the large pages that lie in the part as a whole.
    fn whole_large_pages(&self) -> Part<'map> {
        let start = self.start.next_multiple_of(LARGE_PAGE).min(self.end);
        Part { start, end: (self.end / LARGE_PAGE * LARGE_PAGE).max(start), ..*self }
    }

    /// Returns the region's large pages only partly covered by the part.
    fn torn_large_pages(&self) -> impl Iterator<Item = Part<'map>> + use<'map> {
        let part = *self;
        let base = part.region.as_ptr() as usize;
        let around = |address: usize| Part {
            start: (address / LARGE_PAGE * LARGE_PAGE).max(base),
            end: (address / LARGE_PAGE * LARGE_PAGE + LARGE_PAGE).min(base + part.region.size()),
            ..part
        };
        let ends = (!part.is_empty()).then(|| [around(part.start), around(part.end - 1)]);
        ends.into_iter().flatten().filter(move |large| large.start < part.start || large.end > part.end)
    }

    /// Returns true if no page of a file is behind it. RAM's file never changes, and RAM does not show it
    /// where the file has no data for whole large pages.
    fn is_anonymous(&self) -> bool {
        let Some(place) = self.region.file_offset() else { return true };
        let at = |address: usize| place.start() + (address - self.region.as_ptr() as usize) as u64;
        match rustix::fs::seek(place.file(), SeekFrom::Data(at(self.start))) {
            Ok(data) => data >= at(self.end),
            // Only a hole is left.
            Err(error) => error == rustix::io::Errno::NXIO,
        }
    }

    /// Gives the pages back.
    fn discard(&self) -> io::Result<()> {
        if self.is_empty() { Ok(()) } else { self.madvise(libc::MADV_DONTNEED) }
    }

    /// Gives optional advice.
    fn advise(&self, advice: libc::c_int) {
        if !self.is_empty() {
            // A host without large pages, or an old one, does not know this advice.
            let _ = self.madvise(advice);
        }
    }

    fn madvise(&self, advice: libc::c_int) -> io::Result<()> {
        let address = self.region.as_ptr().wrapping_add(self.start - self.region.as_ptr() as usize);
        // SAFETY: the range lies in the region's mapping, which the borrowed map keeps, and begins at a page.
        // The mapping is private and not the program's own memory: at most the guest's content goes, and this
        // process reads and writes it by volatile accesses alone.
        let result = unsafe { libc::madvise(address.cast(), self.end - self.start, advice) };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use vm_memory::{Bytes as _, GuestAddress, MmapRegion};

    use super::*;
    use crate::virtio::GuestMemory;

    const RAM: u64 = 16 << 20;
    const IMAGE: u64 = 1 << 32;

    fn memory() -> GuestMemory {
        let ram = GuestRegionMmap::from_range(GuestAddress(0), RAM as usize, None).unwrap();
        GuestMemory::new(vec![ram]).unwrap()
    }

    fn one(map: &MemoryMap, address: u64, length: u32) -> io::Result<()> {
        FreePages::default()
            .give_back(map, std::iter::once(Segment { address: GuestAddress(address), length }))
    }

    /// Returns the number of bytes that still have their written content.
    fn kept(map: &MemoryMap, base: u64, bytes: usize) -> usize {
        let mut content = vec![0; bytes];
        map.read_slice(&mut content, GuestAddress(base)).unwrap();
        content.iter().filter(|byte| **byte == 7).count()
    }

    #[test]
    fn whole_pages_are_given_back_and_no_others() {
        let map = memory().writable();
        map.write_slice(&[7; 0x4000], GuestAddress(0x4000)).unwrap();
        one(&map, 0x4800, 0x2000).unwrap();
        assert_eq!((kept(&map, 0x4000, 0x1000), kept(&map, 0x5000, 0x1000)), (0x1000, 0));
        assert_eq!(kept(&map, 0x6000, 0x2000), 0x2000);
        one(&map, 0x6001, 0xffe).unwrap();
        assert_eq!(kept(&map, 0x6000, 0x2000), 0x2000, "no whole page");
        map.write_slice(&[7; 0x4000], GuestAddress(0x4000)).unwrap();
        assert_eq!(kept(&map, 0x4000, 0x4000), 0x4000, "the guest takes them into use again");
    }

    #[test]
    fn large_pages_go_whole_or_in_part_and_leave_their_neighbours() {
        let map = memory().writable();
        map.write_slice(&vec![7; RAM as usize], GuestAddress(0)).unwrap();
        let (begin, bytes) = ((1 << 20) + 0x3000, 7 << 20);
        one(&map, begin, bytes as u32).unwrap();
        assert_eq!(kept(&map, 0, RAM as usize), RAM as usize - bytes);
        assert_eq!(kept(&map, begin, bytes), 0);
        one(&map, 0, RAM as u32).unwrap();
        assert_eq!(kept(&map, 0, RAM as usize), 0);
    }

    #[test]
    fn torn_large_pages_are_those_at_the_ends_within_the_region() {
        let ram = GuestRegionMmap::from_range(GuestAddress(0), RAM as usize, None).unwrap();
        let base = ram.as_ptr() as usize;
        let aligned = base.next_multiple_of(LARGE_PAGE) - base;
        let torn = |offset: usize, bytes: usize| {
            let part = Part::of(&ram, offset as u64, bytes as u64).unwrap();
            part.torn_large_pages().map(|large| large.start - base).collect::<Vec<_>>()
        };
        let second = aligned + LARGE_PAGE;
        assert!(torn(aligned, LARGE_PAGE).is_empty(), "a whole one");
        assert_eq!(torn(aligned + PAGE, PAGE), [aligned; 2], "the middle of one");
        assert_eq!(torn(aligned + PAGE, 2 * LARGE_PAGE - 2 * PAGE), [aligned, second]);
        assert_eq!(torn(aligned, LARGE_PAGE + PAGE), [second]);
        assert!(torn(aligned, 0).is_empty());
        let whole =
            Part::of(&ram, (aligned + PAGE) as u64, 3 * LARGE_PAGE as u64).unwrap().whole_large_pages();
        assert_eq!((whole.start - base, whole.end - base), (second, aligned + 3 * LARGE_PAGE));
    }

    #[test]
    fn large_pages_that_a_file_has_no_data_for_are_anonymous() {
        use std::os::unix::fs::FileExt as _;

        let file = rustix::fs::memfd_create("ram", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        let file = std::fs::File::from(file);
        let large = LARGE_PAGE as u64;
        file.set_len(RAM + large).unwrap();
        file.write_all_at(b"data", 3 * large - 4).unwrap();
        let place = vm_memory::FileOffset::new(file, large);
        let ram = GuestRegionMmap::from_range(GuestAddress(0), RAM as usize, Some(place)).unwrap();
        let anonymous = |offset: u64, bytes: u64| Part::of(&ram, offset, bytes).unwrap().is_anonymous();
        assert!(anonymous(0, large) && !anonymous(large, large) && anonymous(2 * large, large));
        assert!(!anonymous(0, 2 * large) && anonymous(RAM - large, large) && anonymous(RAM, 0));
        assert!(Part::of(memory().writable().iter().next().unwrap(), 0, large).unwrap().is_anonymous());
    }

    /// Number of the host's mappings within the region.
    fn mappings(region: &GuestRegionMmap) -> usize {
        let base = region.as_ptr() as usize;
        let starts = |line: &str| usize::from_str_radix(line.split('-').next()?, 16).ok();
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        maps.lines().filter_map(starts).filter(|start| (base..base + region.size()).contains(start)).count()
    }

    #[test]
    fn no_guest_tears_its_memory_into_more_mappings_than_the_host_allows() {
        let pages = SMALL_MAX + 8;
        let ram = GuestRegionMmap::from_range(GuestAddress(0), (2 * pages + 1) * LARGE_PAGE, None).unwrap();
        let aligned = (ram.as_ptr() as usize).next_multiple_of(LARGE_PAGE) - ram.as_ptr() as usize;
        let memory = GuestMemory::new(vec![ram]).unwrap();
        let map = memory.writable();
        let at = |page: usize| (aligned + 2 * page * LARGE_PAGE) as u64;
        let mut free = FreePages::default();
        let mut give =
            |address, length| free.give_back(&map, [Segment { address, length }].into_iter()).unwrap();
        map.write_slice(&[7; 2 * PAGE], GuestAddress(at(pages - 1))).unwrap();
        (0..pages).for_each(|page| give(GuestAddress(at(page)), PAGE as u32));
        // Each has the mapping between it and the next one beside its own.
        assert!(mappings(map.iter().next().unwrap()) <= 2 * SMALL_MAX + 1);
        assert_eq!(kept(&map, at(pages - 1), 2 * PAGE), PAGE, "it is given back all the same");
        give(GuestAddress(at(3)), LARGE_PAGE as u32);
        assert_eq!(free.small.len(), SMALL_MAX - 1, "a whole one may be large again");
        free.give_back(&map, [Segment { address: GuestAddress(at(5)), length: 1 << 12 }].into_iter())
            .unwrap();
        assert_eq!(free.small.len(), SMALL_MAX - 1, "it is a small one already");
    }

    #[test]
    fn plugged_memory_is_given_back() {
        // The same as in the VMM: nothing in the room is accessible until a part is opened.
        let flags = libc::MAP_ANONYMOUS | libc::MAP_PRIVATE | libc::MAP_NORESERVE;
        let room = MmapRegion::build(None, 4 * LARGE_PAGE, libc::PROT_NONE, flags).unwrap();
        // SAFETY: the range is the mapping's beginning.
        let opened =
            unsafe { libc::mprotect(room.as_ptr().cast(), LARGE_PAGE, libc::PROT_READ | libc::PROT_WRITE) };
        assert_eq!(opened, 0);
        let room = Arc::new(GuestRegionMmap::new(room, GuestAddress(IMAGE)).unwrap());
        let memory = memory();
        memory.set_plugged(&room, &[(0, LARGE_PAGE as u64)]).unwrap();
        let map = memory.writable();
        map.write_slice(&[7; 0x4000], GuestAddress(IMAGE)).unwrap();
        one(&map, IMAGE, 0x2000).unwrap();
        assert_eq!(kept(&map, IMAGE, 0x4000), 0x2000);
    }

    #[test]
    fn what_is_not_the_guests_is_refused() {
        let memory = memory();
        let flags = libc::MAP_ANONYMOUS | libc::MAP_PRIVATE;
        let mapping = MmapRegion::build(None, PAGE, libc::PROT_READ, flags).unwrap();
        memory.add_image(Arc::new(GuestRegionMmap::new(mapping, GuestAddress(IMAGE)).unwrap())).unwrap();
        assert!(one(&memory.readable(), IMAGE, PAGE as u32).is_err());
        for (address, length) in [(RAM - 0x1000, 0x2000), (RAM, 1), (u64::MAX, 2)] {
            assert!(one(&memory.writable(), address, length).is_err(), "{address:#x}");
        }
    }
}
