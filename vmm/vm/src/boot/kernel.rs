//! Copies an ELF kernel into guest memory. Mapping the file's pages instead was tried. A kernel writes to
//! nearly all of its own pages during boot (alternatives, static calls, its data), so nothing stays shared.
//! Each page then costs the guest two faults, but a copy in large pages costs none.

use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::os::unix::fs::FileExt;

use vm_memory::{Bytes, GuestAddress, GuestMemory, GuestMemoryMmap};

use crate::layout::HIGH_RAM;

/// Sizes and values of the ELF specification (elf(5)), for 64-bit little-endian x86-64 files.
const HEADER_BYTES: usize = 64;
const SEGMENT_BYTES: usize = 56;
const IDENTIFICATION: [u8; 6] = [0x7f, b'E', b'L', b'F', 2, 1];
const MACHINE_X86_64: u16 = 0x3e;
const LOADABLE: u32 = 1;

/// Most program headers; kernels have five or so.
const SEGMENTS_MAX: u16 = 32;

/// The kernel cannot be used.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum KernelError {
    #[error("cannot read the kernel")]
    Read(#[source] std::io::Error),
    #[error("the kernel is not an uncompressed x86-64 ELF file (vmlinux): {reason}")]
    Format { reason: &'static str },
    #[error("the kernel's segment at {address:#x}, {bytes} bytes, does not fit into guest memory")]
    Fit { address: u64, bytes: u64 },
    #[error("cannot write the kernel to guest memory")]
    Memory(#[from] vm_memory::GuestMemoryError),
}

/// A loadable segment: `file_bytes` at `offset` go to `address`, zeroes follow up to `bytes`.
#[derive(Clone, Copy, Debug)]
struct Segment {
    offset: u64,
    address: u64,
    file_bytes: u64,
    bytes: u64,
}

/// Loads `kernel` into fresh, zeroed memory not yet used by a vCPU. Returns its entry point.
pub(super) fn load(memory: &GuestMemoryMmap, kernel: &File) -> Result<GuestAddress, KernelError> {
    let mut header = [0; HEADER_BYTES];
    kernel.read_exact_at(&mut header, 0).map_err(KernelError::Read)?;
    let format = |reason| Err(KernelError::Format { reason });
    if header[..6] != IDENTIFICATION || u16_at(&header, 18) != MACHINE_X86_64 {
        return format("wrong identification");
    }
    if usize::from(u16_at(&header, 54)) != SEGMENT_BYTES || u16_at(&header, 56) > SEGMENTS_MAX {
        return format("odd program headers");
    }
    let entry = u64_at(&header, 24);
    let length = kernel.metadata().map_err(KernelError::Read)?.len();
    let segments = segments(kernel, u64_at(&header, 32), u16_at(&header, 56))?;
    for segment in &segments {
        check(segment, memory, length)?;
        place(segment, memory, kernel)?;
    }
    let inside = |s: &Segment| (s.address..s.address + s.file_bytes).contains(&entry);
    if !segments.iter().any(inside) {
        return format("its entry point lies in no segment");
    }
    Ok(GuestAddress(entry))
}

/// Returns the loadable segments with content in the file.
fn segments(kernel: &File, table: u64, count: u16) -> Result<Vec<Segment>, KernelError> {
    let mut bytes = vec![0; usize::from(count) * SEGMENT_BYTES];
    kernel.read_exact_at(&mut bytes, table).map_err(KernelError::Read)?;
    let loadable = bytes.chunks_exact(SEGMENT_BYTES).filter(|header| u32_at(header, 0) == LOADABLE);
    Ok(loadable
        .map(|header| Segment {
            offset: u64_at(header, 8),
            address: u64_at(header, 24),
            file_bytes: u64_at(header, 32),
            bytes: u64_at(header, 40),
        })
        .filter(|segment| segment.file_bytes > 0)
        .collect())
}

/// Checks the segment: it must lie in the file, and in one region of memory above the boot data.
fn check(segment: &Segment, memory: &GuestMemoryMmap, length: u64) -> Result<(), KernelError> {
    let in_file = segment.offset.checked_add(segment.file_bytes).is_some_and(|end| end <= length);
    if !in_file || segment.file_bytes > segment.bytes {
        return Err(KernelError::Format { reason: "a segment is not all in the file" });
    }
    let size = usize::try_from(segment.bytes).unwrap_or(usize::MAX);
    let fits = segment.address >= HIGH_RAM && memory.get_slice(GuestAddress(segment.address), size).is_ok();
    if fits { Ok(()) } else { Err(KernelError::Fit { address: segment.address, bytes: segment.bytes }) }
}

/// Reads the segment to its place. The memory after it is already zero.
fn place(segment: &Segment, memory: &GuestMemoryMmap, mut kernel: &File) -> Result<(), KernelError> {
    // The file was opened for this VM alone, so moving its position disturbs no other user.
    kernel.seek(SeekFrom::Start(segment.offset)).map_err(KernelError::Read)?;
    let size = usize::try_from(segment.file_bytes).unwrap_or(usize::MAX);
    Ok(memory.read_exact_volatile_from(GuestAddress(segment.address), &mut kernel, size)?)
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from(u16_at(bytes, at)) | u32::from(u16_at(bytes, at + 2)) << 16
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}

#[cfg(test)]
mod tests {
    const PAGE: u64 = 4096;
    use std::io::Write;

    use nix::sys::memfd::{MFdFlags, memfd_create};

    use super::*;

    const RAM: usize = 32 << 20;

    fn memory() -> GuestMemoryMmap {
        GuestMemoryMmap::from_ranges(&[(GuestAddress(0), RAM)]).unwrap()
    }

    /// An ELF file with one segment holding `content`.
    fn elf(offset: u64, address: u64, bytes: u64, content: &[u8]) -> File {
        let mut elf = vec![0; HEADER_BYTES];
        elf[..6].copy_from_slice(&IDENTIFICATION);
        elf[18..20].copy_from_slice(&MACHINE_X86_64.to_le_bytes());
        elf[24..32].copy_from_slice(&address.to_le_bytes());
        elf[32..40].copy_from_slice(&(HEADER_BYTES as u64).to_le_bytes());
        elf[54..56].copy_from_slice(&(SEGMENT_BYTES as u16).to_le_bytes());
        elf[56..58].copy_from_slice(&1u16.to_le_bytes());
        elf.extend([LOADABLE, 5].map(u32::to_le_bytes).concat());
        let fields = [offset, address, address, content.len() as u64, bytes, PAGE];
        elf.extend(fields.map(u64::to_le_bytes).concat());
        elf.resize(usize::try_from(offset).unwrap().max(elf.len()), 0);
        elf.extend(content);
        let mut file = File::from(memfd_create(c"kernel", MFdFlags::MFD_CLOEXEC).unwrap());
        file.write_all(&elf).unwrap();
        file
    }

    #[test]
    fn segments_arrive_whole_however_they_are_aligned() {
        let content: Vec<u8> = (0..3 * PAGE + 77).map(|n| (n % 251) as u8).collect();
        for (offset, address) in [(0x1000, 0x20_0000), (0x1234, 0x20_0234), (0x1234, 0x20_0000)] {
            let memory = memory();
            let file = elf(offset, address, content.len() as u64 + PAGE, &content);
            assert_eq!(load(&memory, &file).unwrap(), GuestAddress(address));
            let mut read = vec![0; content.len() + 4096];
            memory.read_slice(&mut read, GuestAddress(address)).unwrap();
            assert_eq!(read[..content.len()], content);
            assert!(read[content.len()..].iter().all(|byte| *byte == 0), "zeroes follow");
        }
    }

    #[test]
    fn segments_outside_memory_or_file_are_refused() {
        let refused = |file| load(&memory(), &file).unwrap_err();
        assert!(matches!(refused(elf(0x1000, 0x1000, 16, &[0; 16])), KernelError::Fit { .. }));
        assert!(matches!(refused(elf(0x1000, RAM as u64 - 8, 16, &[0; 16])), KernelError::Fit { .. }));
        assert!(matches!(refused(elf(0x1000, u64::MAX - 4, 16, &[0; 16])), KernelError::Fit { .. }));
        assert!(matches!(refused(elf(0x1000, 0x20_0000, 8, &[0; 16])), KernelError::Format { .. }));
        let cut = elf(0x1000, 0x20_0000, 16, &[0; 16]);
        cut.set_len(0x1008).unwrap();
        assert!(matches!(refused(cut), KernelError::Format { .. }));
    }

    #[test]
    fn what_is_not_a_kernel_is_refused() {
        let file = elf(0x1000, 0x20_0000, 16, &[0; 16]);
        file.write_all_at(b"bzImage", 0).unwrap();
        assert!(matches!(load(&memory(), &file), Err(KernelError::Format { .. })));
        file.set_len(10).unwrap();
        assert!(matches!(load(&memory(), &file), Err(KernelError::Read(_))));
    }
}
