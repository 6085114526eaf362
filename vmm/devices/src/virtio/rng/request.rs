//! Gathers the buffers of a chain for filling. Pure.

use super::REQUEST_BYTES_MAX;
use crate::virtio::chain::{Chain, ChainFault};
use crate::virtio::iovec::{Iovecs, Transfer};

/// Returns the buffers to fill, cut off at the limit. Returns `None` if the chain is malformed.
pub(super) fn gather<'a>(
    chain: &'a mut Chain,
    fault: Option<ChainFault>,
    iovecs: &'a mut Iovecs,
) -> Option<Transfer<'a>> {
    if fault.is_some() || chain.writable.bytes() == 0 {
        return None;
    }
    chain.writable.truncate(REQUEST_BYTES_MAX);
    iovecs.over([&chain.writable]).ok()
}
