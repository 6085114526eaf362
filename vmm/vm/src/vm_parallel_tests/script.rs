//! Scripts for vCPUs. One uses its disk as an orderly driver does and expects right answers. The others do
//! anything to all other devices.

use proto_vmm::Slot;
use vm_memory::{Bytes as _, GuestAddress, GuestMemoryMmap};

use super::guest::Operation::{self, Add16, Expect64, Mix16, Out, Store32, Store64, Wait};
use crate::layout::{doorbell, slot_address};

/// Slots driven without order, with the number of each device's queues.
pub(super) fn disorderly_slots() -> [(Slot, u64); 7] {
    let net = Slot::nets().next().unwrap();
    [
        (Slot::SCRATCH, 1),
        (net, 3),
        (Slot::VSOCK, 3),
        (Slot::RNG, 1),
        (Slot::BALLOON, 3),
        (Slot::FS, 2),
        (Slot::MEM, 1),
    ]
}

/// The slot of the orderly driver's disk.
pub(super) fn orderly_slot() -> Slot {
    Slot::disks().next().unwrap()
}

/// Rings and buffers of the orderly driver.
const ORDERLY_RINGS: u64 = 0x18_0000;
const HEADERS: u64 = 0x18_2000;
const DATA: u64 = 0x18_4000;
const STATUS: u64 = 0x18_6000;

/// Rings of the others, a page for each queue, and their buffers.
const RINGS: u64 = 0x20_0000;
const BUFFERS: u64 = 0x40_0000;

/// Entries of each queue.
const ENTRIES: u64 = 16;
const AVAILABLE: u64 = 0x400;
const USED: u64 = 0x800;

/// Sectors read by the orderly driver. Each is full of one byte.
pub(super) const SECTORS: u8 = 16;

/// A stream of numbers from a seed.
#[derive(Clone, Debug)]
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub(super) fn below(&mut self, count: u64) -> u64 {
        (self.next() >> 11) % count
    }

    fn pick<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.below(list.len() as u64) as usize]
    }
}

/// Status, features, queues and status again, as a driver writes them.
fn set_up(slot: Slot, queues: u64, rings: u64, features: u32) -> Vec<Operation> {
    let base = slot_address(slot.number());
    let register = |offset: u64, value: u64| Store32(base + offset, value as u32);
    let mut script = vec![register(0x70, 0), register(0x70, 1), register(0x70, 3)];
    for (select, value) in [(0, features), (1, 1)] {
        script.extend([register(0x24, select), register(0x20, value.into())]);
    }
    script.push(register(0x70, 11));
    for queue in 0..queues {
        let ring = rings + queue * 0x1000;
        script.extend([register(0x30, queue), register(0x38, ENTRIES)]);
        script.extend([register(0x80, ring), register(0x90, ring + AVAILABLE), register(0xa0, ring + USED)]);
        script.push(register(0x44, 1));
    }
    script.push(register(0x70, 15));
    script
}

/// The registers of the orderly driver's disk. The test writes them before the guest runs.
pub(super) fn orderly_set_up() -> Vec<(u64, u32)> {
    let base = slot_address(orderly_slot().number());
    let written = |operation| match operation {
        Store32(place, value) => Some((place - base, value)),
        _ => None,
    };
    set_up(orderly_slot(), 1, ORDERLY_RINGS, 0).into_iter().filter_map(written).collect()
}

/// Writes the descriptors and headers of the orderly driver. All descriptors of the others point to
/// buffers.
pub(super) fn prepare(memory: &GuestMemoryMmap) {
    let slots = disorderly_slots().len();
    for descriptor in
        (rings(0)..rings(slots)).step_by(0x1000).flat_map(|ring| (0..ENTRIES).map(move |at| ring + 16 * at))
    {
        memory.write_obj(BUFFERS, GuestAddress(descriptor)).unwrap();
    }
    let mut descriptors = Vec::new();
    for (address, length, flags, next) in [(HEADERS, 16u32, 1u16, 1u16), (DATA, 512, 3, 2), (STATUS, 1, 2, 0)]
    {
        descriptors.extend(address.to_le_bytes());
        descriptors.extend(length.to_le_bytes());
        descriptors.extend(flags.to_le_bytes());
        descriptors.extend(next.to_le_bytes());
    }
    memory.write_slice(&descriptors, GuestAddress(ORDERLY_RINGS)).unwrap();
    for sector in 0..u64::from(SECTORS) {
        memory.write_obj(sector, GuestAddress(HEADERS + 16 * sector + 8)).unwrap();
    }
}

/// Reads each sector, and expects its content.
pub(super) fn orderly() -> Vec<Operation> {
    let mut script = Vec::new();
    for sector in 0..SECTORS {
        let word = u64::from_le_bytes([sector + 1; 8]);
        script.extend([
            Store64(ORDERLY_RINGS, HEADERS + 16 * u64::from(sector)),
            Store64(DATA, 0),
            Store64(DATA + 504, 0),
            Store64(STATUS, 0xff),
            Add16(ORDERLY_RINGS + AVAILABLE + 2, 1),
            Out(doorbell(orderly_slot().number()), 0),
            Wait(ORDERLY_RINGS + USED + 2, ORDERLY_RINGS + AVAILABLE + 2),
            Expect64(STATUS, 0),
            Expect64(DATA, word),
            Expect64(DATA + 504, word),
        ]);
    }
    script
}

