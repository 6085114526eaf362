//! A program of operations over all devices: what a guest does to its memory, its registers and its queues, what the host does
//! meanwhile, and in the end what must hold.
//!
//! ```text
//!   input:  devices at the start │ odd or even: disk read-only │ operation, operands │ operation, operands │ …
//! ```
//!
//! An operation's first byte says which, its second one for which slot. Operands that are missing are zero.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use vmm_devices::legacy::serial::Serial;
use vmm_devices::virtio::GuestMemory;

use crate::bytes::Bytes;
use crate::host::{Host, KINDS, Kind};
use crate::memory::Memory;
use crate::requests::{self, Scratch};
use crate::slot::Slot;
use crate::{fuse, leftovers};

/// Operations of one program.
const OPERATIONS_MAX: usize = 96;

/// How often a program has a request made by one operation.
const REPEATS_MAX: usize = 40;

/// Longest that an operation waits for a device, which may have nothing to say.
const PATIENCE: Duration = Duration::from_micros(300);

/// Longest that a device may take for a request that makes sense.
const ANSWER: Duration = Duration::from_secs(10);

/// A thread of the guest's that changes descriptors, rings and requests all the time.
struct Rewriter {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

/// See the module.
struct Vm {
    memory: GuestMemory,
    host: Host,
    slots: Vec<Slot>,
    serial: Serial<std::io::Sink>,
    scratch: Scratch,
    rewriter: Option<Rewriter>,
}

/// Runs the program that an input is, and fails where something does not hold.
pub fn run(input: &[u8]) {
    let mut input = Bytes::new(input);
    let memory = Memory::get().renew();
    let (plugged, even) = (input.u8(), input.u8());
    let slots = (0..KINDS.len()).map(|number| Slot::new(number, &memory)).collect();
    let host = Host::new(&memory, even & 1 == 1);
    let serial = Serial::new(std::io::sink(), None);
    let mut vm = Vm { memory, host, slots, serial, scratch: Scratch::default(), rewriter: None };
    for (number, _) in KINDS.iter().enumerate().filter(|(number, _)| plugged & 1 << number != 0) {
        vm.plug(number);
        vm.set_up(number, 0, 16, 0);
    }
    for _ in 0..OPERATIONS_MAX {
        if input.is_empty() {
            break;
        }
        vm.operation(&mut input);
    }
    vm.end();
    leftovers::check();
}

impl Vm {
    fn plug(&mut self, number: usize) {
        if self.slots[number].transport.device_id() == 0
            && let Some(device) = self.host.make(KINDS[number])
        {
            self.slots[number].transport.plug(device).expect("the slot is empty");
        }
    }

    /// Sets a device up as its driver does, and mounts a share.
    fn set_up(&mut self, number: usize, unwanted: u32, size: u16, left_out: u8) {
        self.slots[number].set_up(unwanted, size, left_out);
        if KINDS[number] == Kind::Fs && self.slots[number].queues.len() > 1 {
            let request = requests::share(&fuse::init().message, &self.memory, &mut self.scratch);
            self.offer(number, 1, &request, true);
        }
    }

    fn operation(&mut self, input: &mut Bytes<'_>) {
        let (operation, number) = (input.u8() % 24, input.below(KINDS.len()));
        let slot = &mut self.slots[number];
        match operation {
            0..5 => return self.request(number, input),
            5 => {
                // The same again and again, until a queue has gone round.
                for _ in 0..input.below(REPEATS_MAX) {
                    self.request(number, &mut input.clone());
                }
                return self.request(number, input);
            }
            6 => return self.write_memory(input),
            7 => {
                let (offset, width) = (input.u16(), [1, 2, 4, 8, 3][input.below(5)]);
                let value = input.u64().to_le_bytes();
                slot.write(u64::from(offset & 0x1fff), &value[..width]);
            }
            8 => slot.write(
                [0x70, 0x50, 0x64, 0x30, 0xac, 0x44, 0x38, 0x20][input.below(8)],
                &input.u32().to_le_bytes(),
            ),
            9 => assert_eq!(slot.read(0), 0x7472_6976, "the magic number is another"),
            10 => {
                let (unwanted, size, left_out) = (input.u32(), 1 << input.below(5), input.u8() & input.u8());
                return self.set_up(number, unwanted, size, left_out);
            }
            11 => slot.write(0x50, &u32::from(input.u8() % 4).to_le_bytes()),
            12 => return self.made_up_chain(number, input),
            13 => return self.break_ring(number, input),
            14 => self.host.send_frame(input),
            15 => self.host.dial(input),
            16 => self.host.use_stream(input),
            17 => self.host.resize(input),
            18 if slot.transport.device_id() == 0 => return self.plug(number),
            18 => slot.unplug(),
            19 => drop(slot.transport.pause()),
            20 => {
                if slot.transport.resume().is_err() {
                    slot.queues.clear();
                }
            }
            21 => return self.replace(number, input),
            22 => {
                let (offset, value) = (input.u8() % 8, input.u8());
                self.serial.write(offset, value);
                let _ = self.serial.read(value % 8);
            }
            _ if input.u8() & 1 == 1 => return self.rewrite(),
            _ => slot.write(0x70, &0u32.to_le_bytes()),
        }
        self.settle(number, PATIENCE);
    }

    /// Puts a request into a queue and notifies.
    fn request(&mut self, number: usize, input: &mut Bytes<'_>) {
        let choice = input.u8();
        let Some(queue) = self.queue(number, choice) else { return };
        let buffers = requests::make(KINDS[number], queue, &self.memory, &mut self.scratch, input);
        self.offer(number, queue, &buffers, choice & 0x80 == 0);
    }

