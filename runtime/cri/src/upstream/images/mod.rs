//! Images of two stores. An image is needed in the store of the side running its pod, but a client asks for
//! an image without a pod. So an image counts as present if any store has it. It is pulled to the other when
//! a container needs it there (`create.rs`). No pod's credentials ever pull an image for another pod.

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

/// Decodes a request or an answer for use in this module.
fn decode<M: Message + Default>(message: &Bytes) -> Result<M, Status> {
    M::decode(message.clone()).map_err(|error| Status::invalid_argument(error.to_string()))
}
