//! Packets on their way, with a descriptor or without one. Each is sent and received whole or not at all.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};

/// A received packet.
pub(super) struct Received {
    pub(super) bytes: usize,
    pub(super) file: Option<OwnedFd>,
}

/// Two sockets, connected to each other and to nothing else.
pub(super) fn connected() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?)
}

/// Sends the parts as one packet, and waits for room: for the VMM, which can send no descriptor. The process
/// must ignore SIGPIPE.
pub(super) fn write(socket: BorrowedFd<'_>, parts: &[IoSlice<'_>]) -> io::Result<()> {
    whole(rustix::io::retry_on_intr(|| rustix::io::writev(socket, parts))?, parts)
}

/// Sends the parts as one packet, and waits for room: for the share, which lends files.
pub(super) fn send(
    socket: BorrowedFd<'_>,
    parts: &[IoSlice<'_>],
    file: Option<BorrowedFd<'_>>,
) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let files: Option<[BorrowedFd<'_>; 1]> = file.map(|file| [file]);
    if let Some(files) = &files {
        ancillary.push(SendAncillaryMessage::ScmRights(files));
    }
    whole(rustix::io::retry_on_intr(|| sendmsg(socket, parts, &mut ancillary, SendFlags::NOSIGNAL))?, parts)
}

/// Checks that all parts were sent. A packet socket takes all of one. Another kind may not, and only an
/// attacker would have given it to us.
fn whole(sent: usize, parts: &[IoSlice<'_>]) -> io::Result<()> {
    let whole = parts.iter().map(|part| part.len()).sum::<usize>();
    if sent == whole { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
}

/// Receives a packet into the parts, and its descriptor if one is `wanted`. The kernel closes any other.
/// Returns `None` if the other side has hung up. A packet longer than the parts is an error.
pub(super) fn receive(
    socket: BorrowedFd<'_>,
    parts: &mut [IoSliceMut<'_>],
    wanted: bool,
    flags: RecvFlags,
) -> io::Result<Option<Received>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let room = if wanted { space.len() } else { 0 };
    let mut ancillary = RecvAncillaryBuffer::new(&mut space[..room]);
    let flags = flags | RecvFlags::CMSG_CLOEXEC;
    let received = rustix::io::retry_on_intr(|| recvmsg(socket, parts, &mut ancillary, flags))?;
    let mut files = ancillary.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(files) => Some(files),
        _ => None,
    });
    let file = files.next().and_then(|mut files| files.next());
    if received.flags.contains(ReturnFlags::TRUNC) {
        return Err(io::Error::other("a packet is too long"));
    }
    Ok((received.bytes > 0).then_some(Received { bytes: received.bytes, file }))
}
