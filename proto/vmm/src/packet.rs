//! One message per packet, with its descriptors.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::{Errno, retry_on_intr};
use rustix::net::{
    self, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

use crate::Message;

/// Longest packet, in bytes: below the default socket buffer (`net.core.wmem_default`, 212,992), and above a
/// 64 KiB console with its text's escapes.
pub const PACKET_BYTES_MAX: usize = 192 * 1024;

/// Most descriptors in one packet, the kernel's limit (`SCM_MAX_FD`). A boot has one for each slot, an image
/// at most [`PARTS_MAX`](crate::PARTS_MAX).
pub const FDS_MAX: usize = 253;

/// A received packet.
#[derive(Debug)]
pub struct Packet {
    /// The message.
    pub message: Message,
    /// The message's descriptors, in the sender's order; all close-on-exec.
    pub fds: Vec<OwnedFd>,
}

/// A received packet before its message is decoded.
#[derive(Debug)]
pub struct RawPacket {
    bytes: Vec<u8>,
    fds: Vec<OwnedFd>,
}

impl RawPacket {
    /// Length of the message in bytes, at most [`PACKET_BYTES_MAX`].
    pub fn message_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Takes the descriptors of a packet that is not decoded. Their last close may wait for a server.
    pub fn into_fds(self) -> Vec<OwnedFd> {
        self.fds
    }

    /// Decodes the message.
    ///
    /// # Errors
    /// It is not a message.
    pub fn decode(self) -> Result<Packet, PacketError> {
        let RawPacket { bytes, fds } = self;
        match serde_json::from_slice(&bytes) {
            Ok(message) => Ok(Packet { message, fds }),
            Err(source) => Err(PacketError::Malformed { source, fds }),
        }
    }
}

/// Why a packet could not be sent or received.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum PacketError {
    #[error("control socket")]
    Socket(#[from] Errno),
    #[error("control packet of {length} bytes, at most {PACKET_BYTES_MAX} are allowed")]
    TooLong { length: usize },
    #[error("control packet with {count} descriptors, at most {FDS_MAX} are allowed")]
    TooManyFds { count: usize },
    #[error(
        "control packet was cut off (longer than {PACKET_BYTES_MAX} bytes, or with more than {FDS_MAX} descriptors)"
    )]
    Truncated { fds: Vec<OwnedFd> },
    #[error("control packet is not a message")]
    Malformed { source: serde_json::Error, fds: Vec<OwnedFd> },
}

impl PacketError {
    /// Returns true if a non-blocking socket had nothing to receive, or no room to send.
    pub fn would_block(&self) -> bool {
        matches!(self, PacketError::Socket(Errno::AGAIN))
    }

    /// Takes the descriptors of a packet that could not be received. Their last close may wait for a server.
    pub fn take_fds(&mut self) -> Vec<OwnedFd> {
        match self {
            PacketError::Truncated { fds } | PacketError::Malformed { fds, .. } => std::mem::take(fds),
            _ => Vec::new(),
        }
    }
}

/// Sends one message with its descriptors, all or nothing: a packet is never half sent. Without descriptors
/// it needs no sendmsg(2), which a VMM's filter does not allow.
pub fn send(socket: impl AsFd, message: &Message, fds: &[BorrowedFd<'_>]) -> Result<(), PacketError> {
    let malformed = |source| PacketError::Malformed { source, fds: Vec::new() };
    let bytes = serde_json::to_vec(message).map_err(malformed)?;
    if bytes.len() > PACKET_BYTES_MAX {
        return Err(PacketError::TooLong { length: bytes.len() });
    }
    if fds.len() > FDS_MAX {
        return Err(PacketError::TooManyFds { count: fds.len() });
    }
    if fds.is_empty() {
        retry_on_intr(|| net::send(&socket, &bytes, SendFlags::NOSIGNAL))?;
        return Ok(());
    }
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_MAX))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let fits = ancillary.push(SendAncillaryMessage::ScmRights(fds));
    debug_assert!(fits, "the buffer was sized for FDS_MAX");
    retry_on_intr(|| sendmsg(&socket, &[IoSlice::new(&bytes)], &mut ancillary, SendFlags::NOSIGNAL))?;
    Ok(())
}

