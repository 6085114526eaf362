//! The share's back end: takes FUSE requests off the queues, one after the other, and has them answered.

use std::io;
use std::sync::Arc;

use fuse_backend_rs::api::server::Server;
use fuse_backend_rs::transport::{Reader, VirtioFsWriter};
use virtio_queue::{DescriptorChain, Queue};
use vm_memory::GuestMemoryMmap;
use vmm_sys_util::eventfd::EventFd;

use super::{MESSAGE_BYTES_MAX, Share};
use crate::virtio::Interrupt;
use crate::virtio::chain::Chain;
use crate::virtio::ring::{Faults, Ring};
use crate::virtio::worker::{Stop, Wakeups};

/// Requests taken before the worker looks whether it is to stop.
const BATCH: usize = 16;

/// Queues: what must not wait (FORGET, INTERRUPT), and requests.
pub(super) const QUEUES: usize = 2;

/// A share at work.
#[derive(Debug)]
pub(super) struct FsWorker {
    pub(super) rings: [Ring; QUEUES],
    pub(super) events: [EventFd; QUEUES],
    pub(super) interrupt: Arc<dyn Interrupt>,
    pub(super) chain: Chain,
    pub(super) faults: Faults,
}

impl FsWorker {
    /// Serves until `stop` is readable, then gives the queues back.
    pub(super) fn run(mut self, server: &Server<Arc<Share>>, stop: Stop) -> Vec<Queue> {
        if let Err(error) = self.serve(server, stop) {
            tracing::error!(%error, "the share's thread cannot wait for requests");
        }
        self.rings.into_iter().map(Ring::into_queue).collect()
    }

    fn serve(&mut self, server: &Server<Arc<Share>>, stop: Stop) -> io::Result<()> {
        let wakeups = Wakeups::new(stop)?;
        for (event, number) in self.events.iter().zip(0..) {
            wakeups.add(event, number, false)?;
        }
        // A share that goes on after a pause may have requests that nobody notifies of again.
        let mut work_left = [true; QUEUES];
        loop {
            let woken = wakeups.wait(work_left.contains(&true))?;
            if woken.stop {
                return Ok(());
            }
            for (index, number) in (0..QUEUES).zip(0..) {
                if woken.has(number) {
                    let _ = self.events[index].read();
                    work_left[index] = true;
                }
                if work_left[index] {
                    work_left[index] = self.batch(server, index);
                }
            }
        }
    }

    /// Serves some requests of one queue. Returns whether there are more.
    pub(super) fn batch(&mut self, server: &Server<Arc<Share>>, index: usize) -> bool {
        let FsWorker { rings, chain, faults, interrupt, .. } = self;
        let ring = &mut rings[index];
        ring.mute();
        for _ in 0..BATCH {
            let answered =
                ring.take_with(chain, |descriptors, readable| answer(server, descriptors, readable));
            let Some((taken, answered)) = answered else { return ring.listen() };
            // A chain with a fault was counted when it was taken.
            if answered == Some(None) {
                faults.count();
            }
            ring.complete(taken, answered.flatten().unwrap_or(0));
            ring.signal(&**interrupt);
        }
        true
    }
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
