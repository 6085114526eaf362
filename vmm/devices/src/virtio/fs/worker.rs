//! The share's back end: takes FUSE requests off the queues, one after the other, and has them answered. A request
//! that waits for a lock keeps its chain while others are served.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fuse_backend_rs::abi::fuse_abi::{InHeader, LkIn, Opcode, OutHeader};
use fuse_backend_rs::api::filesystem::Context;
use fuse_backend_rs::api::server::Server;
use fuse_backend_rs::transport::{Reader, VirtioFsWriter};
use virtio_queue::{DescriptorChain, Queue};
use vm_memory::{ByteValued, Bytes as _, GuestMemoryMmap};
use vmm_sys_util::eventfd::EventFd;

use super::locks::{LockRequest, Wait, Waits};
use super::share::is_held;
use super::{MESSAGE_BYTES_MAX, Share};
use crate::virtio::Interrupt;
use crate::virtio::chain::Chain;
use crate::virtio::ring::{Faults, Ring};
use crate::virtio::worker::{Stop, Wakeups};

/// Requests taken before the worker looks whether it is to stop.
const BATCH: usize = 16;

/// Queues: what must not wait (FORGET, INTERRUPT), and requests.
pub(super) const QUEUES: usize = 2;
/// The queue of requests, and so of those that wait for locks.
const REQUESTS: usize = 1;
/// The source of wake-ups beside the queues: waits that are to end.
const INTERRUPTS: u8 = QUEUES as u8;

/// Bytes of an answer without content.
const ANSWER_BYTES: u32 = size_of::<OutHeader>() as u32;

/// A share at work.
#[derive(Debug)]
pub(super) struct FsWorker {
    pub(super) rings: [Ring; QUEUES],
    pub(super) events: [EventFd; QUEUES],
    pub(super) interrupt: Arc<dyn Interrupt>,
    pub(super) chain: Chain,
    pub(super) faults: Faults,
}

/// The outcome of a request that was taken.
enum Outcome {
    /// Bytes written to guest memory; `None` where the request made no sense, or no answer could be placed.
    Answered(Option<u32>),
    /// A lock is asked for, and may be waited for.
    Lock { unique: u64, request: LockRequest },
}

impl FsWorker {
    /// Serves until `stop` is readable, then gives the queues back. Requests that wait by then stay in `waits`.
    pub(super) fn run(
        mut self,
        server: &Server<Arc<Share>>,
        share: &Share,
        waits: &mut Waits,
        stop: Stop,
    ) -> Vec<Queue> {
        if let Err(error) = self.serve(server, share, waits, stop) {
            tracing::error!(%error, "the share's thread cannot wait for requests");
        }
        self.rings.into_iter().map(Ring::into_queue).collect()
    }

    fn serve(
        &mut self,
        server: &Server<Arc<Share>>,
        share: &Share,
        waits: &mut Waits,
        stop: Stop,
    ) -> io::Result<()> {
        let wakeups = Wakeups::new(stop)?;
        for (event, number) in self.events.iter().zip(0..) {
            wakeups.add(event, number, false)?;
        }
        // Processes that were named before are none of this session.
        share.interrupts().take();
        wakeups.add(share.interrupts(), INTERRUPTS, false)?;
        // A share that goes on after a pause may have requests that nobody notifies of again.
        let mut work_left = [true; QUEUES];
        loop {
            let busy = work_left.contains(&true);
            let patience = if busy { Some(Duration::ZERO) } else { waits.patience(Instant::now()) };
            let woken = wakeups.wait_at_most(patience)?;
            if woken.stop {
                return Ok(());
            }
            for (index, number) in (0..QUEUES).zip(0..) {
                if woken.has(number) {
                    let _ = self.events[index].read();
                    work_left[index] = true;
                }
                if work_left[index] {
                    work_left[index] = self.batch(server, share, waits, index);
                }
            }
            if woken.has(INTERRUPTS) {
                for wait in waits.interrupt(&share.interrupts().take()) {
                    self.answer_wait(&wait, Err(io::Error::from_raw_os_error(libc::EINTR)));
                }
            }
            self.look(share, waits);
        }
    }

    /// Serves some requests of one queue. Returns whether there are more.
    fn batch(&mut self, server: &Server<Arc<Share>>, share: &Share, waits: &mut Waits, index: usize) -> bool {
        self.rings[index].mute();
        for _ in 0..BATCH {
            let ring = &mut self.rings[index];
            let taken = ring.take_with(&mut self.chain, |descriptors, readable| {
                // Only the queue of requests has a ring that waits are answered to.
                match lock_request(descriptors, readable).filter(|_| index == REQUESTS) {
                    Some((unique, request)) => Outcome::Lock { unique, request },
                    None => Outcome::Answered(answer(server, descriptors, readable)),
                }
            });
            let Some((taken, outcome)) = taken else { return ring.listen() };
            match outcome {
                // A chain with a fault was counted when it was taken.
                None => ring.complete(taken, 0),
                Some(Outcome::Answered(written)) => {
                    if written.is_none() {
                        self.faults.count();
                    }
                    ring.complete(taken, written.unwrap_or(0));
                }
                Some(Outcome::Lock { unique, request }) => {
                    self.chain.writable.truncate(ANSWER_BYTES);
                    let reply = self.chain.writable.iter().collect();
                    self.lock(share, waits, Wait { taken, reply, unique, request });
                }
            }
            self.rings[index].signal(&*self.interrupt);
        }
        true
    }

