//! Requests of a FUSE driver (Linux `include/uapi/linux/fuse.h`): the layout of each, with content of the fuzzer's.

use crate::bytes::Bytes;
use crate::share::NAMES;

/// Bytes of the header before each request, and before each answer.
pub const HEADER_BYTES: usize = 40;
pub const ANSWER_BYTES: usize = 16;

const SYMLINK: u8 = 6;
const WRITE: u8 = 16;
const INIT: u8 = 26;
const SETLKW: u8 = 33;
const FORGET: u8 = 2;
const BATCH_FORGET: u8 = 42;
const SETXATTR: u8 = 21;

/// Opcodes that a request may have without being made up.
const OPCODES: [u8; 43] = [
    1, 2, 3, 4, 5, 6, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30,
    31, 32, 33, 34, 35, 36, 37, 38, 39, 40, 42, 43, 44, 45, 46,
];

/// Attributes that a request may name.
const ATTRIBUTES: [&str; 6] = [
    "user.a",
    "user.b",
    "trusted.a",
    "security.capability",
    "system.posix_acl_access",
    "system.posix_acl_default",
];

/// A request.
#[derive(Clone, Debug)]
pub struct Request {
    /// Header and body.
    pub message: Vec<u8>,
    /// Whether the driver waits for an answer that comes by itself.
    pub is_answered: bool,
}

/// The request that mounts the share.
#[must_use]
pub fn init() -> Request {
    let mut body = Vec::new();
    for word in [7u32, 38, 0x2_0000, u32::MAX, u32::MAX] {
        body.extend(word.to_le_bytes());
    }
    body.resize(64, 0);
    request(INIT, 1, 0, body)
}

/// A request of the fuzzer's.
#[must_use]
pub fn read(input: &mut Bytes<'_>) -> Request {
    let choice = input.u8();
    let opcode = if choice == u8::MAX { input.u8() } else { OPCODES[usize::from(choice) % OPCODES.len()] };
    if opcode == INIT {
        return init();
    }
    let node = input.u8();
    let node = if node == u8::MAX { input.u64() } else { u64::from(node % 24) };
    let user = [0, 0, 0, 1000][input.below(4)];
    let body = body(opcode, input);
    let mut request = request(opcode, node, user, body);
    // Now and then the length is a lie.
    if choice & 0xc0 == 0x40 && input.u8() == 1 {
        request.message[..4].copy_from_slice(&input.u32().to_le_bytes());
        request.is_answered = false;
    }
    request
}

fn request(opcode: u8, node: u64, user: u32, body: Vec<u8>) -> Request {
    let mut message = Vec::with_capacity(HEADER_BYTES + body.len());
    message.extend(((HEADER_BYTES + body.len()) as u32).to_le_bytes());
    message.extend(u32::from(opcode).to_le_bytes());
    message.extend(7u64.to_le_bytes());
    message.extend(node.to_le_bytes());
    for word in [user, user, 1, 0] {
        message.extend(word.to_le_bytes());
    }
    message.extend(body);
    Request { message, is_answered: !matches!(opcode, SETLKW | FORGET | BATCH_FORGET) }
}

