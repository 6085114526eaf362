//! Frames on the wire: SPDY protocol draft 3.1, section 2.2. Pure.
//!
//! ```text
//!   control  1|version 3 (15 bits)|type (16)|flags (8)|length (24)|…
//!   data     0|stream id (31 bits)          |flags (8)|length (24)|…
//! ```

use bytes::{BufMut, Bytes, BytesMut};

use super::error::SpdyError;

/// Bytes before a frame's content.
pub(crate) const HEADER_BYTES: usize = 8;

/// Longest control frame, in bytes: a header block of a few short headers, and room. Data frames may be as
/// long as 24 bits allow, and are never held whole.
pub(crate) const CONTROL_BYTES_MAX: usize = 16 * 1024;

/// The status of a reset ending a stream in order, from one side.
pub(crate) const CANCEL: u32 = 5;
/// The status of a reset refusing a stream before anything was done with it.
pub(crate) const REFUSED_STREAM: u32 = 3;

/// Shorter data is copied behind its header. This costs less than a separate slice in a vectored write.
const COPIED_BYTES_MAX: usize = 4 * 1024;

const VERSION: u16 = 3;
const FLAG_FIN: u8 = 1;
const STREAM_ID: u32 = 0x7fff_ffff;

const SYN_STREAM: u16 = 1;
const SYN_REPLY: u16 = 2;
const RST_STREAM: u16 = 3;
const PING: u16 = 6;
const GOAWAY: u16 = 7;

/// A frame's first bytes, parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Head {
    Control { kind: u16, fin: bool, length: usize },
    Data { id: u32, fin: bool, length: usize },
}

impl Head {
    pub(crate) fn parse(bytes: [u8; HEADER_BYTES]) -> Result<Head, SpdyError> {
        let [a, b, c, d, flags, x, y, z] = bytes;
        let length = usize::try_from(u32::from_be_bytes([0, x, y, z])).unwrap_or(usize::MAX);
        let fin = flags & FLAG_FIN != 0;
        if a & 0x80 == 0 {
            let id = u32::from_be_bytes([a, b, c, d]);
            return if id == 0 {
                Err(SpdyError::Malformed("a data frame"))
            } else {
                Ok(Head::Data { id, fin, length })
            };
        }
        let version = u16::from_be_bytes([a & 0x7f, b]);
        if version != VERSION {
            return Err(SpdyError::Version(version));
        }
        if length > CONTROL_BYTES_MAX {
            return Err(SpdyError::FrameTooLong(length));
        }
        Ok(Head::Control { kind: u16::from_be_bytes([c, d]), fin, length })
    }
}

/// A control frame's content, with header blocks still compressed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Control {
    SynStream {
        id: u32,
        block: Bytes,
    },
    SynReply {
        id: u32,
        block: Bytes,
    },
    Reset {
        id: u32,
        status: u32,
    },
    Ping(u32),
    GoAway,
    /// SETTINGS, WINDOW_UPDATE, HEADERS and unknown kinds. They are ignored.
    Other,
}

impl Control {
    pub(crate) fn parse(kind: u16, mut body: Bytes) -> Result<Control, SpdyError> {
        let number = |at: usize, body: &Bytes| {
            let bytes = body.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
            bytes.map(u32::from_be_bytes).ok_or(SpdyError::Malformed("a control frame"))
        };
        let stream = |body: &Bytes| match number(0, body)? & STREAM_ID {
            0 => Err(SpdyError::Malformed("a stream's number")),
            id => Ok(id),
        };
        Ok(match kind {
            SYN_STREAM => {
                let id = stream(&body)?;
                // The stream's number, an associated stream's, a priority and a slot.
                const BEFORE_BLOCK: usize = 10;
                if body.len() < BEFORE_BLOCK {
                    return Err(SpdyError::Malformed("SYN_STREAM"));
                }
                Control::SynStream { id, block: body.split_off(BEFORE_BLOCK) }
            }
            SYN_REPLY => Control::SynReply { id: stream(&body)?, block: body.split_off(4) },
            RST_STREAM => Control::Reset { id: stream(&body)?, status: number(4, &body)? },
            PING => Control::Ping(number(0, &body)?),
            GOAWAY => Control::GoAway,
            _ => Control::Other,
        })
    }
}

/// A frame to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Frame {
    SynStream { id: u32, block: Vec<u8> },
    SynReply { id: u32, block: Vec<u8> },
    Data { id: u32, fin: bool, bytes: Bytes },
    Reset { id: u32, status: u32 },
    Ping(u32),
    GoAway { last: u32 },
}

impl Frame {
    /// Appends the frame. Long data is returned instead, to be sent behind the rest without a copy.
    pub(crate) fn put_before_data(&self, into: &mut BytesMut) -> Bytes {
        match self {
            Frame::Data { id, fin, bytes } if bytes.len() > COPIED_BYTES_MAX => {
                put_data_head(into, *id, *fin, bytes.len());
                bytes.clone()
            }
            frame => {
                frame.put(into);
                Bytes::new()
            }
        }
    }

