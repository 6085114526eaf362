//! A guest of a few instructions as a kernel's file. `tests/red-team` boots such guests, too.

/// Where the code is loaded and entered.
const ENTRY: u64 = 0x10_0000;

/// An ELF file with one segment: `code` at [`ENTRY`].
pub(crate) fn kernel(code: &[u8]) -> Vec<u8> {
    let length = code.len() as u64;
    let mut elf = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
    // An executable for x86-64, version 1.
    elf.extend([2u16, 0x3e].map(u16::to_le_bytes).concat());
    elf.extend(1u32.to_le_bytes());
    elf.extend([ENTRY, 64, 0].map(u64::to_le_bytes).concat());
    elf.extend(0u32.to_le_bytes());
    elf.extend([64u16, 56, 1, 0, 0, 0].map(u16::to_le_bytes).concat());
    // One loaded segment, readable and executable, from the second page of the file.
    elf.extend([1u32, 5].map(u32::to_le_bytes).concat());
    elf.extend([0x1000, ENTRY, ENTRY, length, length, 0x1000].map(u64::to_le_bytes).concat());
    elf.resize(0x1000, 0);
    elf.extend(code);
    elf
}