fn words(values: &[u32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

fn name(input: &mut Bytes<'_>) -> Vec<u8> {
    let choice = input.u8();
    let mut name = match choice {
        255 => vec![b'x'; 300],
        254 => input.take(8).to_vec(),
        _ => NAMES[usize::from(choice) % NAMES.len()].as_bytes().to_vec(),
    };
    name.push(0);
    name
}

/// Files are given handles in order, from 1 on.
fn handle(input: &mut Bytes<'_>) -> Vec<u8> {
    let handle = u64::from(input.u8() % 12);
    handle.to_le_bytes().to_vec()
}

fn flags(input: &mut Bytes<'_>) -> u32 {
    const FLAGS: [i32; 8] = [
        libc::O_RDONLY,
        libc::O_RDWR,
        libc::O_WRONLY | libc::O_TRUNC,
        libc::O_RDWR | libc::O_CREAT | libc::O_EXCL,
        libc::O_RDWR | libc::O_CREAT,
        libc::O_PATH,
        libc::O_DIRECTORY,
        libc::O_WRONLY | libc::O_APPEND,
    ];
    FLAGS[input.below(FLAGS.len())] as u32
}

fn place(input: &mut Bytes<'_>) -> [u8; 8] {
    let place = input.u16();
    // Mostly within a file, now and then far behind.
    if place < 0xf000 { u64::from(place) } else { u64::from(place) << 44 }.to_le_bytes()
}

/// Length and position of a transfer, `fuse_read_in` and `fuse_write_in`.
fn transfer(input: &mut Bytes<'_>, length: u32) -> Vec<u8> {
    let mut body = handle(input);
    body.extend(place(input));
    body.extend(words(&[length, u32::from(input.u8() & 7), 0, 0, 0, 0]));
    body
}

fn body(opcode: u8, input: &mut Bytes<'_>) -> Vec<u8> {
    let mode = |input: &mut Bytes<'_>| {
        [0o100_644, 0o104_755, 0o040_755, 0o010_600, 0o140_600, 0o020_666, 0o060_666, 0][input.below(8)]
    };
    match opcode {
        1 | 10 | 11 => name(input),
        SYMLINK => [name(input), name(input)].concat(),
        FORGET => u64::from(input.u8()).to_le_bytes().to_vec(),
        3 => [words(&[u32::from(input.u8() & 1), 0]), handle(input)].concat(),
        4 => set_attributes(input),
        8 => [words(&[mode(input), u32::from(input.u16()), 0o22, 0]), name(input)].concat(),
        9 => [words(&[mode(input), 0o22]), name(input)].concat(),
        12 => [u64::from(input.u8() % 24).to_le_bytes().to_vec(), name(input), name(input)].concat(),
        45 => {
            let (to, flags) = (u64::from(input.u8() % 24), u32::from(input.u8() % 8));
            [to.to_le_bytes().to_vec(), words(&[flags, 0]), name(input), name(input)].concat()
        }
        13 => [u64::from(input.u8() % 24).to_le_bytes().to_vec(), name(input)].concat(),
        14 | 27 => words(&[flags(input), 0]),
        15 | 28 | 44 => {
            let length = u32::from(input.u16());
            transfer(input, length)
        }
        WRITE => {
            let content = input.take(16).to_vec();
            [transfer(input, content.len() as u32), content].concat()
        }
        18 | 29 => [handle(input), words(&[0, u32::from(input.u8() & 3), 0, 0])].concat(),
        20 | 30 => [handle(input), words(&[u32::from(input.u8() & 1), 0])].concat(),
        SETXATTR => {
            let (name, value) = (attribute(input), input.take(24).to_vec());
            [words(&[value.len() as u32, u32::from(input.u8() & 3)]), name, value].concat()
        }
        22 => [words(&[u32::from(input.u8()), 0]), attribute(input)].concat(),
        23 => words(&[u32::from(input.u8()), 0]),
        24 => attribute(input),
        25 => [handle(input), words(&[0, 0, 1, 0])].concat(),
        31..=33 => lock(input),
        34 => words(&[u32::from(input.u8() & 7), 0]),
        35 => [words(&[flags(input), mode(input), 0o22, 0]), name(input)].concat(),
        36 => 7u64.to_le_bytes().to_vec(),
        43 => {
            let (mode, length) = (u32::from(input.u8()), place(input).to_vec());
            [handle(input), place(input).to_vec(), length, words(&[mode, 0])].concat()
        }
        46 => [handle(input), place(input).to_vec(), words(&[u32::from(input.u8() % 6), 0])].concat(),
        BATCH_FORGET => {
            let count = input.u8();
            [words(&[u32::from(count), 0]), input.take(16 * usize::from(count % 8)).to_vec()].concat()
        }
        17 | 38 | 5 => Vec::new(),
        _ => input.take(64).to_vec(),
    }
}

fn attribute(input: &mut Bytes<'_>) -> Vec<u8> {
    let mut name = ATTRIBUTES[input.below(ATTRIBUTES.len())].as_bytes().to_vec();
    name.push(0);
    name
}

/// `fuse_setattr_in`.
fn set_attributes(input: &mut Bytes<'_>) -> Vec<u8> {
    let mut body = words(&[u32::from(input.u16() & 0x7ff), 0]);
    body.extend(handle(input));
    body.extend(place(input));
    body.resize(68, 0);
    body.extend(words(&[
        u32::from(input.u16()) & 0o7777,
        0,
        u32::from(input.u8()),
        u32::from(input.u8()),
        0,
    ]));
    body
}

/// `fuse_lk_in`.
fn lock(input: &mut Bytes<'_>) -> Vec<u8> {
    let owner = u64::from(input.u8() % 4).to_le_bytes().to_vec();
    let (start, end) = (place(input).to_vec(), place(input).to_vec());
    let kind = u32::from(input.u8() % 4);
    [handle(input), owner, start, end, words(&[kind, 1, u32::from(input.u8() & 1), 0])].concat()
}
