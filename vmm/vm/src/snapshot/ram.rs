//! The guest's memory as a file: the parts of RAM one after the other, then the room for growth. Pages of
//! zeros are left out as holes, and so is memory that is not plugged.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

use vm_memory::{Bytes as _, GuestMemory as _, GuestMemoryRegion, MemoryRegionAddress};
use vmm_devices::virtio::GuestMemory;

use crate::memory_hotplug::MemoryHotplug;

const PAGE: usize = 4096;
const ZEROS: [u8; PAGE] = [0; PAGE];
/// Bytes examined in one go: RAM is a multiple of 2 MiB.
const CHUNK: usize = 256 * PAGE;

/// Writes the memory to `file`. The file is empty, and becomes as long as RAM with the used part of the room.
pub(super) fn write(memory: &GuestMemory, hotplug: &MemoryHotplug, file: &File) -> io::Result<()> {
    let memory = memory.writable();
    file.set_len(hotplug.boot_bytes() + hotplug.given_bytes())?;
    let (mut chunk, mut at) = (vec![0; CHUNK], 0);
    for region in memory.iter() {
        let mut offset = 0;
        at = hotplug.room_offset(region.start_addr()).map_or(at, |offset| hotplug.boot_bytes() + offset);
        while offset < region.len() {
            region.read_slice(&mut chunk, MemoryRegionAddress(offset)).map_err(io::Error::other)?;
            write_chunk(&chunk, file, at + offset)?;
            offset += CHUNK as u64;
        }
        at += region.len();
    }
    Ok(())
}

/// Reads the plugged part of the room from the saved file that RAM is a mapping of.
pub(super) fn read_grown(memory: &GuestMemory, hotplug: &MemoryHotplug) -> io::Result<()> {
    let memory = memory.writable();
    let mapped = memory.iter().find_map(GuestMemoryRegion::file_offset);
    let mut chunk = vec![0; CHUNK];
    for region in memory.iter() {
        let (Some(place), Some(mapped)) = (hotplug.room_offset(region.start_addr()), mapped) else {
            continue;
        };
        let file = mapped.file();
        for offset in (0..region.len()).step_by(CHUNK) {
            file.read_exact_at(&mut chunk, hotplug.boot_bytes() + place + offset)?;
            // A page of zeros would take memory for nothing.
            let (pages, _) = chunk.as_chunks::<PAGE>();
            for (page, at) in pages.iter().zip((offset..).step_by(PAGE)).filter(|(page, _)| **page != ZEROS) {
                region.write_slice(page, MemoryRegionAddress(at)).map_err(io::Error::other)?;
            }
        }
    }
    Ok(())
}

/// Writes the runs of non-zero pages.
fn write_chunk(chunk: &[u8], file: &File, at: u64) -> io::Result<()> {
    let (pages, _) = chunk.as_chunks::<PAGE>();
    let mut begin = 0;
    for run in pages.chunk_by(|one, other| (*one == ZEROS) == (*other == ZEROS)) {
        let end = begin + run.len() * PAGE;
        if run[0] != ZEROS {
            file.write_all_at(&chunk[begin..end], at + begin as u64)?;
        }
        begin = end;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use nix::sys::memfd::{MFdFlags, memfd_create};
    use vm_memory::GuestAddress;

    use super::*;
    use crate::memory;

    fn never_grown() -> MemoryHotplug {
        MemoryHotplug::new(memory::RAM_MIN, memory::RAM_MIN, None).unwrap()
    }

    #[test]
    fn pages_of_zeros_are_holes_and_all_others_are_at_their_places() {
        let ram = memory::create(memory::RAM_MIN).unwrap();
        let pages = [0, 1, 255, 256, 4095, 8191u64];
        for page in pages {
            ram.writable().write_obj(page + 1, GuestAddress(page * 4096 + 8)).unwrap();
        }
        let file = File::from(memfd_create(c"ram", MFdFlags::MFD_CLOEXEC).unwrap());
        write(&ram, &never_grown(), &file).unwrap();
        let metadata = file.metadata().unwrap();
        assert_eq!((metadata.len(), metadata.blocks() * 512), (memory::RAM_MIN, pages.len() as u64 * 4096));
        for page in pages {
            let mut word = [0; 8];
            file.read_exact_at(&mut word, page * 4096 + 8).unwrap();
            assert_eq!(u64::from_le_bytes(word), page + 1);
        }
    }

    #[test]
    fn a_file_that_takes_nothing_is_an_error() {
        let ram = memory::create(memory::RAM_MIN).unwrap();
        ram.writable().write_obj(1u64, GuestAddress(0)).unwrap();
        let full = File::options().write(true).open("/dev/full").unwrap();
        assert!(write(&ram, &never_grown(), &full).is_err());
    }
}
