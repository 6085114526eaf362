//! Sends tables of nftables to this thread's network namespace, each as one batch: the kernel takes all of it
//! or nothing. The messages come from the host. This module numbers them and reads the kernel's verdict.
//!
//! Batches and their numbers are defined in linux/netfilter/nfnetlink.h.

use std::os::fd::{AsRawFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, recv, sendto, setsockopt, socket,
    sockopt,
};
use nix::sys::time::TimeVal;

/// Bytes of a netlink message's header: length, type, flags, sequence number, port.
const HEADER_BYTES: usize = 16;
/// `NLMSG_ERROR`. An error of zero means success.
const ERROR: u16 = 2;
/// `NLM_F_REQUEST` and `NLM_F_ACK`.
const REQUEST: u16 = 1;
const ACK: u16 = 4;
/// `NFNL_MSG_BATCH_BEGIN` and `NFNL_MSG_BATCH_END`.
const BATCH_BEGIN: u16 = 16;
const BATCH_END: u16 = 17;
/// `NFNL_SUBSYS_NFTABLES`, the upper byte of each message's type.
const NFTABLES: u16 = 10;

/// Timeout for the kernel's answer, in seconds. The kernel answers while it takes the batch.
const ANSWER_SECONDS: i64 = 30;

/// Bytes for one read. An error contains its message, and messages are below 64 KiB.
const READ_BYTES: usize = 128 * 1024;

/// More than enough room in the socket's buffer for the kernel's overhead of a message, in bytes.
const OVERHEAD_BYTES: usize = 64 * 1024;

/// Why a table could not be made.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NftError {
    #[error("message {0} of the table is torn")]
    Torn(usize),
    #[error("message {0} of the table is none of nftables")]
    Foreign(usize),
    #[error("the table has no messages")]
    Empty,
    #[error("cannot reach the guest's netfilter: {0}")]
    Socket(Errno),
    #[error("the guest's kernel refused message {number} of {of} ({what}): {errno}")]
    Refused { number: usize, of: usize, what: &'static str, errno: Errno },
    #[error("the guest's kernel refused the table as a whole: {0}")]
    RefusedWhole(Errno),
}

/// A batch with its messages numbered from 1. The beginning of the batch has number 0.
#[derive(Debug, PartialEq, Eq)]
struct Batch {
    bytes: Vec<u8>,
    /// The type of each message.
    kinds: Vec<u16>,
}

/// Makes the table described by these messages.
pub(crate) fn make_table(messages: &[u8]) -> Result<(), NftError> {
    prepare(messages)?.make()
}

/// A table ready to be made.
#[derive(Debug)]
pub(crate) struct PreparedTable {
    batch: Batch,
    socket: OwnedFd,
}

/// Prepares the table described by these messages. Only this step needs the guest's own privileges: they
/// raise the socket's buffer for long messages.
pub(crate) fn prepare(messages: &[u8]) -> Result<PreparedTable, NftError> {
    let batch = Batch::new(messages)?;
    let protocol = SockProtocol::NetlinkNetFilter;
    let socket = socket(AddressFamily::Netlink, SockType::Raw, SockFlag::SOCK_CLOEXEC, protocol)
        .map_err(NftError::Socket)?;
    let room = batch.bytes.len() * 2 + OVERHEAD_BYTES;
    setsockopt(&socket, sockopt::SndBufForce, &room).map_err(NftError::Socket)?;
    setsockopt(&socket, sockopt::ReceiveTimeout, &TimeVal::new(ANSWER_SECONDS, 0))
        .map_err(NftError::Socket)?;
    Ok(PreparedTable { batch, socket })
}

impl PreparedTable {
    /// Makes the table in the socket's network.
    pub(crate) fn make(self) -> Result<(), NftError> {
        let PreparedTable { batch, socket } = self;
        let kernel = NetlinkAddr::new(0, 0);
        sendto(socket.as_raw_fd(), &batch.bytes, &kernel, MsgFlags::empty()).map_err(NftError::Socket)?;
        batch.verdict(&socket)
    }
}

