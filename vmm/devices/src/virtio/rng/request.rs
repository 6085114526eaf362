//! Gathers the buffers of a chain that are to be filled. Pure.

use super::REQUEST_BYTES_MAX;
use crate::virtio::chain::{Chain, ChainFault};
use crate::virtio::iovec::Iovecs;

/// Puts the buffers to be filled into `iovecs`, cut off at the limit. `None` if the chain makes no sense.
pub(super) fn gather(chain: &Chain, fault: Option<ChainFault>, iovecs: &mut Iovecs) -> Option<()> {
    if fault.is_some() || chain.writable.bytes() == 0 {
        return None;
    }
    iovecs.clear();
    let mut room = REQUEST_BYTES_MAX;
    for mut segment in chain.writable.iter() {
        segment.length = segment.length.min(room);
        room -= segment.length;
        if segment.length > 0 {
            iovecs.push(segment).ok()?;
        }
    }
    Some(())
}
