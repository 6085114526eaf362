//! Requests as drivers make them, with content of the fuzzer's: headers in guest memory, and the chain of buffers for them.

use vmm_devices::virtio::GuestMemory;

use crate::bytes::Bytes;
use crate::fuse;
use crate::host::{GUEST_CID, HOST_PORTS, Kind};
use crate::memory::{IMAGE, RAM, ROOM};
use crate::queue::Buffer;

/// Where requests lie, behind the rings of all slots; each has a place of its own for a while.
const SCRATCH: u64 = 0x5000;
const PLACE_BYTES: u64 = 0x400;
const PLACES: u64 = 40;

/// Where the answer to a request on files lies in its place, and its bytes.
const ANSWER: u64 = 0x200;

/// Buffers of a chain that the fuzzer makes up.
const BUFFERS_MAX: usize = 6;

/// Places for requests, one after the other.
#[derive(Debug, Default)]
pub struct Scratch(u64);

impl Scratch {
    fn next(&mut self) -> u64 {
        self.0 += 1;
        SCRATCH + self.0 % PLACES * PLACE_BYTES
    }
}

/// An address of interest: in one of the parts of memory, at an end, or anywhere.
pub fn address(input: &mut Bytes<'_>) -> u64 {
    let (zone, place) = (input.u8(), u64::from(input.u16()));
    match zone {
        0..140 => SCRATCH + place % 0xb000,
        140..160 => place,
        160..180 => RAM[0].1 as u64 - 64 + place % 128,
        180..200 => RAM[1].0 + place % (RAM[1].1 as u64 + 64),
        200..220 => ROOM.0 + place * 128,
        220..240 => IMAGE.0 + place % (IMAGE.1 as u64 + 64),
        _ => input.u64(),
    }
}

fn length(input: &mut Bytes<'_>) -> u32 {
    let short = input.u16();
    match short {
        0..0xff00 => u32::from(short % 0x1400),
        _ => input.u32(),
    }
}

/// A buffer anywhere.
pub fn buffer(input: &mut Bytes<'_>) -> Buffer {
    let writable = input.u8() & 1 == 1;
    Buffer { address: address(input), length: length(input), writable }
}

fn read(address: u64, length: usize) -> Buffer {
    Buffer { address, length: length as u32, writable: false }
}

fn written(address: u64, length: usize) -> Buffer {
    Buffer { address, length: length as u32, writable: true }
}

/// Makes a request for queue `queue` of a device.
pub fn make(
    kind: Kind,
    queue: usize,
    memory: &GuestMemory,
    scratch: &mut Scratch,
    input: &mut Bytes<'_>,
) -> Vec<Buffer> {
    let place = scratch.next();
    match (kind, queue) {
        (Kind::Blk, _) => disk(place, memory, input),
        (Kind::Net, 1) => {
            let mut frame = [0; 12 + 48];
            let content = input.take(48);
            frame[12..12 + content.len()].copy_from_slice(content);
            crate::memory::write(memory, place, &frame);
            vec![read(place, frame.len()), Buffer { writable: false, ..buffer(input) }]
        }
        (Kind::Net, 2) => {
            let content = input.take(48);
            crate::memory::write(memory, place, &[&[input.u8() % 5, input.u8() % 5], content].concat());
            vec![read(place, 2), read(place + 2, content.len()), written(place + 0x100, 1)]
        }
        (Kind::Vsock, 1) => packet(place, memory, input),
        (Kind::Net, _) | (Kind::Vsock, _) | (Kind::Rng, _) => {
            vec![Buffer { writable: true, ..buffer(input) }]
        }
        (Kind::Balloon, _) => {
            let page = |input: &mut Bytes<'_>| Buffer {
                address: address(input) & !0xfff,
                length: 4096 * u32::from(1 + input.u8() % 4),
                writable: true,
            };
            (0..1 + input.below(4)).map(|_| page(input)).collect()
        }
        (Kind::Fs, _) => {
            let mut chain = share(&fuse::read(input).message, memory, scratch);
            if input.u8() & 7 == 7 {
                chain[1] = Buffer { writable: true, ..buffer(input) };
            }
            chain
        }
        (Kind::Pmem, _) => {
            crate::memory::write(memory, place, &u32::from(input.u8() % 2).to_le_bytes());
            vec![read(place, 4), written(place + 8, 4)]
        }
        (Kind::Mem, _) => {
            let mut request = [0; 24];
            request[0] = input.u8() % 5;
            let block = ROOM.0 + (u64::from(input.u8() % 5) << 21);
            request[8..16].copy_from_slice(&block.to_le_bytes());
            request[16] = input.u8() % 5;
            crate::memory::write(memory, place, &request);
            vec![read(place, request.len()), written(place + 0x40, 10)]
        }
    }
}