/// Receives one packet, or `None` when the peer has closed.
pub fn recv(socket: impl AsFd) -> Result<Option<Packet>, PacketError> {
    recv_raw(socket)?.map(RawPacket::decode).transpose()
}

/// As [`recv`], but leaves the message to be decoded: a long one takes much longer to decode than to send.
pub fn recv_raw(socket: impl AsFd) -> Result<Option<RawPacket>, PacketError> {
    let mut bytes = vec![0u8; PACKET_BYTES_MAX];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_MAX))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let received = retry_on_intr(|| {
        recvmsg(&socket, &mut [IoSliceMut::new(&mut bytes)], &mut ancillary, RecvFlags::CMSG_CLOEXEC)
    })?;
    let fds: Vec<OwnedFd> = ancillary
        .drain()
        .filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(fds) => Some(fds),
            _ => None,
        })
        .flatten()
        .collect();
    if received.bytes == 0 && fds.is_empty() {
        return Ok(None);
    }
    if received.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC) {
        return Err(PacketError::Truncated { fds });
    }
    bytes.truncate(received.bytes);
    Ok(Some(RawPacket { bytes, fds }))
}

#[cfg(test)]
mod tests {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    use super::*;
    use crate::{Event, FdIndex, MEMORY_BYTES_MAX, PAGE_RUNS_MAX, PageRun, Request, RestoreConfig};

    fn pair() -> (OwnedFd, OwnedFd) {
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap()
    }

    #[test]
    fn a_message_arrives_with_its_descriptors() {
        let (here, there) = pair();
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        let request = Request::Save { memory: FdIndex(0), state: FdIndex(0) };
        send(&here, &Message::Request { id: 1, request }, &[writer.as_fd()]).unwrap();
        let packet = recv(&there).unwrap().unwrap();
        assert!(matches!(packet.message, Message::Request { request: Request::Save { .. }, .. }));
        rustix::io::write(&packet.fds[0], b"x").unwrap();
        let mut byte = [0];
        rustix::io::read(&reader, &mut byte).unwrap();
        assert_eq!(&byte, b"x");
    }

    #[test]
    fn a_packet_has_room_for_the_longest_lists_of_pages() {
        let (here, there) = pair();
        let last = u32::try_from(MEMORY_BYTES_MAX / 4096 - 1).unwrap();
        let pages = vec![PageRun { first: last, count: last }; PAGE_RUNS_MAX];
        let config = RestoreConfig {
            id: "a".repeat(64),
            vcpus: u8::MAX,
            memory_bytes: MEMORY_BYTES_MAX,
            memory_max_bytes: MEMORY_BYTES_MAX,
            memory: FdIndex(0),
            state: FdIndex(1),
            devices: Vec::new(),
            first_writes: pages.clone(),
            first_reads: pages,
        };
        let request = Request::Restore(Box::new(config));
        send(&here, &Message::Request { id: u64::MAX, request }, &[]).unwrap();
        assert!(recv(&there).unwrap().is_some());
    }

    #[test]
    fn a_closed_peer_is_an_end_and_not_an_error() {
        let (here, there) = pair();
        drop(here);
        assert!(recv(&there).unwrap().is_none());
    }

