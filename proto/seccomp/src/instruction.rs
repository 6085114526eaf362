//! One instruction of classic BPF. The codes are defined in include/uapi/linux/filter.h and bpf_common.h.

use crate::INSTRUCTION_BYTES;

/// Loads a word of `struct seccomp_data` into the accumulator.
pub(crate) const LOAD_WORD: u16 = 0x20;
/// Loads a word of the program's own memory.
pub(crate) const LOAD_MEMORY: u16 = 0x60;
/// Stores the accumulator in the program's own memory.
pub(crate) const STORE: u16 = 0x02;
pub(crate) const AND: u16 = 0x54;
pub(crate) const JUMP: u16 = 0x05;
pub(crate) const JUMP_IF_EQUAL: u16 = 0x15;
pub(crate) const JUMP_IF_GREATER: u16 = 0x25;
pub(crate) const JUMP_IF_NOT_LESS: u16 = 0x35;
pub(crate) const JUMP_IF_ANY_BIT: u16 = 0x45;
pub(crate) const RETURN: u16 = 0x06;

/// Offsets in `struct seccomp_data` (include/uapi/linux/seccomp.h).
pub(crate) const NUMBER: u32 = 0;
pub(crate) const ARCHITECTURE: u32 = 4;

/// `AUDIT_ARCH_X86_64` and `AUDIT_ARCH_I386` (include/uapi/linux/audit.h). The guest's kernel has no other
/// architecture.
pub(crate) const X86_64: u32 = 0xc000_003e;
pub(crate) const I386: u32 = 0x4000_0003;

/// `struct sock_filter`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Instruction {
    pub(crate) code: u16,
    /// Number of instructions skipped by a conditional jump.
    pub(crate) if_true: u8,
    pub(crate) if_false: u8,
    pub(crate) value: u32,
}

impl Instruction {
    /// An instruction without a conditional jump.
    pub(crate) fn plain(code: u16, value: u32) -> Instruction {
        Instruction { code, if_true: 0, if_false: 0, value }
    }

    pub(crate) fn to_bytes(self) -> [u8; INSTRUCTION_BYTES] {
        let [code_low, code_high] = self.code.to_ne_bytes();
        let [a, b, c, d] = self.value.to_ne_bytes();
        [code_low, code_high, self.if_true, self.if_false, a, b, c, d]
    }

    fn from_bytes(
        [code_low, code_high, if_true, if_false, a, b, c, d]: [u8; INSTRUCTION_BYTES],
    ) -> Instruction {
        Instruction {
            code: u16::from_ne_bytes([code_low, code_high]),
            if_true,
            if_false,
            value: u32::from_ne_bytes([a, b, c, d]),
        }
    }
}

/// The whole instructions of a program.
pub(crate) fn instructions(program: &[u8]) -> Vec<Instruction> {
    program.as_chunks().0.iter().copied().map(Instruction::from_bytes).collect()
}
