//! The packets between the daemon and a connector, both of one build. A question is a number, a path and the
//! container's end of the connection. The answer is the number and an errno, 0 for success.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

/// Bytes of the number at the start of each packet.
const ID_BYTES: usize = 8;

/// Longest path, in bytes (PATH_MAX).
const PATH_BYTES_MAX: usize = 4096;

/// A requested connection.
#[derive(Debug)]
pub(crate) struct Question {
    pub(crate) id: u64,
    pub(crate) path: PathBuf,
    pub(crate) stream: OwnedFd,
}

/// The outcome of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) id: u64,
    /// The error, or 0 for a successful connection.
    pub(crate) errno: i32,
}

/// Asks for a connection.
pub(crate) fn ask(socket: impl AsFd, id: u64, path: &Path, stream: BorrowedFd<'_>) -> Result<(), Errno> {
    let path = path.as_os_str().as_bytes();
    if path.len() > PATH_BYTES_MAX {
        return Err(Errno::NAMETOOLONG);
    }
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let streams = [stream];
    let fits = ancillary.push(SendAncillaryMessage::ScmRights(&streams));
    debug_assert!(fits, "the buffer was sized for one descriptor");
    let bytes = [id.to_le_bytes().as_slice(), path].concat();
    retry(|| sendmsg(&socket, &[IoSlice::new(&bytes)], &mut ancillary, SendFlags::NOSIGNAL)).map(drop)
}

/// Receives the next question, or `None` when the daemon has closed. A malformed packet is an error.
pub(crate) fn question(socket: impl AsFd) -> Result<Option<Question>, Errno> {
    let mut bytes = [0; ID_BYTES + PATH_BYTES_MAX];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC;
    let received = retry(|| recvmsg(&socket, &mut [IoSliceMut::new(&mut bytes)], &mut ancillary, flags))?;
    let stream = ancillary.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
        _ => None,
    });
    if received.bytes == 0 && stream.is_none() {
        return Ok(None);
    }
    if received.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC) {
        return Err(Errno::BADMSG);
    }
    let (id, path) = bytes[..received.bytes].split_first_chunk().ok_or(Errno::BADMSG)?;
    let path = PathBuf::from(std::ffi::OsStr::from_bytes(path));
    Ok(Some(Question { id: u64::from_le_bytes(*id), path, stream: stream.ok_or(Errno::BADMSG)? }))
}

/// Sends an answer.
pub(crate) fn answer(socket: impl AsFd, answer: Answer) -> Result<(), Errno> {
    let bytes = [answer.id.to_le_bytes().as_slice(), answer.errno.to_le_bytes().as_slice()].concat();
    retry(|| rustix::net::send(&socket, &bytes, SendFlags::NOSIGNAL)).map(drop)
}

/// Receives the next answer, or `None` when the connector has ended.
pub(crate) fn next_answer(socket: impl AsFd) -> Result<Option<Answer>, Errno> {
    let mut bytes = [0; ID_BYTES + size_of::<i32>()];
    let (received, _) = retry(|| rustix::net::recv(&socket, bytes.as_mut_slice(), RecvFlags::empty()))?;
    if received == 0 {
        return Ok(None);
    }
    let (id, errno) = bytes.split_first_chunk().ok_or(Errno::BADMSG)?;
    let errno = <[u8; 4]>::try_from(errno).map_err(|_| Errno::BADMSG)?;
    Ok(Some(Answer { id: u64::from_le_bytes(*id), errno: i32::from_le_bytes(errno) }))
}

fn retry<T>(mut call: impl FnMut() -> Result<T, Errno>) -> Result<T, Errno> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            other => return other,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    use super::*;

    fn pair() -> (OwnedFd, OwnedFd) {
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap()
    }

    #[test]
    fn a_question_arrives_with_its_stream_and_is_answered() {
        let (daemon, connector) = pair();
        let (ours, theirs) = UnixStream::pair().unwrap();
        ask(&daemon, 7, Path::new("/run/a.sock"), theirs.as_fd()).unwrap();
        drop(theirs);
        let Question { id, path, stream } = question(&connector).unwrap().unwrap();
        assert_eq!((id, path), (7, PathBuf::from("/run/a.sock")));
        rustix::io::write(&stream, b"x").unwrap();
        let mut byte = [0];
        rustix::io::read(&ours, &mut byte).unwrap();
        assert_eq!(&byte, b"x");
        answer(&connector, Answer { id, errno: 111 }).unwrap();
        assert_eq!(next_answer(&daemon).unwrap(), Some(Answer { id: 7, errno: 111 }));
    }

    #[test]
    fn a_closed_peer_is_an_end_and_what_is_no_packet_an_error() {
        let (daemon, connector) = pair();
        rustix::io::write(&daemon, b"12345678/a").unwrap();
        assert_eq!(question(&connector).unwrap_err(), Errno::BADMSG, "without a stream");
        let (stream, _other) = UnixStream::pair().unwrap();
        assert_eq!(ask(&daemon, 1, Path::new(&"x".repeat(5000)), stream.as_fd()), Err(Errno::NAMETOOLONG));
        drop(daemon);
        assert!(question(&connector).unwrap().is_none());
        assert!(next_answer(&connector).unwrap().is_none());
    }
}