impl Batch {
    fn new(messages: &[u8]) -> Result<Batch, NftError> {
        let mut bytes = mark(BATCH_BEGIN);
        let (mut kinds, mut last, mut rest) = (Vec::new(), 0, messages);
        while !rest.is_empty() {
            let number = kinds.len() + 1;
            let (length, kind) = length_and_kind(rest).ok_or(NftError::Torn(number))?;
            if kind >> 8 != NFTABLES {
                return Err(NftError::Foreign(number));
            }
            let (message, after) = rest.split_at_checked(length).ok_or(NftError::Torn(number))?;
            last = bytes.len();
            bytes.extend(message);
            let sequence = u32::try_from(number).map_err(|_| NftError::Torn(number))?;
            bytes[last + 8..last + 12].copy_from_slice(&sequence.to_ne_bytes());
            kinds.push(kind);
            rest = after;
        }
        if kinds.is_empty() {
            return Err(NftError::Empty);
        }
        // The kernel always confirms the last message or reports its error, whatever the result of earlier
        // messages.
        let flags = u16::from_ne_bytes([bytes[last + 6], bytes[last + 7]]) | ACK;
        bytes[last + 6..last + 8].copy_from_slice(&flags.to_ne_bytes());
        bytes.extend(mark(BATCH_END));
        Ok(Batch { bytes, kinds })
    }

    /// Reads until the kernel has answered for the last message or for the batch. The first error is the
    /// cause.
    fn verdict(&self, socket: &OwnedFd) -> Result<(), NftError> {
        let mut first = None;
        let mut buffer = vec![0; READ_BYTES];
        loop {
            let read = match recv(socket.as_raw_fd(), &mut buffer, MsgFlags::empty()) {
                Ok(read) => read,
                // The socket's buffer cannot hold all errors. The first one is enough.
                Err(errno) => return Err(first.unwrap_or(NftError::RefusedWhole(errno))),
            };
            let mut rest = &buffer[..read];
            while let Some((sequence, errno, length)) = verdict_of(rest) {
                rest = rest.get(length..).unwrap_or_default();
                if errno != 0 {
                    first.get_or_insert(self.error(sequence, Errno::from_raw(errno)));
                }
                if sequence == 0 || sequence >= self.kinds.len() {
                    return first.map_or(Ok(()), Err);
                }
            }
        }
    }

    fn error(&self, number: usize, errno: Errno) -> NftError {
        let of = self.kinds.len();
        match number.checked_sub(1).and_then(|index| self.kinds.get(index)) {
            Some(kind) => NftError::Refused { number, of, what: what(*kind), errno },
            None => NftError::RefusedWhole(errno),
        }
    }
}

/// Padded length and type of the message at the beginning.
fn length_and_kind(bytes: &[u8]) -> Option<(usize, u16)> {
    let header: &[u8; HEADER_BYTES] = bytes.first_chunk()?;
    let length = u32::from_ne_bytes([header[0], header[1], header[2], header[3]]);
    let length = usize::try_from(length).ok()?.checked_next_multiple_of(4)?;
    (length >= HEADER_BYTES && length <= bytes.len())
        .then_some((length, u16::from_ne_bytes([header[4], header[5]])))
}

/// From a `struct nlmsgerr`: the number of its message, the error, and the whole length.
fn verdict_of(bytes: &[u8]) -> Option<(usize, i32, usize)> {
    let (length, kind) = length_and_kind(bytes)?;
    let sequence = u32::from_ne_bytes(*bytes.get(8..)?.first_chunk()?);
    let error = i32::from_ne_bytes(*bytes.get(HEADER_BYTES..)?.first_chunk()?);
    let error = if kind == ERROR { error.wrapping_neg() } else { 0 };
    Some((usize::try_from(sequence).ok()?, error, length))
}

