//! The library's memory for a request and its answer. The library reads requests from a driver's queue. So
//! each thread of the share has a queue with one chain, in memory of its own: the request is in the chain's
//! first buffer, and room for the answer in the second.

use std::io;
use std::sync::Arc;

use fuse_backend_rs::abi::fuse_abi::OutHeader;
use fuse_backend_rs::api::server::Server;
use fuse_backend_rs::transport::{Reader, VirtioFsWriter};
use virtio_queue::desc::{RawDescriptor, split::Descriptor};
use virtio_queue::{DescriptorChain, Queue, QueueOwnedT as _, QueueT as _};
use vm_memory::{Bytes as _, GuestAddress, GuestMemoryMmap};

use super::packet::{ANSWER_BYTES_MAX, REQUEST_BYTES_MAX};
use crate::virtio::fs::Share;

/// Addresses of the queue's areas, the request and the answer.
const TABLE: u64 = 0;
const AVAILABLE: u64 = 0x400;
const USED: u64 = 0x800;
const REQUEST: u64 = 0x1000;
const ANSWER: u64 = 0x2_0000;
const BYTES: usize = 0x4_0000;

const _: () = assert!(REQUEST as usize + REQUEST_BYTES_MAX <= ANSWER as usize);
const _: () = assert!(ANSWER as usize + ANSWER_BYTES_MAX <= BYTES);

/// Bits of a descriptor (virtio 1.2, section 2.7.5).
const NEXT: u16 = 1;
const WRITE: u16 = 2;

const ENTRIES: u16 = 2;

pub(super) struct Sheet {
    memory: Arc<GuestMemoryMmap>,
    chain: DescriptorChain<Arc<GuestMemoryMmap>>,
}

impl Sheet {
    pub(super) fn new() -> io::Result<Sheet> {
        let memory = GuestMemoryMmap::from_ranges(&[(GuestAddress(0), BYTES)]).map_err(io::Error::other)?;
        let memory = Arc::new(memory);
        let mut queue = Queue::new(ENTRIES).map_err(io::Error::other)?;
        queue.set_desc_table_address(Some(TABLE as u32), Some(0));
        queue.set_avail_ring_address(Some(AVAILABLE as u32), Some(0));
        queue.set_used_ring_address(Some(USED as u32), Some(0));
        queue.set_ready(true);
        // One chain, beginning at entry 0, is available.
        memory.write_obj(1u16.to_le(), GuestAddress(AVAILABLE + 2)).map_err(io::Error::other)?;
        let chain = queue.iter(memory.clone()).map_err(io::Error::other)?.next();
        let chain = chain.ok_or_else(|| io::Error::other("a queue of one chain has none"))?;
        Ok(Sheet { memory, chain })
    }

    /// Has the request carried out. Returns the answer, of no more than `room` bytes. `None` if the request
    /// made no sense, or its answer had no place.
    pub(super) fn carry_out(
        &self,
        server: &Server<Arc<Share>>,
        request: &[u8],
        room: u32,
        answer: &mut Vec<u8>,
    ) -> Option<()> {
        self.place(request, room)?;
        let reader = Reader::from_descriptor_chain(&*self.memory, self.chain.clone()).ok()?;
        let writer = VirtioFsWriter::new(&*self.memory, self.chain.clone()).ok()?;
        let written = server.handle_message(reader, writer.into(), None, None).ok()?;
        answer.resize(written.min(ANSWER_BYTES_MAX), 0);
        self.memory.read_slice(answer, GuestAddress(ANSWER)).ok()
    }

    fn place(&self, request: &[u8], room: u32) -> Option<()> {
        let bytes = u32::try_from(request.len()).ok()?;
        if request.len() > REQUEST_BYTES_MAX || room as usize > ANSWER_BYTES_MAX {
            return None;
        }
        self.memory.write_slice(request, GuestAddress(REQUEST)).ok()?;
        let entries = [Descriptor::new(REQUEST, bytes, NEXT, 1), Descriptor::new(ANSWER, room, WRITE, 0)];
        for (at, entry) in (TABLE..).step_by(size_of::<Descriptor>()).zip(entries) {
            self.memory.write_obj(RawDescriptor::from(entry), GuestAddress(at)).ok()?;
        }
        // If the library writes no header, the last request's header must not be taken for it.
        self.memory.write_obj(OutHeader::default(), GuestAddress(ANSWER)).ok()
    }
}
