//! RAM with the content of a template's file. Where the file has data, it is a private view of the file.
//! Where it has none, it is anonymous memory in large pages, like RAM at boot. In a view of a hole, the
//! kernel would put a page of zeros into the file for each page the guest touches, for good, and then copy
//! it. The file is never changed.

use std::fs::File;
use std::num::NonZeroUsize;
use std::os::fd::AsFd as _;
use std::sync::Arc;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::mman::{MapFlags, ProtFlags, mmap_anonymous};
use nix::unistd::{Whence, lseek};
use vm_memory::{FileOffset, GuestAddress, GuestMemoryRegion as _, GuestRegionMmap, MmapRegion};
use vmm_devices::virtio::GuestMemory;

use crate::layout::LARGE_PAGE;
use crate::memory::{MemoryError, address_of, check_size, prefer_large_pages, ranges, size};

/// Makes RAM of `bytes` with the content of `file`. The file has the parts of RAM one after the other, and
/// behind them `grown` bytes that are not mapped. Pages come from the file until the guest writes to them,
/// and the file never changes. It must be sealed: if it shrank, this process would end, and another process's
/// writes would change the guest's memory.
pub(crate) fn map(file: File, bytes: u64, grown: u64) -> Result<GuestMemory, MemoryError> {
    check_size(bytes)?;
    let (has, all) = (file.metadata().map_err(MemoryError::Saved)?.len(), bytes.saturating_add(grown));
    if has != all {
        return Err(MemoryError::SavedSize { has, bytes: all });
    }
    let sealed = SealFlag::from_bits_retain(fcntl(&file, FcntlArg::F_GET_SEALS).unwrap_or(0));
    if !sealed.contains(SealFlag::F_SEAL_WRITE | SealFlag::F_SEAL_SHRINK) {
        return Err(MemoryError::Unsealed);
    }
    let (file, mut at) = (Arc::new(file), 0);
    let map = |(base, length)| {
        let place = FileOffset::from_arc(Arc::clone(&file), at);
        let flags = libc::MAP_PRIVATE | libc::MAP_NORESERVE;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let mapping = MmapRegion::build(Some(place), size(length), protection, flags)?;
        let region = GuestRegionMmap::new(mapping, GuestAddress(base)).expect("it ends below 2 TiB");
        fill_holes(&region, &file, at).map_err(MemoryError::Hole)?;
        at += length;
        Ok(region)
    };
    let ram = ranges(bytes).into_iter().map(map).collect::<Result<Vec<_>, MemoryError>>()?;
    Ok(GuestMemory::new(ram)?)
}

/// Puts anonymous memory over the region's large pages without data in the file. The region shows `file` from
/// `offset` on. Smaller holes stay, because a mapping for each would mean hundreds.
fn fill_holes(region: &GuestRegionMmap, file: &File, offset: u64) -> nix::Result<()> {
    let end = offset + region.len();
    let seek = |from: u64, whence| {
        let from = i64::try_from(from).map_err(|_| Errno::EOVERFLOW)?;
        match lseek(file.as_fd(), from, whence) {
            Ok(found) => Ok(u64::try_from(found).unwrap_or(end).min(end)),
            // Only a hole is left.
            Err(Errno::ENXIO) => Ok(end),
            Err(error) => Err(error),
        }
    };
    let mut hole = offset;
    while hole < end {
        let data = seek(hole, Whence::SeekData)?;
        let (from, to) = (hole.next_multiple_of(LARGE_PAGE), data / LARGE_PAGE * LARGE_PAGE);
        if from < to {
            fill(region, from - offset, to - from)?;
        }
        hole = if data < end { seek(data, Whence::SeekHole)? } else { end };
    }
    Ok(())
}

