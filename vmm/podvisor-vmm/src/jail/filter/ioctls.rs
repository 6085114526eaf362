//! The ioctl numbers of the VMM's threads. Numbers and sizes follow the kernel's ABI
//! (include/uapi/linux/kvm.h and arch/x86/include/uapi/asm/kvm.h, if_tun.h, fs.h, userfaultfd.h).
//!
//! KVM_CREATE_VM is not among them: the VM exists before the filter, and the descriptor of KVM itself is
//! closed.

/// The most frequent first. The share has none.
pub(super) const ALL: &[u64] = &[
    // vCPUs.
    none(KVM, 0x80),        // KVM_RUN
    write(KVM, 0x61, 8),    // KVM_IRQ_LINE
    none(KVM, 0x41),        // KVM_CREATE_VCPU
    write(KVM, 0x90, 8),    // KVM_SET_CPUID2
    read(KVM, 0x81, 144),   // KVM_GET_REGS
    write(KVM, 0x82, 144),  // KVM_SET_REGS
    read(KVM, 0x83, 312),   // KVM_GET_SREGS
    write(KVM, 0x84, 312),  // KVM_SET_SREGS
    both(KVM, 0x88, 8),     // KVM_GET_MSRS
    write(KVM, 0x89, 8),    // KVM_SET_MSRS
    read(KVM, 0x8e, 1024),  // KVM_GET_LAPIC
    write(KVM, 0x8f, 1024), // KVM_SET_LAPIC
    read(KVM, 0x98, 4),     // KVM_GET_MP_STATE
    write(KVM, 0x99, 4),    // KVM_SET_MP_STATE
    read(KVM, 0x9f, 64),    // KVM_GET_VCPU_EVENTS
    write(KVM, 0xa0, 64),   // KVM_SET_VCPU_EVENTS
    read(KVM, 0xa1, 128),   // KVM_GET_DEBUGREGS
    write(KVM, 0xa2, 128),  // KVM_SET_DEBUGREGS
    none(KVM, 0xa3),        // KVM_GET_TSC_KHZ
    read(KVM, 0xa4, 4096),  // KVM_GET_XSAVE
    write(KVM, 0xa5, 4096), // KVM_SET_XSAVE
    read(KVM, 0xcf, 4096),  // KVM_GET_XSAVE2
    read(KVM, 0xa6, 392),   // KVM_GET_XCRS
    write(KVM, 0xa7, 392),  // KVM_SET_XCRS
    both(KVM, 0xd5, 64),    // KVM_PRE_FAULT_MEMORY
    // The VM.
    write(KVM, 0x46, 32), // KVM_SET_USER_MEMORY_REGION
    write(KVM, 0x76, 32), // KVM_IRQFD
    write(KVM, 0x79, 64), // KVM_IOEVENTFD
    both(KVM, 0x62, 520), // KVM_GET_IRQCHIP
    read(KVM, 0x63, 520), // KVM_SET_IRQCHIP
    write(KVM, 0x7b, 48), // KVM_SET_CLOCK
    read(KVM, 0x7c, 48),  // KVM_GET_CLOCK
    none(KVM, 0x03),      // KVM_CHECK_EXTENSION
    // Taps.
    write(TAP, 208, 4), // TUNSETOFFLOAD
    write(TAP, 209, 4), // TUNSETTXFILTER
    write(TAP, 216, 4), // TUNSETVNETHDRSZ
    // Sockets and terminals.
    0x5421, // FIONBIO
    // Disks on block devices.
    none(BLOCK, 104),    // BLKSSZGET
    none(BLOCK, 119),    // BLKDISCARD
    none(BLOCK, 127),    // BLKZEROOUT
    read(BLOCK, 114, 8), // BLKGETSIZE64
    // Pages of a saved VM.
    both(USERFAULT, 0x00, 32), // UFFDIO_REGISTER
    both(USERFAULT, 0x03, 40), // UFFDIO_COPY
];

const KVM: u64 = 0xae;
const TAP: u64 = b'T' as u64;
const BLOCK: u64 = 0x12;
const USERFAULT: u64 = 0xaa;

/// `_IO` (include/uapi/asm-generic/ioctl.h).
const fn none(kind: u64, number: u64) -> u64 {
    kind << 8 | number
}

/// `_IOW`, with the size of its structure in bytes.
const fn write(kind: u64, number: u64, bytes: u64) -> u64 {
    1 << 30 | bytes << 16 | none(kind, number)
}

/// `_IOR`.
const fn read(kind: u64, number: u64, bytes: u64) -> u64 {
    2 << 30 | bytes << 16 | none(kind, number)
}

/// `_IOWR`.
const fn both(kind: u64, number: u64, bytes: u64) -> u64 {
    3 << 30 | bytes << 16 | none(kind, number)
}
