//! Programs for containers, beyond busybox's tools. The tests have no compiler, so the programs are written
//! as bytes: system calls with constant arguments, in an ELF file with one segment.

const BASE: u32 = 0x40_0000;
const HEADERS_BYTES: usize = 64 + 56;

/// The address after code of this length.
pub(crate) fn behind(code_bytes: usize) -> u32 {
    BASE + u32::try_from(HEADERS_BYTES + code_bytes).unwrap()
}

/// One system call: its number in `eax`, its arguments in `edi`, `esi`, `edx` and `r10d`.
pub(crate) fn call(number: u32, [first, second, third, fourth]: [u32; 4]) -> Vec<u8> {
    let mut code = Vec::new();
    for (load, value) in [(0xb8, number), (0xbf, first), (0xbe, second), (0xba, third)] {
        code.push(load);
        code.extend(value.to_le_bytes());
    }
    code.extend([0x41, 0xba]);
    code.extend(fourth.to_le_bytes());
    code.extend([0x0f, 0x05]); // syscall
    code
}

/// Ends the program with this status, unless the last call's result is zero or positive.
pub(crate) fn unless_negative(status: u32) -> Vec<u8> {
    exit_behind(0x79, status) // jns
}

/// An exit behind a jump over it.
pub(crate) fn exit_behind(jump: u8, status: u32) -> Vec<u8> {
    let exit = call(60, [status, 0, 0, 0]);
    let mut code = vec![0x85, 0xc0, jump, u8::try_from(exit.len()).unwrap()]; // test eax, eax
    code.extend(exit);
    code
}

/// A static x86-64 program. Its one segment is the whole file, with the entry after the headers (elf(5)).
pub(crate) fn elf(body: &[u8]) -> Vec<u8> {
    let entry = u64::from(BASE) + HEADERS_BYTES as u64;
    let length = (HEADERS_BYTES + body.len()) as u64;
    let mut file = b"\x7fELF\x02\x01\x01".to_vec(); // 64-bit, little-endian, version 1
    file.resize(16, 0);
    file.extend([2u16, 62].iter().flat_map(|half| half.to_le_bytes())); // ET_EXEC, EM_X86_64
    file.extend(1u32.to_le_bytes());
    file.extend([entry, 64, 0].iter().flat_map(|word| word.to_le_bytes()));
    file.extend(0u32.to_le_bytes());
    file.extend([64u16, 56, 1, 0, 0, 0].iter().flat_map(|half| half.to_le_bytes()));
    file.extend([1u32, 7].iter().flat_map(|word| word.to_le_bytes())); // PT_LOAD, to be read, written and executed
    let base = u64::from(BASE);
    file.extend([0, base, base, length, length, 0x1000].iter().flat_map(|word| word.to_le_bytes()));
    file.extend(body);
    file
}
