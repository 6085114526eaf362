//! The first pages used by a guest from a template, as the daemon has observed in other guests from it. Each
//! page would cost the guest a page fault, or two if it is read and then written. So before the guest runs,
//! the VMM copies the pages to be written and makes KVM map all of them.
//!
//! Nothing here fails a restore. A page the host's kernel does not prepare is left to the guest's faults.
//!
//! Tried without gain: copying a whole large page if a guest writes to at least 192 of its pages (the kernel
//! zeroes it first), and mapping in advance all pages that guests only read (most are never read).

use std::os::fd::AsRawFd as _;

use kvm_bindings::kvm_pre_fault_memory;
use kvm_ioctls::VcpuFd;
use proto_vmm::PageRun;
use vm_memory::{GuestAddress, GuestMemory as _, GuestMemoryMmap, GuestMemoryRegion as _, GuestRegionMmap};

use crate::memory::{address_of, size};
use crate::userfault::{Copies, Userfault};

/// Bytes of a page.
const PAGE: u64 = 4096;

mod ioctl {
    // `KVM_PRE_FAULT_MEMORY`, `include/uapi/linux/kvm.h`; since Linux 6.11.
    nix::ioctl_readwrite!(pre_fault, 0xae, 0xd5, super::kvm_pre_fault_memory);
}

/// Returns true if all of the pages are in RAM of so many bytes.
pub(crate) fn fit(runs: &[PageRun], ram_bytes: u64) -> bool {
    runs.iter().all(|run| (u64::from(run.first) + u64::from(run.count)) * PAGE <= ram_bytes)
}

/// Makes this process's own copies of the pages.
pub(crate) fn copy(memory: &GuestMemoryMmap, runs: &[PageRun], userfault: Option<Userfault>) {
    let mut copies = userfault.and_then(|userfault| Copies::begin(userfault, memory).ok());
    for part in parts(memory, runs) {
        if let Some(many) = &copies {
            if many.make(part.region, part.offset, part.bytes).is_ok() {
                continue;
            }
            // A fault in a registered view fails. So the views are released before faults do the rest.
            copies = None;
        }
        let start = address_of(part.region, part.offset, part.bytes);
        // SAFETY: the range lies in the region's own mapping, and the advice changes no content.
        let result = unsafe { libc::madvise(start.as_ptr(), size(part.bytes), libc::MADV_POPULATE_WRITE) };
        if result != 0 {
            // Before Linux 5.14, or out of memory.
            return;
        }
    }
}

/// Makes KVM map the pages, as they are in this process. The vCPU has its state, and has not run yet.
pub(crate) fn map(vcpu: &VcpuFd, memory: &GuestMemoryMmap, runs: &[PageRun]) {
    for part in parts(memory, runs) {
        let GuestAddress(base) = part.region.start_addr();
        let mut range =
            kvm_pre_fault_memory { gpa: base + part.offset, size: part.bytes, ..Default::default() };
        // SAFETY: the ioctl reads and writes the given structure, and no other memory of this process.
        if unsafe { ioctl::pre_fault(vcpu.as_raw_fd(), &raw mut range) }.is_err() {
            return;
        }
    }
}

/// A run's part in one region.
#[derive(Debug)]
struct Part<'a> {
    region: &'a GuestRegionMmap,
    offset: u64,
    bytes: u64,
}

/// Splits the runs into parts. A template's file has the parts of RAM one after the other.
fn parts<'a>(memory: &'a GuestMemoryMmap, runs: &'a [PageRun]) -> impl Iterator<Item = Part<'a>> {
    runs.iter().flat_map(move |run| {
        let from = u64::from(run.first) * PAGE;
        let to = from + u64::from(run.count) * PAGE;
        let mut end = 0;
        memory.iter().filter_map(move |region| {
            let start = end;
            end += region.len();
            let (first, last) = (from.max(start), to.min(end));
            (first < last).then(|| Part { region, offset: first - start, bytes: last - first })
        })
    })
}

#[cfg(test)]
mod tests {
    use vm_memory::Bytes as _;

    use super::*;
    use crate::layout::LARGE_PAGE;
    use crate::memory;

    const GIB: u64 = 1 << 30;

    fn run(first: u64, count: u32) -> PageRun {
        PageRun { first: u32::try_from(first).unwrap(), count }
    }

    #[test]
    fn a_run_across_the_mmio_gap_has_a_part_on_either_side() {
        let memory = memory::create(3 * GIB + LARGE_PAGE).unwrap();
        let memory = memory.writable();
        let runs = [run(2, 1), run(3 * GIB / PAGE - 1, 3)];
        let parts: Vec<_> = parts(&memory, &runs)
            .map(|part| (part.region.start_addr().0 + part.offset, part.bytes / PAGE))
            .collect();
        assert_eq!(parts, [(2 * PAGE, 1), (3 * GIB - PAGE, 1), (4 * GIB, 2)]);
    }

    #[test]
    fn pages_beyond_ram_do_not_fit() {
        assert!(fit(&[run(0, 1), run(15, 1)], 16 * PAGE));
        assert!(!fit(&[run(0, 1), run(15, 2)], 16 * PAGE));
        assert!(!fit(&[PageRun { first: u32::MAX, count: u32::MAX }], 1 << 40));
    }

    #[test]
    fn copies_are_made_and_change_nothing() {
        let memory = memory::create(memory::RAM_MIN).unwrap();
        let memory = memory.writable();
        memory.write_slice(b"data", GuestAddress(3 * PAGE)).unwrap();
        copy(&memory, &[run(3, 2), run(memory::RAM_MIN / PAGE - 1, 1)], None);
        assert_eq!(memory.read_obj::<[u8; 4]>(GuestAddress(3 * PAGE)).unwrap(), *b"data");
    }
}
