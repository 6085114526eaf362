//! Offers to a driver that are unknown to the library.

use std::mem::offset_of;

use fuse_backend_rs::abi::fuse_abi::{FsOptions, InHeader, InitIn, InitIn2, InitOut, Opcode, OutHeader};

use crate::virtio::fs::message::object;

/// FUSE_DIRECT_IO_ALLOW_MMAP in `flags2` of INIT (linux/fuse.h, protocol 7.39): a file may be mapped
/// shared, even if its reads and writes are requests. The driver drops the mapped pages when a program
/// reads or writes the file.
const ALLOW_SHARED_MAPS: u32 = 1 << (36 - 32);

/// Adds [`ALLOW_SHARED_MAPS`] to the answer to INIT if the driver has it. The share sets nothing else in
/// this word.
pub(in crate::virtio::fs) fn allow_shared_maps(request: &[u8], answer: &mut [u8]) {
    if answer.len() != size_of::<OutHeader>() + size_of::<InitOut>() || !offers_shared_maps(request) {
        return;
    }
    let at = size_of::<OutHeader>() + offset_of!(InitOut, flags2);
    answer[at..at + size_of::<u32>()].copy_from_slice(&ALLOW_SHARED_MAPS.to_ne_bytes());
}

/// Returns true for an INIT of a driver with [`ALLOW_SHARED_MAPS`].
fn offers_shared_maps(request: &[u8]) -> bool {
    const INIT: usize = size_of::<InHeader>();
    let header: Option<InHeader> = object(request, 0);
    if header.is_none_or(|header| header.opcode != Opcode::Init as u32) {
        return false;
    }
    let first: Option<InitIn> = object(request, INIT);
    let extended = first.is_some_and(|first| u64::from(first.flags) & FsOptions::INIT_EXT.bits() != 0);
    let second: Option<InitIn2> = object(request, INIT + size_of::<InitIn>());
    extended && second.is_some_and(|second| second.flags2 & ALLOW_SHARED_MAPS != 0)
}
