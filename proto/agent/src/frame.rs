//! Frames: a `u32` little-endian length and that many bytes of protobuf. Pure: this module converts between
//! messages and bytes, and uses no sockets. Agent and daemon each have their own sockets.

use protobuf::Message;

use crate::FRAME_BYTES_MAX;

/// Bytes of a frame's length.
pub const HEADER_BYTES: usize = 4;

/// Why a frame is not valid.
#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    /// The frame is longer than [`FRAME_BYTES_MAX`].
    #[error("a frame of {0} bytes is longer than {FRAME_BYTES_MAX}")]
    TooLong(usize),
    /// The body is not a valid message of the expected type.
    #[error("a frame's body is no valid message")]
    Malformed(#[source] protobuf::Error),
}

/// The message as a frame: length, then body.
pub fn encode<M: Message>(message: &M) -> Result<Vec<u8>, FrameError> {
    let body = message.write_to_bytes().map_err(FrameError::Malformed)?;
    let length = u32::try_from(body.len()).unwrap_or(u32::MAX);
    if length > FRAME_BYTES_MAX {
        return Err(FrameError::TooLong(body.len()));
    }
    let mut frame = Vec::with_capacity(HEADER_BYTES + body.len());
    frame.extend_from_slice(&length.to_le_bytes());
    frame.extend_from_slice(&body);
    Ok(frame)
}

/// Returns the length of the body after this header. More than [`FRAME_BYTES_MAX`] is an error.
pub fn body_bytes(header: [u8; HEADER_BYTES]) -> Result<usize, FrameError> {
    let length = u32::from_le_bytes(header);
    let bytes = usize::try_from(length).unwrap_or(usize::MAX);
    if length > FRAME_BYTES_MAX { Err(FrameError::TooLong(bytes)) } else { Ok(bytes) }
}

/// The message in a frame's body.
pub fn decode<M: Message>(body: &[u8]) -> Result<M, FrameError> {
    M::parse_from_bytes(body).map_err(FrameError::Malformed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::{StreamOpen, StreamOpened};

    #[test]
    fn a_message_survives_its_frame() {
        let open = StreamOpen { container_id: "c1".into(), offset: 7, ..Default::default() };
        let frame = encode(&open).unwrap();
        let header: [u8; HEADER_BYTES] = frame[..HEADER_BYTES].try_into().unwrap();
        assert_eq!(body_bytes(header).unwrap(), frame.len() - HEADER_BYTES);
        assert_eq!(decode::<StreamOpen>(&frame[HEADER_BYTES..]).unwrap(), open);
    }

    #[test]
    fn a_frame_beyond_the_bound_is_refused_both_ways() {
        let long = StreamOpened { error: "x".repeat(FRAME_BYTES_MAX as usize), ..Default::default() };
        assert!(matches!(encode(&long), Err(FrameError::TooLong(_))));
        assert!(matches!(body_bytes(u32::MAX.to_le_bytes()), Err(FrameError::TooLong(_))));
    }

    #[test]
    fn a_body_of_noise_is_refused() {
        assert!(matches!(decode::<StreamOpen>(&[0xff; 16]), Err(FrameError::Malformed(_))));
    }
}
