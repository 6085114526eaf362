//! The map of guest-physical memory. This module has addresses only; each module writes to its own.
//!
//! ```text
//!          0 ┌────────────────────────────┐
//!            │ RAM: GDT, zero page, page  │
//!            │ tables, command line       │
//!    0x9f000 ├────────────────────────────┤ MP table; not in the guest's e820 map
//!   0x100000 ├────────────────────────────┤ RAM: the kernel at 16 MiB, the rest free
//!      3 GiB ├────────────────────────────┤ MMIO gap
//! 0xd0000000 │ virtio-mmio slots, 4 KiB each
//! 0xfec00000 │ I/O APIC    0xfee00000 local APIC (both in KVM)
//! 0xfffbc000 │ KVM's identity map page and TSS (Intel)
//!      4 GiB ├────────────────────────────┤ RAM beyond 3 GiB
//!  next 2 GiB├────────────────────────────┤ room for plugged memory, 128 MiB blocks
//!  next GiB  ├────────────────────────────┤ pmem windows, 2 MiB aligned, up to the CPU's limit
//!            └────────────────────────────┘
//! ```

use vm_memory::GuestAddress;

/// The boot GDT.
pub(crate) const GDT: GuestAddress = GuestAddress(0x500);
/// struct boot_params (Documentation/arch/x86/zero-page.rst).
pub(crate) const ZERO_PAGE: GuestAddress = GuestAddress(0x7000);
/// Initial stack pointer; the kernel replaces it at once.
pub(crate) const BOOT_STACK: u64 = 0x8ff0;
/// Page map level 4, followed by one page-directory pointer table and one page directory.
pub(crate) const PAGE_TABLES: GuestAddress = GuestAddress(0x9000);
/// The kernel's command line.
pub(crate) const COMMAND_LINE: GuestAddress = GuestAddress(0x2_0000);
/// End of the low RAM in the guest's memory map; the MP table follows.
pub(crate) const LOW_RAM_END: u64 = 0x9_f000;
/// The MP configuration table.
pub(crate) const MP_TABLE: GuestAddress = GuestAddress(LOW_RAM_END);
/// The MP floating pointer: Linux scans the last KiB of base memory (`mpparse_find_mptable`).
pub(crate) const MP_POINTER: GuestAddress = GuestAddress(0x9_fc00);
/// RAM above the first MiB.
pub(crate) const HIGH_RAM: u64 = 0x10_0000;
/// RAM ends here and goes on at [`MMIO_GAP_END`].
pub(crate) const MMIO_GAP: u64 = 3 << 30;
/// End of the MMIO gap.
pub(crate) const MMIO_GAP_END: u64 = 4 << 30;
/// Registers of virtio-mmio slot 0.
pub(crate) const SLOTS: u64 = 0xd000_0000;
/// Bytes between two slots' registers.
pub(crate) const SLOT_STRIDE: u64 = 0x1000;
/// I/O port for notifying slot 0's queues. The guest kernel's driver finds another slot's port by its
/// registers' address (guest-image/kernel/build.sh).
pub(crate) const DOORBELLS: u16 = 0x6000;
/// Ports between two slots' doorbells: a doorbell takes 32 bits.
pub(crate) const DOORBELL_STRIDE: u16 = 4;
/// KVM's emulated I/O APIC.
pub(crate) const IO_APIC: u32 = 0xfec0_0000;
/// KVM's emulated local APICs.
pub(crate) const LOCAL_APIC: u32 = 0xfee0_0000;
/// One page for KVM's identity map, below the TSS (KVM_SET_IDENTITY_MAP_ADDR).
pub(crate) const IDENTITY_MAP: u64 = 0xfffb_c000;
/// Three pages for KVM's real-mode TSS (KVM_SET_TSS_ADDR).
pub(crate) const TSS: usize = 0xfffb_d000;
/// Alignment of pmem windows and of RAM: the size of one entry of a guest page table.
pub(crate) const LARGE_PAGE: u64 = 2 << 20;

/// Address of a slot's registers.
pub(crate) fn slot_address(slot: u8) -> u64 {
    SLOTS + u64::from(slot) * SLOT_STRIDE
}

/// I/O port of a slot's doorbell.
pub(crate) fn doorbell(slot: u8) -> u16 {
    DOORBELLS + u16::from(slot) * DOORBELL_STRIDE
}

/// Returns the first address of pmem windows above memory ending at `top`: the next GiB, at least 4 GiB.
pub(crate) fn pmem_base(top: u64) -> u64 {
    top.max(MMIO_GAP_END).next_multiple_of(1 << 30)
}
