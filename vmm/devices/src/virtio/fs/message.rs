//! Objects in FUSE messages (linux/fuse.h), for both ends of the link. Messages are untrusted: each object is
//! copied, and one beyond the message's end is none. Pure.

use fuse_backend_rs::abi::fuse_abi::{CreateIn, EntryOut, InHeader, Opcode, OpenIn, OpenOut, OutHeader};
use vm_memory::ByteValued;

/// The result of a successful OPEN or CREATE.
pub(in crate::virtio::fs) struct Opening {
    /// The driver's number of the file.
    pub(in crate::virtio::fs) inode: u64,
    /// The requested flags of open(2).
    pub(in crate::virtio::fs) flags: u32,
    /// The driver's number of the open file.
    pub(in crate::virtio::fs) handle: u64,
}

/// Reads a request to open a file together with its answer. None for other requests.
pub(in crate::virtio::fs) fn opening(request: &[u8], answer: &[u8]) -> Option<Opening> {
    const ASKED: usize = size_of::<InHeader>();
    const ANSWERED: usize = size_of::<OutHeader>();
    let header: InHeader = object(request, 0)?;
    let (inode, flags, at) = match header.opcode {
        open if open == Opcode::Open as u32 => {
            (header.nodeid, object::<OpenIn>(request, ASKED)?.flags, ANSWERED)
        }
        create if create == Opcode::Create as u32 => {
            let made: EntryOut = object(answer, ANSWERED)?;
            (made.nodeid, object::<CreateIn>(request, ASKED)?.flags, ANSWERED + size_of::<EntryOut>())
        }
        _ => return None,
    };
    let handle = object::<OpenOut>(answer, at)?.fh;
    Some(Opening { inode, flags, handle })
}

/// Copies an object out of a message.
pub(in crate::virtio::fs) fn object<T: ByteValued + Default>(message: &[u8], at: usize) -> Option<T> {
    let mut object = T::default();
    object.as_mut_slice().copy_from_slice(message.get(at..)?.get(..size_of::<T>())?);
    Some(object)
}