    /// Takes a lock, or has the request wait for it.
    fn lock(&mut self, share: &Share, waits: &mut Waits, wait: Wait) {
        let room = waits.has_room();
        match share.lock(&wait.request, room) {
            Err(error) if is_held(&error) && room => waits.push(wait, Instant::now()),
            Err(error) if is_held(&error) => {
                self.answer_wait(&wait, Err(io::Error::from_raw_os_error(libc::ENOLCK)));
            }
            other => self.answer_wait(&wait, other),
        }
    }

    /// Tries again for what waits, if it is time or something was given up here.
    fn look(&mut self, share: &Share, waits: &mut Waits) {
        let now = Instant::now();
        if !share.lock_was_freed() && !waits.is_due(now) {
            return;
        }
        waits.look(now, |wait| match share.lock(&wait.request, true) {
            Err(error) if is_held(&error) => false,
            other => {
                self.answer_wait(wait, other);
                true
            }
        });
    }

    /// Answers a request for a lock, and gives its chain back.
    fn answer_wait(&mut self, wait: &Wait, result: io::Result<()>) {
        let error = result.map_or_else(|error| -error.raw_os_error().unwrap_or(libc::EIO), |()| 0);
        let header = OutHeader { len: ANSWER_BYTES, error, unique: wait.unique };
        let ring = &mut self.rings[REQUESTS];
        let placed = ring.write(&wait.reply, header.as_slice()).is_some();
        if !placed {
            self.faults.count();
        }
        ring.complete(wait.taken, if placed { ANSWER_BYTES } else { 0 });
        ring.signal(&*self.interrupt);
    }
}

/// Reads a request for a lock that may be waited for; `None` for any other.
fn lock_request(
    descriptors: &DescriptorChain<&GuestMemoryMmap>,
    readable: &GuestMemoryMmap,
) -> Option<(u64, LockRequest)> {
    let header: InHeader = object(descriptors, readable, 0)?;
    if header.opcode != Opcode::Setlkw as u32 {
        return None;
    }
    let LkIn { fh, owner, lk, lk_flags, .. } = object(descriptors, readable, size_of::<InHeader>())?;
    let context = Context { uid: header.uid, gid: header.gid, pid: header.pid.cast_signed() };
    let request =
        LockRequest { context, inode: header.nodeid, handle: fh, owner, lock: lk.into(), flags: lk_flags };
    Some((header.unique, request))
}

/// Copies an object out of what a request says, `skip` bytes from its beginning.
fn object<T: ByteValued + Default>(
    descriptors: &DescriptorChain<&GuestMemoryMmap>,
    readable: &GuestMemoryMmap,
    mut skip: usize,
) -> Option<T> {
    let mut object = T::default();
    let mut rest = object.as_mut_slice();
    for descriptor in descriptors.clone().readable() {
        let length = descriptor.len() as usize;
        let here = rest.len().min(length.saturating_sub(skip));
        let (now, later) = rest.split_at_mut(here);
        if here > 0 {
            let address = descriptor.addr().0.checked_add(skip as u64)?;
            readable.read_slice(now, vm_memory::GuestAddress(address)).ok()?;
        }
        skip = skip.saturating_sub(length);
        rest = later;
        if rest.is_empty() {
            return Some(object);
        }
    }
    None
}

/// Has one request carried out. Returns the bytes written to guest memory; `None` where it made no sense,
/// or no answer could be placed.
fn answer(
    server: &Server<Arc<Share>>,
    descriptors: &DescriptorChain<&GuestMemoryMmap>,
    readable: &GuestMemoryMmap,
) -> Option<u32> {
    let request = Reader::from_descriptor_chain(readable, descriptors.clone()).ok()?;
    // What may be written to, whatever the descriptors say by now.
    let reply = VirtioFsWriter::new(descriptors.memory(), descriptors.clone()).ok()?;
    // Buffers that overlap may add up to more than there is memory.
    if request.available_bytes() > MESSAGE_BYTES_MAX || reply.available_bytes() > MESSAGE_BYTES_MAX {
        return None;
    }
    let written = server.handle_message(request, reply.into(), None, None).ok()?;
    u32::try_from(written).ok()
}
