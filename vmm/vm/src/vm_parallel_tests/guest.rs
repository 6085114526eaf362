//! The guest: one small program for all vCPUs. It carries out a script in guest memory, again and again. A
//! script is a list of operations, each with a place and a value. A test can thereby have a vCPU do
//! anything without machine code for it.
//!
//! ```text
//!          code │ states of vCPUs │ page tables │ scripts │ orderly rings and buffers │ rings │ buffers
//!   0x1000 ─────┘                                                          0x200000 ──┘       └── 0x400000
//! ```

use std::arch::global_asm;

use vm_memory::{Bytes as _, GuestAddress, GuestMemoryMmap};

use super::{CODE, GuestMemory, RawVm, VmError, registers, set_registers};
use crate::layout::{PAGE_TABLES, SLOTS};

/// States of vCPUs: place in the script, rounds through it, wrong answers, and the last of them.
const STATES: u64 = 0x2000;
const STATE_BYTES: u64 = 64;

/// Scripts of vCPUs, and the bytes of each.
const SCRIPTS: u64 = 0x10_0000;
const SCRIPT_BYTES: u64 = 0x2_0000;

/// Bytes of an operation.
const OPERATION_BYTES: usize = 24;

global_asm!(
    ".pushsection .rodata.podvisor_guest, \"a\"",
    ".global podvisor_parallel_guest",
    ".global podvisor_parallel_guest_end",
    "podvisor_parallel_guest:",
    // rdi: this vCPU's state. r15: seed of random words.
    "20: mov rsi, [rdi]",
    "21: mov rax, [rsi]",
    "mov rbx, [rsi + 8]",
    "mov rcx, [rsi + 16]",
    "add rsi, 24",
    "test eax, eax",
    "jz 30f",
    "dec eax",
    "jz 31f",
    "dec eax",
    "jz 32f",
    "dec eax",
    "jz 33f",
    "dec eax",
    "jz 34f",
    "dec eax",
    "jz 35f",
    "dec eax",
    "jz 36f",
    "jmp 37f",
    // The end: one round more.
    "30: lock inc qword ptr [rdi + 8]",
    "jmp 20b",
    // 32 bits, as registers are written.
    "31: mov dword ptr [rbx], ecx",
    "jmp 21b",
    // A port, of 32 bits, as doorbells are.
    "32: mov edx, ebx",
    "mov eax, ecx",
    "out dx, eax",
    "jmp 21b",
    // Adds to 16 bits, as the count of available chains is.
    "33: lock add word ptr [rbx], cx",
    "jmp 21b",
    // 64 bits of memory.
    "34: mov qword ptr [rbx], rcx",
    "jmp 21b",
    // Waits until 16 bits are as those elsewhere.
    "35: pause",
    "mov ax, word ptr [rcx]",
    "cmp ax, word ptr [rbx]",
    "jne 35b",
    "jmp 21b",
    // Counts 64 bits other than expected.
    "36: mov rax, [rbx]",
    "cmp rax, rcx",
    "je 21b",
    "inc qword ptr [rdi + 16]",
    "mov [rdi + 24], rbx",
    "mov [rdi + 32], rax",
    "jmp 21b",
    // A random word at a place: 16 bits, masked by rcx.
    "37: mov rax, r15",
    "shl rax, 13",
    "xor r15, rax",
    "mov rax, r15",
    "shr rax, 7",
    "xor r15, rax",
    "mov rax, r15",
    "shl rax, 17",
    "xor r15, rax",
    "mov rax, r15",
    "and rax, rcx",
    "mov word ptr [rbx], ax",
    "jmp 21b",
    "podvisor_parallel_guest_end:",
    ".popsection",
);

unsafe extern "C" {
    static podvisor_parallel_guest: u8;
    static podvisor_parallel_guest_end: u8;
}

