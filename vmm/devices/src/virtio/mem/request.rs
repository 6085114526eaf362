//! Requests and their answers (virtio 1.2, section 5.15.6). Pure except for writing the answer.

use crate::virtio::chain::{Chain, ChainFault};

/// Bytes of a request. The driver sends all of them even if some have no meaning.
const REQUEST_BYTES: usize = 24;
/// Bytes of an answer.
pub(super) const ANSWER_BYTES: usize = 10;

/// VIRTIO_MEM_REQ_*. Addresses are the guest's, and may be invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Request {
    Plug { address: u64, blocks: u16 },
    Unplug { address: u64, blocks: u16 },
    UnplugAll,
    State { address: u64, blocks: u16 },
    Unknown,
}

/// VIRTIO_MEM_RESP_*.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Ack,
    /// VIRTIO_MEM_STATE_*.
    State(u16),
    Nack,
    /// Not now; a driver tries again.
    Busy,
    Error,
}

/// Reads the request, if the chain has one and room for an answer.
pub(super) fn read(chain: &mut Chain, fault: Option<ChainFault>) -> Option<Request> {
    if fault.is_some() || chain.writable.bytes() < ANSWER_BYTES as u64 {
        return None;
    }
    let mut bytes = [0; REQUEST_BYTES];
    chain.readable.take_front(&mut bytes)?;
    let kind = u16::from_le_bytes([bytes[0], bytes[1]]);
    let address = u64::from_le_bytes(bytes[8..16].try_into().expect("eight bytes"));
    let blocks = u16::from_le_bytes([bytes[16], bytes[17]]);
    Some(match kind {
        0 => Request::Plug { address, blocks },
        1 => Request::Unplug { address, blocks },
        2 => Request::UnplugAll,
        3 => Request::State { address, blocks },
        _ => Request::Unknown,
    })
}

/// Writes the answer. Returns the bytes written.
pub(super) fn write(chain: &Chain, answer: Answer) -> Option<u32> {
    let (kind, state) = match answer {
        Answer::Ack => (0u16, 0),
        Answer::State(state) => (0, state),
        Answer::Nack => (1, 0),
        Answer::Busy => (2, 0),
        Answer::Error => (3, 0),
    };
    let mut bytes = [0; ANSWER_BYTES];
    bytes[..2].copy_from_slice(&kind.to_le_bytes());
    bytes[8..].copy_from_slice(&state.to_le_bytes());
    chain.writable.write_at(0, &bytes)?;
    Some(ANSWER_BYTES as u32)
}
