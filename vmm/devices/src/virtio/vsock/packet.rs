//! The packet header on the wire (virtio 1.2 section 5.10.6; Linux `include/uapi/linux/virtio_vsock.h`).
//!
//! Owns the layout and its constants. Pure: bytes in, header out. This module never judges whether a packet
//! is valid for a connection, and touches no guest memory.
//!
//! ```text
//!  0        8        16       20       24   28     30   32     36         40       44
//!  │src_cid │dst_cid │src_port│dst_port│len │type  │op  │flags │buf_alloc │fwd_cnt │payload…
//! ```
//! All fields are little endian.

/// Bytes of a header.
pub(super) const HEADER_BYTES: usize = 44;

/// Context id of the host (VMADDR_CID_HOST).
pub(super) const HOST_CID: u64 = 2;

/// The only packet type of this device (VIRTIO_VSOCK_TYPE_STREAM).
pub(super) const TYPE_STREAM: u16 = 1;

/// SHUTDOWN flag: the sender will receive no more (VIRTIO_VSOCK_SHUTDOWN_RCV).
pub(super) const SHUTDOWN_RECEIVE: u32 = 1;

/// SHUTDOWN flag: the sender will send no more (VIRTIO_VSOCK_SHUTDOWN_SEND).
pub(super) const SHUTDOWN_SEND: u32 = 2;

/// The purpose of a packet. Values are those on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub(super) enum Op {
    /// Open a connection.
    Request = 1,
    /// The connection is open.
    Response = 2,
    /// The connection is gone, or never was.
    Reset = 3,
    /// One or both halves end.
    Shutdown = 4,
    /// Carries bytes.
    Data = 5,
    /// Carries `buf_alloc` and `fwd_cnt`, as every packet does.
    CreditUpdate = 6,
    /// Asks for a credit update.
    CreditRequest = 7,
}

impl Op {
    /// Returns the operation with this number, if there is one.
    pub(super) fn from_wire(value: u16) -> Option<Op> {
        Some(match value {
            1 => Op::Request,
            2 => Op::Response,
            3 => Op::Reset,
            4 => Op::Shutdown,
            5 => Op::Data,
            6 => Op::CreditUpdate,
            7 => Op::CreditRequest,
            _ => return None,
        })
    }

    /// Returns the number on the wire.
    pub(super) fn to_wire(self) -> u16 {
        self as u16
    }
}

/// A header, as numbers. `op` and `kind` are kept as received, because a guest may write anything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Header {
    /// Context id of the sender.
    pub(super) src_cid: u64,
    /// Context id of the receiver.
    pub(super) dst_cid: u64,
    /// Port of the sender.
    pub(super) src_port: u32,
    /// Port of the receiver.
    pub(super) dst_port: u32,
    /// Bytes of payload after the header.
    pub(super) len: u32,
    /// Socket type; [`TYPE_STREAM`].
    pub(super) kind: u16,
    /// An [`Op`].
    pub(super) op: u16,
    /// For SHUTDOWN.
    pub(super) flags: u32,
    /// Bytes of the sender's buffer for this connection.
    pub(super) buf_alloc: u32,
    /// Bytes taken out of that buffer by the sender since the connection began, modulo 2^32.
    pub(super) fwd_cnt: u32,
}

impl Header {
    /// Reads a header.
    pub(super) fn parse(bytes: &[u8; HEADER_BYTES]) -> Header {
        Header {
            src_cid: u64::from_le_bytes(field(bytes, 0)),
            dst_cid: u64::from_le_bytes(field(bytes, 8)),
            src_port: u32::from_le_bytes(field(bytes, 16)),
            dst_port: u32::from_le_bytes(field(bytes, 20)),
            len: u32::from_le_bytes(field(bytes, 24)),
            kind: u16::from_le_bytes(field(bytes, 28)),
            op: u16::from_le_bytes(field(bytes, 30)),
            flags: u32::from_le_bytes(field(bytes, 32)),
            buf_alloc: u32::from_le_bytes(field(bytes, 36)),
            fwd_cnt: u32::from_le_bytes(field(bytes, 40)),
        }
    }