/// A request to a share, and room for its answer.
pub fn share(message: &[u8], memory: &GuestMemory, scratch: &mut Scratch) -> Vec<Buffer> {
    let (place, length) = (scratch.next(), message.len().min(ANSWER as usize));
    crate::memory::write(memory, place, &message[..length]);
    vec![read(place, length), written(place + ANSWER, ANSWER as usize)]
}

/// Header, data and status (virtio 1.2, section 5.2.6).
fn disk(place: u64, memory: &GuestMemory, input: &mut Bytes<'_>) -> Vec<Buffer> {
    const TYPES: [u32; 8] = [0, 1, 4, 8, 11, 13, 0, 1];
    let choice = input.u8();
    let kind = if choice < 250 { TYPES[usize::from(choice % 8)] } else { input.u32() };
    let sector = input.u8();
    let sector = if sector < 250 { u64::from(sector % 36) } else { input.u64() };
    let mut header = [0; 16];
    header[..4].copy_from_slice(&kind.to_le_bytes());
    header[8..].copy_from_slice(&sector.to_le_bytes());
    crate::memory::write(memory, place, &header);
    let status = written(place + 0x20, 1);
    if matches!(kind, 11 | 13) {
        let mut range = [0; 16];
        range[..8].copy_from_slice(&u64::from(input.u8() % 36).to_le_bytes());
        range[8] = input.u8() % 36;
        range[12] = input.u8() & 1;
        crate::memory::write(memory, place + 0x40, &range);
        return vec![read(place, 16), read(place + 0x40, 16), status];
    }
    let writable = kind != 1;
    let data = (0..input.below(3)).map(|_| {
        let length = 512 * u32::from(input.u8() % 6);
        Buffer { address: address(input), length, writable }
    });
    let data: Vec<_> = data.collect();
    [vec![read(place, 16)], data, vec![status]].concat()
}

/// A packet (virtio 1.2, section 5.10.6).
fn packet(place: u64, memory: &GuestMemory, input: &mut Bytes<'_>) -> Vec<Buffer> {
    let header = packet_header(input);
    crate::memory::write(memory, place, &header);
    let payload = Buffer { writable: false, ..buffer(input) };
    vec![read(place, header.len()), payload]
}

/// A packet's header, most of whose fields make sense.
pub fn packet_header(input: &mut Bytes<'_>) -> [u8; 44] {
    let (odd, ports, op) = (input.u8(), input.u8(), input.u8());
    let mut header = [0; 44];
    header[..8].copy_from_slice(&u64::from(GUEST_CID).to_le_bytes());
    header[8..16].copy_from_slice(&2u64.to_le_bytes());
    header[16..20].copy_from_slice(&u32::from(ports & 3).to_le_bytes());
    // A port that the guest dials, or one that the host has dialled from.
    let host = match ports >> 2 & 7 {
        choice @ 0..3 => HOST_PORTS[usize::from(choice)],
        3 => 80,
        choice => (1 << 30) + u32::from(choice) - 4,
    };
    header[20..24].copy_from_slice(&host.to_le_bytes());
    header[24..28].copy_from_slice(&u32::from(input.u16()).to_le_bytes());
    header[28] = 1;
    header[30] = op % 9;
    header[32] = ports >> 6;
    let credit = [0x4_0000, 0, 1, 0x1000, u32::MAX][usize::from(odd & 7) % 5];
    header[36..40].copy_from_slice(&credit.to_le_bytes());
    header[40..44].copy_from_slice(&u32::from(input.u8()).to_le_bytes());
    if odd >= 0xf0 {
        header[usize::from(input.u8()) % 44] = input.u8();
    }
    header
}

/// A chain of the fuzzer's.
pub fn made_up(input: &mut Bytes<'_>) -> Vec<Buffer> {
    (0..1 + input.below(BUFFERS_MAX)).map(|_| buffer(input)).collect()
}
