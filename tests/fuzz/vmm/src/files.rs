//! A program of requests to a share, one after the other, each with its answer: what the first byte of each says is `fuse`'s to know.

use std::thread;
use std::time::{Duration, Instant};

use vm_memory::{Bytes as _, GuestAddress};
use vmm_devices::virtio::{GuestMemory, VirtioDevice};

use crate::bytes::Bytes;
use crate::fuse::{self, Request};
use crate::leftovers;
use crate::memory::Memory;
use crate::queue::Buffer;
use crate::share::Tree;
use crate::slot::Slot;

/// Requests of one program.
const REQUESTS_MAX: usize = 64;

/// Longest that an answer may take.
const ANSWER: Duration = Duration::from_secs(10);

/// Where a request lies, and where its answer does.
const REQUEST: u64 = 0x6000;
const REPLY: u64 = 0x8000;
const REPLY_BYTES: u32 = 0x4000;

/// The queue of requests.
const REQUESTS: usize = 1;

/// A driver that has mounted a tree.
struct Driver {
    memory: GuestMemory,
    slot: Slot,
}

/// Runs the requests that an input is, and fails where something does not hold.
pub fn run(input: &[u8]) {
    let guest_memory = Memory::get().renew();
    let Some(tree) = Tree::new(Memory::get().mark()) else {
        eprintln!("skipped: this process may not mount");
        return;
    };
    let mut slot = Slot::new(0, &guest_memory);
    let device: Box<dyn VirtioDevice> = Box::new(tree.device());
    slot.transport.plug(device).expect("the slot is empty");
    slot.set_up(0, 16, 0);
    let mut driver = Driver { memory: guest_memory, slot };
    driver.ask(&fuse::init());
    let mut input = Bytes::new(input);
    for _ in 0..REQUESTS_MAX {
        if input.is_empty() {
            break;
        }
        driver.ask(&fuse::read(&mut input));
    }
    drop(driver);
    tree.check();
    Memory::get().check();
    drop(tree);
    leftovers::check();
}

impl Driver {
    /// Sends a request, and looks at the answer where one comes by itself.
    fn ask(&mut self, request: &Request) {
        crate::memory::write(&self.memory, REQUEST, &request.message);
        crate::memory::write(&self.memory, REPLY, &[0; fuse::ANSWER_BYTES]);
        let length = request.message.len() as u32;
        let buffers = [
            Buffer { address: REQUEST, length, writable: false },
            Buffer { address: REPLY, length: REPLY_BYTES, writable: true },
        ];
        let queue = &mut self.slot.queues[REQUESTS];
        if !queue.offer(&self.memory, &buffers) {
            return;
        }
        self.slot.transport.notify(REQUESTS as u32);
        let begin = Instant::now();
        let queue = &mut self.slot.queues[REQUESTS];
        while request.is_answered && queue.has_newest() {
            queue.take_used(&self.memory);
            assert!(begin.elapsed() < ANSWER, "the share does not answer {:?}", request.message);
            thread::yield_now();
        }
        queue.take_used(&self.memory);
        self.check_answer();
    }

    fn check_answer(&self) {
        let map = self.memory.writable();
        let length: u32 = map.read_obj(GuestAddress(REPLY)).expect("it lies in RAM");
        assert!(length <= REPLY_BYTES, "an answer of {length} bytes");
        let mut answer = vec![0; length as usize];
        map.read_slice(&mut answer, GuestAddress(REPLY)).expect("it lies in RAM");
        Memory::get().check_output(&answer);
    }
}