    /// Writes the header.
    pub(super) fn to_bytes(self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[0..8].copy_from_slice(&self.src_cid.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.dst_cid.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.src_port.to_le_bytes());
        bytes[20..24].copy_from_slice(&self.dst_port.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.len.to_le_bytes());
        bytes[28..30].copy_from_slice(&self.kind.to_le_bytes());
        bytes[30..32].copy_from_slice(&self.op.to_le_bytes());
        bytes[32..36].copy_from_slice(&self.flags.to_le_bytes());
        bytes[36..40].copy_from_slice(&self.buf_alloc.to_le_bytes());
        bytes[40..44].copy_from_slice(&self.fwd_cnt.to_le_bytes());
        bytes
    }

    /// Returns the RST in answer to this packet: its addresses swapped, no credit given.
    pub(super) fn reset_reply(&self) -> Header {
        Header {
            src_cid: self.dst_cid,
            dst_cid: self.src_cid,
            src_port: self.dst_port,
            dst_port: self.src_port,
            kind: TYPE_STREAM,
            op: Op::Reset.to_wire(),
            ..Header::default()
        }
    }
}

/// Returns `N` bytes of `bytes` from `offset`. Every caller passes an offset within the header.
fn field<const N: usize>(bytes: &[u8; HEADER_BYTES], offset: usize) -> [u8; N] {
    let mut value = [0; N];
    value.copy_from_slice(&bytes[offset..offset + N]);
    value
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_header_reads_back_as_its_own_bytes(low in any::<[u8; 32]>(), high in any::<[u8; 12]>()) {
            let mut bytes = [0; HEADER_BYTES];
            bytes[..32].copy_from_slice(&low);
            bytes[32..].copy_from_slice(&high);
            prop_assert_eq!(Header::parse(&bytes).to_bytes(), bytes);
        }
    }

    #[test]
    fn fields_stand_where_the_specification_puts_them() {
        let header = Header {
            src_cid: 0x0102_0304_0506_0708,
            dst_cid: 2,
            src_port: 0x1112_1314,
            dst_port: 1024,
            len: 7,
            kind: TYPE_STREAM,
            op: Op::Shutdown.to_wire(),
            flags: SHUTDOWN_SEND,
            buf_alloc: 0x2122_2324,
            fwd_cnt: 0x3132_3334,
        };
        let bytes = header.to_bytes();
        assert_eq!(bytes[0..8], [8, 7, 6, 5, 4, 3, 2, 1]);
        assert_eq!(bytes[8], 2);
        assert_eq!(bytes[16..20], [0x14, 0x13, 0x12, 0x11]);
        assert_eq!(bytes[20..22], [0, 4]);
        assert_eq!(bytes[24], 7);
        assert_eq!(bytes[28..32], [1, 0, 4, 0]);
        assert_eq!(bytes[32], 2);
        assert_eq!(bytes[36], 0x24);
        assert_eq!(bytes[43], 0x31);
    }

    #[test]
    fn only_the_seven_operations_have_a_name() {
        for value in 0..=u16::MAX {
            assert_eq!(Op::from_wire(value).map(Op::to_wire), (1..=7).contains(&value).then_some(value));
        }
    }

    #[test]
    fn a_reset_reply_goes_back_the_way_the_packet_came() {
        let packet = Header { src_cid: 3, dst_cid: 9, src_port: 4, dst_port: 5, len: 6, ..Header::default() };
        let reply = packet.reset_reply();
        assert_eq!((reply.src_cid, reply.dst_cid, reply.src_port, reply.dst_port), (9, 3, 5, 4));
        assert_eq!((reply.len, reply.op), (0, Op::Reset.to_wire()));
    }
}