/// The beginning or the end of a batch, with `struct nfgenmsg` to name the subsystem.
fn mark(kind: u16) -> Vec<u8> {
    let mut mark = Vec::with_capacity(HEADER_BYTES + 4);
    mark.extend(20u32.to_ne_bytes());
    mark.extend(kind.to_ne_bytes());
    mark.extend(REQUEST.to_ne_bytes());
    mark.extend([0; 8]);
    mark.extend([0, 0]);
    mark.extend(NFTABLES.to_be_bytes());
    mark
}

/// Object made by a message (`NFT_MSG_NEW*` of linux/netfilter/nf_tables.h).
fn what(kind: u16) -> &'static str {
    match kind & 0xff {
        0 => "the table",
        3 => "a chain",
        6 => "a rule",
        9 => "a set",
        12 => "elements of a set",
        18 => "an object",
        _ => "of an unknown kind",
    }
}

#[cfg(test)]
mod tests {
    use nix::sched::{CloneFlags, unshare};

    use super::*;

    /// A message of nftables with one attribute, number 1: the table's name. Family 2 is IPv4.
    fn message(kind: u16, attributes: &[u8]) -> Vec<u8> {
        let mut message = Vec::new();
        message.extend(u32::try_from(HEADER_BYTES + 4 + attributes.len()).unwrap().to_ne_bytes());
        message.extend((NFTABLES << 8 | kind).to_ne_bytes());
        // NLM_F_REQUEST and NLM_F_CREATE.
        message.extend(0x401u16.to_ne_bytes());
        message.extend([0; 8]);
        message.extend([2, 0, 0, 0]);
        message.extend(attributes);
        message
    }

    const NAT: [u8; 8] = [8, 0, 1, 0, b'n', b'a', b't', 0];

    #[test]
    fn messages_are_numbered_and_the_last_one_asks_for_an_answer() {
        let batch = Batch::new(&[message(0, &NAT), message(3, &NAT)].concat()).unwrap();
        assert_eq!(batch.kinds, [0xa00, 0xa03]);
        let (first, second) = (20, 20 + 28);
        assert_eq!(batch.bytes[first + 8], 1);
        assert_eq!(batch.bytes[second + 8], 2);
        assert_eq!(batch.bytes[first + 6..first + 8], 0x401u16.to_ne_bytes());
        assert_eq!(batch.bytes[second + 6..second + 8], 0x405u16.to_ne_bytes());
        assert_eq!(batch.bytes.len(), 20 + 2 * 28 + 20);
    }

    #[test]
    fn what_is_no_table_is_refused_before_the_kernel_sees_it() {
        let good = message(0, &NAT);
        assert_eq!(Batch::new(&[]), Err(NftError::Empty));
        assert_eq!(Batch::new(&good[..9]), Err(NftError::Torn(1)));
        assert_eq!(Batch::new(&[&good, &good[..27]].concat()), Err(NftError::Torn(2)));
        let mut short = good.clone();
        short[0] = 8;
        assert_eq!(Batch::new(&short), Err(NftError::Torn(1)));
        let mut route = good;
        route[5] = 0;
        assert_eq!(Batch::new(&route), Err(NftError::Foreign(1)));
    }

    #[test]
    fn the_kernel_takes_a_table_whole_or_names_the_message_that_it_does_not_take() {
        std::thread::spawn(|| {
            if unshare(CloneFlags::CLONE_NEWNET).is_err() {
                eprintln!("skipped: needs the right to make network namespaces");
                return;
            }
            match make_table(&message(0, &NAT)) {
                Err(NftError::Socket(errno)) => return eprintln!("skipped: no netfilter here: {errno}"),
                made => made.unwrap(),
            }
            // A rule needs a chain, but this one has none.
            let rule = [message(0, &NAT), message(6, &NAT)].concat();
            let error = make_table(&rule).unwrap_err();
            assert!(matches!(error, NftError::Refused { number: 2, of: 2, what: "a rule", .. }), "{error}");
        })
        .join()
        .unwrap();
    }
}
