//! Copies pages of a file into private views of it, many in one call (userfaultfd(2)). The copies belong to
//! the process. A page takes half the time of a fault with the kernel's own copy.
//!
//! No thread handles faults here. The views are registered as long as [`Copies`] exists, and nothing else may
//! touch them until then.

use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};

use nix::errno::Errno;
use vm_memory::{
    FileOffset, GuestMemory as _, GuestMemoryMmap, GuestMemoryRegion as _, GuestRegionMmap, MmapRegion,
};

use crate::memory::{address_of, size};

/// `UFFD_USER_MODE_ONLY`: we do not handle the kernel's faults, so the call needs no privilege (Linux 5.11).
const USER_MODE_ONLY: libc::c_int = 1;

/// `UFFD_API`, the only version.
const API: u64 = 0xaa;

/// `UFFDIO_REGISTER_MODE_MISSING` and `UFFDIO_COPY_MODE_DONTWAKE`.
const MODE_MISSING: u64 = 1;
const MODE_DONTWAKE: u64 = 1;

/// The requests and their structures, from `include/uapi/linux/userfaultfd.h`.
mod ioctl {
    #[repr(C)]
    #[derive(Debug, Default)]
    pub(super) struct Api {
        pub(super) api: u64,
        pub(super) features: u64,
        pub(super) ioctls: u64,
    }

    #[repr(C)]
    #[derive(Debug, Default)]
    pub(super) struct Register {
        pub(super) start: u64,
        pub(super) len: u64,
        pub(super) mode: u64,
        pub(super) ioctls: u64,
    }

    #[repr(C)]
    #[derive(Debug, Default)]
    pub(super) struct Copy {
        pub(super) dst: u64,
        pub(super) src: u64,
        pub(super) len: u64,
        pub(super) mode: u64,
        pub(super) copied: i64,
    }

    nix::ioctl_readwrite!(api, 0xaa, 0x3f, Api);
    nix::ioctl_readwrite!(register, 0xaa, 0x00, Register);
    nix::ioctl_readwrite!(copy, 0xaa, 0x03, Copy);
}

/// The kernel's means to fill this process's memory. A process opens it before it gives up the call.
#[derive(Debug)]
pub struct Userfault(OwnedFd);

impl Userfault {
    /// Opens the userfaultfd.
    ///
    /// # Errors
    /// The kernel has none, or is older than Linux 5.11.
    pub fn open() -> io::Result<Userfault> {
        // SAFETY: the call takes no memory of this process.
        let fd = unsafe { libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC | USER_MODE_ONLY) };
        let fd = i32::try_from(Errno::result(fd)?).map_err(io::Error::other)?;
        // SAFETY: the descriptor is new, and has no other owner.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        let mut api = ioctl::Api { api: API, ..Default::default() };
        // SAFETY: the ioctl reads and writes the given structure, and no other memory of this process.
        unsafe { ioctl::api(fd.as_raw_fd(), &raw mut api) }?;
        Ok(Userfault(fd))
    }
}

/// Private views of files, to be filled with copies of the files' pages.
#[derive(Debug)]
pub(crate) struct Copies {
    userfault: Userfault,
    /// Each view's guest address, and a second view of its whole content.
    sources: Vec<(vm_memory::GuestAddress, MmapRegion)>,
}

impl Copies {
    /// Begins with the regions backed by files.
    pub(crate) fn begin(userfault: Userfault, memory: &GuestMemoryMmap) -> io::Result<Copies> {
        let mut copies = Copies { userfault, sources: Vec::new() };
        for region in memory.iter() {
            let Some(file) = region.file_offset() else { continue };
            copies.register(region)?;
            copies.sources.push((region.start_addr(), source(file, region.len())?));
        }
        Ok(copies)
    }

    fn register(&self, region: &GuestRegionMmap) -> nix::Result<()> {
        let start = address_of(region, 0, region.len()).addr().get() as u64;
        let mut range = ioctl::Register { start, len: region.len(), mode: MODE_MISSING, ioctls: 0 };
        // SAFETY: the ioctl reads and writes the given structure, and changes no memory.
        unsafe { ioctl::register(self.userfault.0.as_raw_fd(), &raw mut range) }?;
        Ok(())
    }