/// An operation of a script. Places are guest-physical addresses.
#[derive(Clone, Copy, Debug)]
pub(super) enum Operation {
    /// Writes 32 bits of memory or of a register.
    Store32(u64, u32),
    /// Writes to a port.
    Out(u16, u32),
    /// Adds to 16 bits.
    Add16(u64, u16),
    /// Writes 64 bits of memory.
    Store64(u64, u64),
    /// Waits until the 16 bits at both places are the same.
    Wait(u64, u64),
    /// Counts a wrong answer.
    Expect64(u64, u64),
    /// Writes 16 random bits, as far as the mask has them.
    Mix16(u64, u16),
}

impl Operation {
    fn words(self) -> [u64; 3] {
        match self {
            Operation::Store32(place, value) => [1, place, value.into()],
            Operation::Out(port, value) => [2, port.into(), value.into()],
            Operation::Add16(place, value) => [3, place, value.into()],
            Operation::Store64(place, value) => [4, place, value],
            Operation::Wait(place, other) => [5, place, other],
            Operation::Expect64(place, value) => [6, place, value],
            Operation::Mix16(place, mask) => [7, place, mask.into()],
        }
    }
}

/// Work of a vCPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Done {
    /// Rounds through its script.
    pub(super) rounds: u64,
    /// Wrong answers, the last one's place, and the value there.
    pub(super) wrong: [u64; 3],
}

fn code() -> &'static [u8] {
    let (begin, end) = (&raw const podvisor_parallel_guest, &raw const podvisor_parallel_guest_end);
    // SAFETY: both lie in one section of this program, the second behind the first. The part between them
    // never changes.
    unsafe { std::slice::from_raw_parts(begin, end.addr() - begin.addr()) }
}

/// Lays the guest out in memory, and has all vCPUs begin with it.
pub(super) fn load(raw: &RawVm<'_>, scripts: &[Vec<Operation>]) -> Result<(), VmError> {
    registers::write_tables(raw.memory)?;
    map_slots(raw.memory);
    raw.memory.write_slice(code(), GuestAddress(CODE)).unwrap();
    for (number, (fd, script)) in (0u64..).zip(raw.vcpus.iter().zip(scripts)) {
        write_script(raw.memory, number, script);
        let state = STATES + number * STATE_BYTES;
        raw.memory.write_obj(SCRIPTS + number * SCRIPT_BYTES, GuestAddress(state)).unwrap();
        set_registers(fd, GuestAddress(CODE))?;
        let mut general = fd.get_regs().unwrap();
        (general.rdi, general.r15) = (state, 0x9e37_79b9_7f4a_7c15 ^ number);
        fd.set_regs(&general).unwrap();
        // Nobody has to wake it up.
        fd.set_mp_state(kvm_bindings::kvm_mp_state { mp_state: kvm_bindings::KVM_MP_STATE_RUNNABLE })
            .unwrap();
    }
    Ok(())
}

/// Maps the slots' registers onto themselves.
fn map_slots(memory: &GuestMemoryMmap) {
    let directory = PAGE_TABLES.0 + 4 * 4096;
    memory.write_obj(directory | 3, GuestAddress(PAGE_TABLES.0 + 4096 + 8 * (SLOTS >> 30))).unwrap();
    let page = SLOTS >> 21 & 511;
    memory.write_obj(SLOTS | 0x83, GuestAddress(directory + 8 * page)).unwrap();
}

/// Gives a vCPU another script, for its next operation. The vCPU must not be in the guest.
pub(super) fn write_script(memory: &GuestMemoryMmap, vcpu: u64, script: &[Operation]) {
    assert!((script.len() + 1) * OPERATION_BYTES <= SCRIPT_BYTES as usize);
    let operations = script.iter().map(|operation| operation.words()).chain([[0; 3]]);
    let bytes: Vec<u8> = operations.flatten().flat_map(u64::to_le_bytes).collect();
    memory.write_slice(&bytes, GuestAddress(SCRIPTS + vcpu * SCRIPT_BYTES)).unwrap();
}

/// Work of a vCPU so far.
pub(super) fn done(memory: &GuestMemory, vcpu: u64) -> Done {
    let words: [u64; 5] = memory.writable().read_obj(GuestAddress(STATES + vcpu * STATE_BYTES)).unwrap();
    Done { rounds: words[1], wrong: [words[2], words[3], words[4]] }
}
