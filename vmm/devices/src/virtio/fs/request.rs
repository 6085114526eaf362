//! One request of the driver: read as a request for a lock that may be waited for, or answered by the share.

use std::mem::offset_of;
use std::sync::Arc;

use fuse_backend_rs::abi::fuse_abi::{
    FsOptions, InHeader, InitIn, InitIn2, InitOut, LkIn, Opcode, OutHeader,
};
use fuse_backend_rs::api::filesystem::Context;
use fuse_backend_rs::api::server::Server;
use fuse_backend_rs::transport::{Reader, VirtioFsWriter};
use vm_memory::{ByteValued, Bytes as _, GuestAddress, GuestMemoryMmap};

use super::locks::LockRequest;
use super::{MESSAGE_BYTES_MAX, Share};
use crate::virtio::ring::Described;

/// FUSE_DIRECT_IO_ALLOW_MMAP in `flags2` of INIT (linux/fuse.h, protocol 7.39), which the library does not know: a file whose reads and writes
/// are requests may be mapped shared all the same. The driver throws away what it has mapped when a program reads or writes it.
const ALLOW_SHARED_MAPS: u32 = 1 << (36 - 32);

/// Reads a request for a lock that may be waited for, with its number; `None` for any other.
pub(super) fn lock_request(described: &Described) -> Option<(u64, LockRequest)> {
    let header: InHeader = object(described, 0)?;
    if header.opcode != Opcode::Setlkw as u32 {
        return None;
    }
    let LkIn { fh, owner, lk, lk_flags, .. } = object(described, size_of::<InHeader>())?;
    let context = Context { uid: header.uid, gid: header.gid, pid: header.pid.cast_signed() };
    let request =
        LockRequest { context, inode: header.nodeid, handle: fh, owner, lock: lk.into(), flags: lk_flags };
    Some((header.unique, request))
}

/// Copies an object out of what a request says, `skip` bytes from its beginning.
fn object<T: ByteValued + Default>(described: &Described, mut skip: usize) -> Option<T> {
    let mut object = T::default();
    let mut rest = object.as_mut_slice();
    for descriptor in described.descriptors.clone().readable() {
        let length = descriptor.len() as usize;
        let here = rest.len().min(length.saturating_sub(skip));
        let (now, later) = rest.split_at_mut(here);
        if here > 0 {
            let address = descriptor.addr().0.checked_add(skip as u64)?;
            described.readable.read_slice(now, GuestAddress(address)).ok()?;
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
pub(super) fn answer(server: &Server<Arc<Share>>, described: &Described) -> Option<u32> {
    let Described { descriptors, readable } = described;
    let readable: &GuestMemoryMmap = readable;
    let request = Reader::from_descriptor_chain(readable, descriptors.clone()).ok()?;
    // What may be written to, whatever the descriptors say by now.
    let reply = VirtioFsWriter::new(descriptors.memory(), descriptors.clone()).ok()?;
    // Buffers that overlap may add up to more than there is memory.
    if request.available_bytes() > MESSAGE_BYTES_MAX || reply.available_bytes() > MESSAGE_BYTES_MAX {
        return None;
    }
    let written = server.handle_message(request, reply.into(), None, None).ok()?;
    if written == size_of::<OutHeader>() + size_of::<InitOut>() && offers_shared_maps(described) {
        allow_shared_maps(described)?;
    }
    u32::try_from(written).ok()
}

/// Whether a request begins the protocol, by a driver that has [`ALLOW_SHARED_MAPS`].
fn offers_shared_maps(described: &Described) -> bool {
    const INIT: usize = size_of::<InHeader>();
    let header: Option<InHeader> = object(described, 0);
    if header.is_none_or(|header| header.opcode != Opcode::Init as u32) {
        return false;
    }
    let first: Option<InitIn> = object(described, INIT);
    let extended = first.is_some_and(|first| u64::from(first.flags) & FsOptions::INIT_EXT.bits() != 0);
    let second = || object::<InitIn2>(described, INIT + size_of::<InitIn>());
    extended && second().is_some_and(|second| second.flags2 & ALLOW_SHARED_MAPS != 0)
}

/// Adds [`ALLOW_SHARED_MAPS`] to the answer to INIT, where the share has nothing in that word. `None` if the answer's place is gone.
fn allow_shared_maps(described: &Described) -> Option<()> {
    let descriptors = &described.descriptors;
    let mut answer = VirtioFsWriter::new(descriptors.memory(), descriptors.clone()).ok()?;
    let mut rest = answer.split_at(size_of::<OutHeader>() + offset_of!(InitOut, flags2)).ok()?;
    rest.write_obj(ALLOW_SHARED_MAPS).ok()
}
