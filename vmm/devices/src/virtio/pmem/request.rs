//! Requests to the region (virtio 1.2, section 5.19.6). Pure except for writing the answer.

use crate::virtio::chain::{Chain, ChainFault};

/// VIRTIO_PMEM_REQ_TYPE_FLUSH, the only request.
const FLUSH: u32 = 0;

/// Bytes of request and answer.
const WORD_BYTES: usize = 4;

/// Answers the request in `chain`. Returns the bytes written, or `None` if the answer does not fit.
pub(super) fn answer(chain: &mut Chain, fault: Option<ChainFault>) -> Option<u32> {
    if fault.is_some() {
        return None;
    }
    let mut kind = [0; WORD_BYTES];
    chain.readable.take_front(&mut kind)?;
    let result = u32::from(u32::from_le_bytes(kind) != FLUSH);
    chain.writable.write_at(0, &result.to_le_bytes())?;
    Some(WORD_BYTES as u32)
}