    /// Appends the frame. Its content's length must fit 24 bits, and this crate creates none longer.
    pub(crate) fn put(&self, into: &mut BytesMut) {
        match self {
            Frame::Data { id, fin, bytes } => {
                put_data_head(into, *id, *fin, bytes.len());
                into.put_slice(bytes);
            }
            Frame::SynStream { id, block } => {
                put_control(into, SYN_STREAM, 10 + block.len());
                into.put_u32(*id);
                into.put_slice(&[0; 6]);
                into.put_slice(block);
            }
            Frame::SynReply { id, block } => {
                put_control(into, SYN_REPLY, 4 + block.len());
                into.put_u32(*id);
                into.put_slice(block);
            }
            Frame::Reset { id, status } => {
                put_control(into, RST_STREAM, 8);
                into.put_u32(*id);
                into.put_u32(*status);
            }
            Frame::Ping(number) => {
                put_control(into, PING, 4);
                into.put_u32(*number);
            }
            Frame::GoAway { last } => {
                put_control(into, GOAWAY, 8);
                into.put_u32(*last);
                into.put_u32(0);
            }
        }
    }
}

/// Appends a data frame's first bytes. `length` must fit 24 bits.
pub(crate) fn put_data_head(into: &mut BytesMut, id: u32, fin: bool, length: usize) {
    into.put_u32(id & STREAM_ID);
    put_length(into, fin, length);
}

fn put_control(into: &mut BytesMut, kind: u16, length: usize) {
    into.put_u16(0x8000 | VERSION);
    into.put_u16(kind);
    put_length(into, false, length);
}

fn put_length(into: &mut BytesMut, fin: bool, length: usize) {
    let flags = if fin { u32::from(FLAG_FIN) << 24 } else { 0 };
    debug_assert!(length < 1 << 24);
    into.put_u32(flags | u32::try_from(length).unwrap_or(u32::MAX) & 0xff_ffff);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parse(frame: &Frame) -> (Head, Bytes) {
        let mut bytes = BytesMut::new();
        frame.put(&mut bytes);
        let body = bytes.split_off(HEADER_BYTES).freeze();
        (Head::parse(bytes[..].try_into().unwrap()).unwrap(), body)
    }

    fn control(frame: &Frame) -> Control {
        let (Head::Control { kind, length, .. }, body) = parse(frame) else { panic!("{frame:?} is data") };
        assert_eq!(length, body.len());
        Control::parse(kind, body).unwrap()
    }

    #[test]
    fn a_control_frame_beyond_the_bound_is_refused_before_it_is_read() {
        let mut head = [0x80, 3, 0, 1, 0, 0, 0x40, 0];
        Head::parse(head).unwrap();
        head[7] = 1;
        assert!(matches!(Head::parse(head), Err(SpdyError::FrameTooLong(_))));
    }

    #[test]
    fn another_version_is_refused() {
        assert!(matches!(Head::parse([0x80, 2, 0, 1, 0, 0, 0, 0]), Err(SpdyError::Version(2))));
    }

    #[test]
    fn a_short_body_is_refused() {
        for (kind, length) in [(SYN_STREAM, 9), (SYN_REPLY, 3), (RST_STREAM, 7), (PING, 3)] {
            assert!(Control::parse(kind, vec![1; length].into()).is_err(), "{kind}");
        }
        assert!(Control::parse(SYN_STREAM, vec![0; 10].into()).is_err());
    }

    #[test]
    fn frames_that_need_no_answer_are_ignored() {
        for kind in [4, 8, 9, 4711] {
            assert_eq!(Control::parse(kind, Bytes::new()).unwrap(), Control::Other);
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_again(id in 1u32..STREAM_ID, other: u32, fin: bool, bytes: Vec<u8>) {
            let (head, body) = parse(&Frame::Data { id, fin, bytes: bytes.clone().into() });
            prop_assert_eq!(head, Head::Data { id, fin, length: bytes.len() });
            prop_assert_eq!(&body, &bytes);
            let block = Bytes::from(bytes.clone());
            prop_assert_eq!(control(&Frame::SynStream { id, block: bytes.clone() }), Control::SynStream { id, block: block.clone() });
            prop_assert_eq!(control(&Frame::SynReply { id, block: bytes }), Control::SynReply { id, block });
            prop_assert_eq!(control(&Frame::Reset { id, status: other }), Control::Reset { id, status: other });
            prop_assert_eq!(control(&Frame::Ping(other)), Control::Ping(other));
            prop_assert_eq!(control(&Frame::GoAway { last: other }), Control::GoAway);
        }

        #[test]
        fn noise_does_not_break_the_parser(head: [u8; 8], kind in 0u16..12, body: Vec<u8>) {
            let _ = Head::parse(head);
            let _ = Control::parse(kind, body.into());
        }
    }
}