    /// Copies the pages of this part of a region. None of them may exist yet.
    pub(crate) fn make(&self, region: &GuestRegionMmap, offset: u64, bytes: u64) -> io::Result<()> {
        let source = self.sources.iter().find(|(start, _)| *start == region.start_addr());
        let (_, source) = source.ok_or(io::ErrorKind::NotFound)?;
        let mut copy = ioctl::Copy {
            dst: address_of(region, offset, bytes).addr().get() as u64,
            src: source.as_ptr().wrapping_add(size(offset)).addr() as u64,
            len: bytes,
            mode: MODE_DONTWAKE,
            copied: 0,
        };
        // SAFETY: the source shows the same part of the file as the region, and is as long. So the kernel
        // puts there, where nothing is yet, exactly the content a fault would have put there.
        unsafe { ioctl::copy(self.userfault.0.as_raw_fd(), &raw mut copy) }?;
        Ok(())
    }
}

/// Returns a second, read-only view of the file.
fn source(file: &FileOffset, bytes: u64) -> io::Result<MmapRegion> {
    let flags = libc::MAP_PRIVATE | libc::MAP_NORESERVE;
    MmapRegion::build(Some(file.clone()), size(bytes), libc::PROT_READ, flags).map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::FileExt as _;

    use nix::sys::memfd::{MFdFlags, memfd_create};
    use vm_memory::{Bytes as _, GuestAddress};

    use super::*;

    const PAGE: u64 = 4096;
    const PAGES: u64 = 8;

    /// A view of a file, with each page containing its number, at this guest address, and the copies for it.
    fn view(start: u64) -> Option<(File, GuestMemoryMmap, Copies)> {
        let file = File::from(memfd_create(c"ram", MFdFlags::MFD_CLOEXEC).unwrap());
        for page in 0..=PAGES {
            file.write_all_at(&[u8::try_from(page).unwrap(); PAGE as usize], page * PAGE).unwrap();
        }
        // Not from the file's beginning.
        let place = FileOffset::new(file.try_clone().unwrap(), PAGE);
        let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE);
        let mapping = MmapRegion::build(Some(place), size(PAGES * PAGE), protection, flags).unwrap();
        let region = GuestRegionMmap::new(mapping, GuestAddress(start)).unwrap();
        let memory = GuestMemoryMmap::from_regions(vec![region]).unwrap();
        let userfault = match Userfault::open() {
            Ok(userfault) => userfault,
            Err(error) => {
                eprintln!("skipped: no userfaultfd ({error})");
                return None;
            }
        };
        let copies = Copies::begin(userfault, &memory).unwrap();
        Some((file, memory, copies))
    }

    #[test]
    fn copies_are_the_files_pages_and_the_processs_own() {
        let start = 5 << 20;
        let Some((file, memory, copies)) = view(start) else { return };
        let region = memory.iter().next().unwrap();
        copies.make(region, 2 * PAGE, 3 * PAGE).unwrap();
        file.write_all_at(&[0xff; PAGE as usize], 4 * PAGE).unwrap();
        drop(copies);
        let byte = |page| memory.read_obj::<u8>(GuestAddress(start + page * PAGE)).unwrap();
        assert_eq!([2, 3, 4, 5].map(byte), [3, 4, 5, 6], "copies do not change with the file");
        memory.write_obj(9u8, GuestAddress(start + 2 * PAGE)).unwrap();
        let mut content = [0];
        file.read_exact_at(&mut content, 3 * PAGE).unwrap();
        assert_eq!(content, [3], "the file is as it was");
    }

    #[test]
    fn a_page_that_is_there_is_not_copied_again() {
        let Some((_, memory, copies)) = view(0) else { return };
        let region = memory.iter().next().unwrap();
        copies.make(region, 0, PAGE).unwrap();
        memory.write_obj(9u8, GuestAddress(0)).unwrap();
        assert!(copies.make(region, 0, 2 * PAGE).is_err());
        assert_eq!(memory.read_obj::<u8>(GuestAddress(0)).unwrap(), 9);
    }
}