    #[test]
    fn an_unknown_request_is_refused() {
        let (here, there) = pair();
        rustix::io::write(&here, br#"{"request":{"id":1,"request":"fly"}}"#).unwrap();
        assert!(matches!(recv(&there), Err(PacketError::Malformed { .. })));
    }

    #[test]
    fn descriptors_of_a_packet_that_is_no_message_are_the_receivers_to_close() {
        let (here, there) = pair();
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        let descriptor = [writer.as_fd()];
        assert!(ancillary.push(SendAncillaryMessage::ScmRights(&descriptor)));
        sendmsg(&here, &[IoSlice::new(b"nonsense")], &mut ancillary, SendFlags::empty()).unwrap();
        drop(writer);
        let mut error = recv(&there).unwrap_err();
        let taken = error.take_fds();
        assert_eq!((taken.len(), error.take_fds().len()), (1, 0));
        // The pipe is open for writing as long as they are.
        drop(taken);
        assert_eq!(rustix::io::read(&reader, &mut [0]).unwrap(), 0);
    }

    #[test]
    fn fields_that_are_not_known_are_passed_over() {
        let (here, there) = pair();
        for text in [
            r#"{"request":{"id":1,"request":{"plug":{"slot":11,"device":{"blk":{"image":0,"read_only":true,"new":[1]}},"new":{}}},"new":0}}"#,
            r#"{"response":{"id":1,"result":{"Ok":{"slots":[{"slot":1,"kind":"vsock","read_only":false,"new":1}]}}}}"#,
            r#"{"response":{"id":1,"result":{"Err":{"message":"no","new":1}}}}"#,
            r#"{"event":{"guest_stream":{"port":1024,"new":1}}}"#,
            r#"{"event":{"stopped":{"reason":{"guest_panic":{"message":"","new":1}},"registers":null,"console":"",
                "exits":{"mmio_read":0,"mmio_write":0,"pio_in":0,"pio_out":0,"halt":0,"interrupted":0,"other":0,"new":0},"new":1}}}"#,
        ] {
            rustix::io::write(&here, text.as_bytes()).unwrap();
            assert!(recv(&there).is_ok(), "{text}");
        }
    }

    #[test]
    fn a_stream_of_an_earlier_vmm_has_no_number() {
        let (here, there) = pair();
        for (text, expected) in [
            (r#"{"event":{"guest_stream":{"port":1024}}}"#, None),
            (r#"{"event":{"guest_stream":{"port":1024,"number":18446744073709551615}}}"#, Some(u64::MAX)),
        ] {
            rustix::io::write(&here, text.as_bytes()).unwrap();
            let Message::Event(Event::GuestStream { port: 1024, number }) =
                recv(&there).unwrap().unwrap().message
            else {
                panic!("no stream");
            };
            assert_eq!(number, expected);
        }
    }

    #[test]
    fn a_vmm_that_does_not_say_its_release_is_understood() {
        let (here, there) = pair();
        let said = |hello: &str| {
            let text = format!(r#"{{"response":{{"id":1,"result":{{"Ok":{{"hello":{hello}}}}}}}}}"#);
            rustix::io::write(&here, text.as_bytes()).unwrap();
            match recv(&there).unwrap().unwrap().message {
                Message::Response { result: Ok(crate::Response::Hello { version, release }), .. } => {
                    (version, release)
                }
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(said(r#"{"version":1}"#), (1, String::new()));
        assert_eq!(said(r#"{"version":1,"release":"0.2.0"}"#), (1, "0.2.0".to_owned()));
    }

    #[test]
    fn a_packet_beyond_the_limit_is_refused_before_it_is_sent() {
        let (here, _there) = pair();
        let text = "x".repeat(PACKET_BYTES_MAX);
        let message = Message::Response { id: 1, result: Ok(crate::Response::Console { text }) };
        assert!(matches!(send(&here, &message, &[]), Err(PacketError::TooLong { .. })));
    }

    #[test]
    fn an_image_with_the_most_files_fits_one_packet() {
        let (here, there) = pair();
        let file = rustix::pipe::pipe().unwrap().0;
        let part =
            |number| crate::ImagePart { file: crate::FdIndex(number), offset: u64::MAX, length: u64::MAX };
        let parts = (0..crate::PARTS_MAX as u8).map(part).collect();
        let (slot, device) = (crate::Slot::ROOT, crate::Device::Layered { parts });
        let message = Message::Request { id: u64::MAX, request: Request::Plug { slot, device } };
        send(&here, &message, &vec![file.as_fd(); crate::PARTS_MAX]).unwrap();
        assert_eq!(recv(&there).unwrap().unwrap().fds.len(), crate::PARTS_MAX);
        let refused = send(&here, &message, &vec![file.as_fd(); FDS_MAX + 1]);
        assert!(matches!(refused, Err(PacketError::TooManyFds { .. })));
    }

    #[test]
    fn requests_have_the_documented_form() {
        let text = serde_json::to_string(&Message::Request { id: 7, request: Request::Stats }).unwrap();
        assert_eq!(text, r#"{"request":{"id":7,"request":"stats"}}"#);
    }
}
