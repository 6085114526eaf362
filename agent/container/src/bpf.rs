//! BPF instructions in the kernel's layout, and the operations of the agent's programs. [`crate::devices`]
//! writes the programs, and [`crate::syscall`] loads them.

/// One BPF instruction: `struct bpf_insn`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Instruction {
    pub(crate) code: u8,
    /// Destination in the low four bits, source in the high ones.
    pub(crate) registers: u8,
    pub(crate) offset: i16,
    pub(crate) immediate: i32,
}

// Operation codes, `include/uapi/linux/bpf_common.h` and `bpf.h`.
pub(crate) const LOAD_WORD: u8 = 0x61;
pub(crate) const MOVE: u8 = 0xb7;
pub(crate) const MOVE_REGISTER: u8 = 0xbf;
pub(crate) const AND: u8 = 0x57;
pub(crate) const SHIFT_RIGHT: u8 = 0x77;
pub(crate) const JUMP_UNLESS_EQUAL: u8 = 0x55;
pub(crate) const JUMP_IF_EQUAL: u8 = 0x15;
pub(crate) const EXIT: u8 = 0x95;

/// One instruction; `offset` belongs to jumps and loads.
pub(crate) fn instruction(code: u8, to: u8, from: u8, offset: i16, immediate: i32) -> Instruction {
    Instruction { code, registers: from << 4 | to, offset, immediate }
}