/// Replaces a part of the region's mapping by anonymous memory.
fn fill(region: &GuestRegionMmap, offset: u64, bytes: u64) -> nix::Result<()> {
    let Some(length) = NonZeroUsize::new(size(bytes)) else { return Ok(()) };
    let start = address_of(region, offset, bytes);
    let flags = MapFlags::MAP_PRIVATE | MapFlags::MAP_NORESERVE | MapFlags::MAP_FIXED;
    let protection = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
    // SAFETY: the range lies in the region's own mapping, not yet used by any code, and the new mapping goes
    // when the region's does.
    unsafe { mmap_anonymous(Some(start.addr()), length, protection, flags) }?;
    prefer_large_pages(region, offset, bytes);
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{FileExt as _, MetadataExt as _};

    use vm_memory::Bytes as _;

    use super::*;
    use crate::memory::RAM_MIN;

    fn saved(bytes: u64, seals: SealFlag) -> File {
        use nix::sys::memfd::{MFdFlags, memfd_create};
        let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
        let file = File::from(memfd_create(c"ram", flags).unwrap());
        file.set_len(bytes).unwrap();
        fcntl(&file, FcntlArg::F_ADD_SEALS(seals)).unwrap();
        file
    }

    #[test]
    fn a_guest_writes_to_its_own_copy_of_saved_memory() {
        let bytes = (3 << 30) + LARGE_PAGE;
        let file = saved(bytes, SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW);
        file.write_all_at(b"low", 8).unwrap();
        file.write_all_at(b"high", 3 << 30).unwrap();
        fcntl(&file, FcntlArg::F_ADD_SEALS(SealFlag::F_SEAL_WRITE)).unwrap();
        let [one, other] = [(); 2].map(|()| map(file.try_clone().unwrap(), bytes, 0).unwrap());
        one.writable().write_slice(b"new", GuestAddress(8)).unwrap();
        let read =
            |memory: &GuestMemory, at| memory.writable().read_obj::<[u8; 3]>(GuestAddress(at)).unwrap();
        assert_eq!((&read(&one, 8), &read(&other, 8), &read(&one, 4 << 30)), (b"new", b"low", b"hig"));
    }

    #[test]
    fn saved_memory_that_may_change_or_is_of_another_size_is_refused() {
        let all = SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_WRITE;
        for seals in [SealFlag::empty(), SealFlag::F_SEAL_SHRINK, SealFlag::F_SEAL_WRITE] {
            assert!(matches!(map(saved(RAM_MIN, seals), RAM_MIN, 0), Err(MemoryError::Unsealed)));
        }
        for bytes in [0, RAM_MIN - 4096, RAM_MIN + LARGE_PAGE] {
            let refused = map(saved(bytes, all), RAM_MIN, 0);
            assert!(matches!(refused, Err(MemoryError::SavedSize { .. })), "{bytes}");
            let grown = map(saved(RAM_MIN, all), RAM_MIN, bytes.max(1));
            assert!(matches!(grown, Err(MemoryError::SavedSize { .. })), "{bytes}");
        }
        let plain = tempfile_like();
        plain.set_len(RAM_MIN).unwrap();
        assert!(matches!(map(plain, RAM_MIN, 0), Err(MemoryError::Unsealed)));
        assert!(map(saved(RAM_MIN, all), RAM_MIN, 0).is_ok());
    }

    /// A file on a file system without seals.
    fn tempfile_like() -> File {
        let path = std::env::temp_dir().join(format!("podvisor-saved-{}", std::process::id()));
        let file = File::options().read(true).write(true).create(true).truncate(true).open(&path).unwrap();
        std::fs::remove_file(path).unwrap();
        file
    }

    #[test]
    fn what_guests_touch_beyond_a_templates_data_is_zeros_of_their_own_and_no_part_of_the_template() {
        let bytes = 4 * LARGE_PAGE * 16;
        let file = saved(bytes, SealFlag::F_SEAL_SHRINK);
        // At the end of a large page, in the middle of one, and at the very end.
        let data = [LARGE_PAGE - 4096, 9 * LARGE_PAGE + 8192, bytes - 4096];
        for at in data {
            file.write_all_at(b"data", at).unwrap();
        }
        fcntl(&file, FcntlArg::F_ADD_SEALS(SealFlag::F_SEAL_WRITE)).unwrap();
        let before = file.metadata().unwrap().blocks();
        let memory = map(file.try_clone().unwrap(), bytes, 0).unwrap();
        let ram = memory.writable();
        for at in data {
            assert_eq!(&ram.read_obj::<[u8; 4]>(GuestAddress(at)).unwrap(), b"data");
        }
        // Whole large pages without data.
        for at in [LARGE_PAGE, 5 * LARGE_PAGE - 1, 8 * LARGE_PAGE, 10 * LARGE_PAGE, bytes - LARGE_PAGE - 1] {
            assert_eq!(ram.read_obj::<u8>(GuestAddress(at)).unwrap(), 0);
            ram.write_obj(7u8, GuestAddress(at)).unwrap();
            assert_eq!(ram.read_obj::<u8>(GuestAddress(at)).unwrap(), 7);
        }
        assert_eq!(file.metadata().unwrap().blocks(), before, "the template has grown");
    }
}
