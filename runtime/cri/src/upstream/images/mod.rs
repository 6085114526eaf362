//! Images of two stores. An image is needed in the store of the side that runs its pod, while a client asks for an image
//! without a pod: so it counts as present where any store has it, and is taken to the other when a container needs it
//! there (`create.rs`). No pod's credentials ever fetch an image for another pod.

mod absent;
mod create;
mod fs_info;
mod joined;
mod pull;
mod remove;
mod status;

pub(super) use absent::Absent;
pub(super) use joined::joined;

use bytes::Bytes;
use prost::Message;
use tonic::Status;

/// Decodes a request or an answer that this module has to read.
fn decode<M: Message + Default>(message: &Bytes) -> Result<M, Status> {
    M::decode(message.clone()).map_err(|error| Status::invalid_argument(error.to_string()))
}