    fn made_up_chain(&mut self, number: usize, input: &mut Bytes<'_>) {
        let Some(queue) = self.queue(number, input.u8()) else { return };
        let buffers = requests::made_up(input);
        self.offer(number, queue, &buffers, true);
    }

    fn offer(&mut self, number: usize, queue: usize, buffers: &[crate::queue::Buffer], notifies: bool) {
        for buffer in buffers.iter().filter(|buffer| buffer.writable) {
            self.spoil(buffer.address, buffer.length.into());
        }
        let slot = &mut self.slots[number];
        slot.queues[queue].offer(&self.memory, buffers);
        if notifies {
            slot.transport.notify(queue as u32);
            self.settle(number, PATIENCE);
        }
    }

    /// A queue that the driver has set up, by a number that may be any.
    fn queue(&self, number: usize, choice: u8) -> Option<usize> {
        let count = self.slots[number].queues.len();
        // The first request mostly goes where most requests go.
        (count > 0).then(|| usize::from(choice & 0x7f) % count)
    }

    fn write_memory(&mut self, input: &mut Bytes<'_>) {
        let address = requests::address(input);
        let length = usize::from(input.u8() & 63);
        let bytes = input.take(length);
        crate::memory::write(&self.memory, address, bytes);
        self.spoil(address, bytes.len() as u64);
    }

    /// Something else than their driver may write to these bytes of the rings.
    fn spoil(&mut self, address: u64, bytes: u64) {
        let end = address.saturating_add(bytes);
        for queue in self.slots.iter_mut().flat_map(|slot| &mut slot.queues) {
            let rings = queue.range();
            if address < rings.end && end > rings.start {
                queue.spoil();
            }
        }
    }

    /// Writes nonsense into a queue's rings.
    fn break_ring(&mut self, number: usize, input: &mut Bytes<'_>) {
        let Some(queue) = self.queue(number, input.u8()) else { return };
        let slot = &mut self.slots[number];
        let ring = &mut slot.queues[queue];
        ring.spoil();
        match input.below(3) {
            0 => ring.jump(&self.memory, input.u16()),
            1 => ring.offer_head(&self.memory, input.u16() % (ring.size() + 2)),
            _ => {
                for index in 0..input.below(4) as u16 {
                    let entry = (
                        requests::address(input),
                        input.u32(),
                        u16::from(input.u8() & 7),
                        u16::from(input.u8() % 18),
                    );
                    ring.describe(&self.memory, index, entry);
                }
                ring.offer_head(&self.memory, 0);
            }
        }
        slot.transport.notify(queue as u32);
        self.settle(number, PATIENCE);
    }

    /// Saves a device and lets another one go on.
    fn replace(&mut self, number: usize, input: &mut Bytes<'_>) {
        let with_older = input.u8() & 3 == 3;
        if self.slots[number].transport.device_id() != 0
            && let Some(device) = self.host.make(KINDS[number])
        {
            self.slots[number].replace(device, with_older);
        }
    }

    /// Starts the thread that changes rings.
    fn rewrite(&mut self) {
        if self.rewriter.is_some() {
            return;
        }
        for queue in self.slots.iter_mut().flat_map(|slot| &mut slot.queues) {
            queue.spoil();
        }
        let (stop, memory) = (Arc::new(AtomicBool::new(false)), self.memory.clone());
        let ended = stop.clone();
        let thread = thread::spawn(move || {
            let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
            while !ended.load(Ordering::Relaxed) {
                seed ^= seed << 13;
                seed ^= seed >> 7;
                seed ^= seed << 17;
                // Rings and requests begin here; few bits, so that most of it goes on making sense.
                let place = 0x800 + (seed >> 20) % 0x5800;
                crate::memory::write(&memory, place, &[seed as u8 & 0x8f]);
            }
        });
        self.rewriter = Some(Rewriter { stop, thread });
    }

    /// Waits until the device has done what it was asked for, or for this long. Returns whether nothing is left.
    fn settle(&mut self, number: usize, patience: Duration) -> bool {
        let slot = &mut self.slots[number];
        let begin = Instant::now();
        loop {
            let mut waiting = false;
            for (index, queue) in slot.queues.iter_mut().enumerate() {
                if self.rewriter.is_some() {
                    queue.spoil();
                }
                queue.take_used(&self.memory);
                waiting |= queue.is_waiting() && answers(KINDS[number], index);
            }
            if !waiting || begin.elapsed() > patience {
                return !waiting;
            }
            thread::yield_now();
        }
    }

    /// Waits for what is under way, takes everything apart and looks at what is left.
    fn end(mut self) {
        if let Some(Rewriter { stop, thread }) = self.rewriter.take() {
            stop.store(true, Ordering::Relaxed);
            thread.join().expect("it only writes");
            for queue in self.slots.iter_mut().flat_map(|slot| &mut slot.queues) {
                queue.spoil();
            }
        }
        for (number, kind) in KINDS.into_iter().enumerate() {
            let slot = &mut self.slots[number];
            if !slot.transport.is_running() {
                continue;
            }
            for index in 0..slot.queues.len() {
                slot.transport.notify(index as u32);
            }
            assert!(self.settle(number, ANSWER), "a {kind:?} device does not answer");
        }
        self.slots.clear();
        drop(self.memory);
        self.host.check();
        Memory::get().check();
    }
}

/// Whether a device gives back by itself what is put into this queue.
fn answers(kind: Kind, queue: usize) -> bool {
    match kind {
        Kind::Blk | Kind::Rng | Kind::Pmem | Kind::Mem => true,
        // Commands are served where the driver has asked for that alone.
        Kind::Net => queue == 1,
        // Requests that wait for a lock, or are no requests, are not known here.
        Kind::Vsock | Kind::Balloon | Kind::Fs => false,
    }
}
