//! A vCPU's first registers: 64-bit mode by the Linux boot protocol (Documentation/arch/x86/boot.rst, "64-bit
//! Boot Protocol"), with GDT and page tables in guest memory.

use kvm_bindings::{kvm_dtable, kvm_regs, kvm_segment, kvm_sregs};
use vm_memory::{Address, Bytes, GuestAddress, GuestMemoryMmap};

use super::error::BootError;
use crate::layout::{BOOT_STACK, GDT, PAGE_TABLES, ZERO_PAGE};

/// The protocol's selectors (__BOOT_CS, __BOOT_DS), and a TSS, because VMX insists on one.
const CODE: u16 = 0x10;
const DATA: u16 = 0x18;
const TASK: u16 = 0x20;

const CR0_PE: u64 = 1;
const CR0_ET: u64 = 1 << 4;
const CR0_PG: u64 = 1 << 31;
const CR4_PAE: u64 = 1 << 5;
const EFER_LME: u64 = 1 << 8;
const EFER_LMA: u64 = 1 << 10;

/// Page table entry bits: present, writable; and in a directory a 2 MiB page.
const TABLE: u64 = 0x03;
const LARGE: u64 = 0x83;
const TABLE_BYTES: u64 = 4096;

/// General registers at the kernel's `entry`.
pub(crate) fn general(entry: GuestAddress) -> kvm_regs {
    kvm_regs {
        rip: entry.0,
        rsi: ZERO_PAGE.0,
        rsp: BOOT_STACK,
        rbp: BOOT_STACK,
        rflags: 2,
        ..Default::default()
    }
}

/// Returns `sregs` of a fresh vCPU, set to 64-bit mode.
pub(crate) fn special(mut sregs: kvm_sregs) -> kvm_sregs {
    // Execute/read, accessed; read/write, accessed; busy 64-bit TSS.
    let code = segment(CODE, 0xb, true);
    let data = segment(DATA, 0x3, false);
    sregs.cs = kvm_segment { l: 1, db: 0, ..code };
    (sregs.ds, sregs.es, sregs.fs, sregs.gs, sregs.ss) = (data, data, data, data, data);
    sregs.tr = kvm_segment { s: 0, g: 0, limit: 0xffff, db: 0, ..segment(TASK, 0xb, false) };
    sregs.gdt = kvm_dtable { base: GDT.0, limit: 8 * 6 - 1, ..Default::default() };
    sregs.cr3 = PAGE_TABLES.0;
    sregs.cr4 |= CR4_PAE;
    sregs.cr0 |= CR0_PE | CR0_ET | CR0_PG;
    sregs.efer |= EFER_LME | EFER_LMA;
    sregs
}

fn segment(selector: u16, kind: u8, long: bool) -> kvm_segment {
    kvm_segment {
        base: 0,
        limit: 0xffff_ffff,
        selector,
        type_: kind,
        present: 1,
        dpl: 0,
        db: 1,
        s: 1,
        l: u8::from(long),
        g: 1,
        ..Default::default()
    }
}

/// Writes the GDT for [`special`], and page tables for an identity mapping of the first GiB.
pub(crate) fn write_tables(memory: &GuestMemoryMmap) -> Result<(), BootError> {
    // Flat 64-bit code, flat data, and a TSS of two entries.
    let gdt: [u64; 6] = [0, 0, 0x00af_9b00_0000_ffff, 0x00cf_9300_0000_ffff, 0x0000_8b00_0000_ffff, 0];
    for (index, entry) in (0u64..).zip(gdt) {
        memory.write_obj(entry.to_le(), GDT.unchecked_add(index * 8))?;
    }
    let pointers = PAGE_TABLES.unchecked_add(TABLE_BYTES);
    let directory = pointers.unchecked_add(TABLE_BYTES);
    memory.write_obj((pointers.0 | TABLE).to_le(), PAGE_TABLES)?;
    memory.write_obj((directory.0 | TABLE).to_le(), pointers)?;
    for index in 0..512u64 {
        memory.write_obj(((index << 21) | LARGE).to_le(), directory.unchecked_add(index * 8))?;
    }
    Ok(())
}