/// Address of a disorderly slot's rings.
fn rings(slot: usize) -> u64 {
    RINGS + slot as u64 * 0x4000
}

/// Main action of a vCPU on devices: to notify them, to change their rings, or to set them up.
#[derive(Clone, Copy, Debug)]
pub(super) enum Role {
    Notifies,
    Rewrites,
    SetsUp,
}

/// A script without order.
pub(super) fn disorderly(role: Role, random: &mut Random) -> Vec<Operation> {
    let (mut script, slots) = (Vec::new(), disorderly_slots());
    for _ in 0..200 {
        let at = random.below(slots.len() as u64) as usize;
        let (slot, queues) = slots[at];
        let queue = random.below(queues);
        let ring = rings(at) + queue * 0x1000;
        match (role, random.below(20)) {
            (Role::SetsUp, 0..8) => script.extend(set_up(
                slot,
                queues,
                rings(at),
                random.pick(&[0, 1 << 29, 0x2000_0000 | 1 << 5, u32::MAX]),
            )),
            (Role::SetsUp, 8..10) | (_, 0) => {
                let offset =
                    random.pick(&[0x14, 0x20, 0x24, 0x30, 0x38, 0x44, 0x64, 0x70, 0x80, 0xac, 0x100, 0x10e]);
                script.push(Store32(
                    slot_address(slot.number()) + offset,
                    random.pick(&[0, 1, 3, 11, 15, 0x80, u32::MAX]),
                ));
            }
            (Role::Rewrites, _) => rewrite(&mut script, ring, random),
            (_, 1..4) => script.extend(request(slot, queue, ring, random)),
            _ => script.extend([
                Add16(ring + AVAILABLE + 2, random.pick(&[1, 1, 1, 2, 16])),
                Out(doorbell(slot.number()), queue as u32),
            ]),
        }
    }
    script
}

/// Changes some of a ring: parts of descriptors, heads, flags and counts. Devices write to the addresses.
/// They stay those of buffers or beyond all memory, because everything else in this guest's memory has to
/// stay.
fn rewrite(script: &mut Vec<Operation>, ring: u64, random: &mut Random) {
    let descriptor = ring + 16 * random.below(ENTRIES);
    script.extend(match random.below(8) {
        0 => vec![Mix16(descriptor, 0xffff)],
        1 => vec![Mix16(descriptor + 8, 0xffff)],
        2 => vec![Mix16(descriptor + 12, 0x7)],
        3 => vec![Mix16(descriptor + 14, 0x1f)],
        4 => vec![Mix16(ring + AVAILABLE + 4 + 2 * random.below(ENTRIES), 0x1f)],
        5 => vec![Mix16(ring + AVAILABLE, 1), Mix16(ring + AVAILABLE + 4 + 2 * ENTRIES, 0x1f)],
        6 => vec![Mix16(ring + USED + 2, 0x1f)],
        _ => vec![
            Store64(descriptor, BUFFERS + 0x1000 * random.below(64)),
            Store64(descriptor + 8, 0x0001_0003_0000_0200),
        ],
    });
}

/// A chain for a device to understand: a header, and room for an answer.
fn request(slot: Slot, queue: u64, ring: u64, random: &mut Random) -> Vec<Operation> {
    let header = BUFFERS + 0x1000 * random.below(32);
    let words: [u64; 6] = match slot {
        Slot::SCRATCH => [random.below(14), random.below(40), 0, 0, 0, 0],
        Slot::VSOCK => {
            let (port, host) = (random.below(4), random.pick(&[1024u64, 1026, 1 << 30, (1 << 30) + 1]));
            [3, 2, port | host << 32, random.below(200) | 1 << 32 | random.below(8) << 48, 0x4_0000 << 32, 0]
        }
        Slot::FS => {
            [64 | random.pick(&[1u64, 3, 9, 14, 15, 16, 17, 26, 28, 35]) << 32, 7, 1, 0, 1, 0x0038_0000_0007]
        }
        Slot::MEM => [random.below(5), (4 << 30) + (random.below(8) << 21), 1, 0, 0, 0],
        _ => [random.below(5) | random.below(5) << 8, 0, 0, 0, 0, 0],
    };
    let mut script: Vec<_> = (0..).zip(words).map(|(at, word)| Store64(header + 8 * at, word)).collect();
    let length = random.pick(&[2u64, 4, 16, 24, 44, 64, 512]);
    let only_written = matches!((slot, queue), (Slot::RNG, _) | (Slot::BALLOON, _))
        || (queue == 0 && slot != Slot::SCRATCH && slot != Slot::FS && slot != Slot::MEM);
    script.extend([
        Store64(ring, header),
        Store64(ring + 8, if only_written { 0x0002 << 32 | 0x1000 } else { 1 << 48 | 1 << 32 | length }),
        Store64(ring + 16, BUFFERS + 0x10_0000 + 0x1000 * random.below(64)),
        Store64(ring + 24, 2 << 48 | random.pick(&[1u64, 3, 2]) << 32 | random.pick(&[10u64, 512, 0x1000])),
        Store64(ring + 32, BUFFERS + 0x20_0000),
        Store64(ring + 40, 2 << 32 | 1),
        Add16(ring + AVAILABLE + 2, 1),
        Out(doorbell(slot.number()), queue as u32),
    ]);
    script
}
