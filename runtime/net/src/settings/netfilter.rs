//! Dumps nftables over netlink as messages with their attributes, up to a limit in bytes. Owns the socket;
//! other modules interpret the attributes. Blocks, and reads the namespace of its thread.
//!
//! Message numbers and headers are those of linux/netfilter/nfnetlink.h and linux/netfilter/nf_tables.h.

use std::{
    io,
    os::fd::{AsRawFd, OwnedFd},
};

use netlink_packet_core::{
    NLM_F_DUMP, NLM_F_DUMP_INTR, NLM_F_REQUEST, NLMSG_DONE, NLMSG_ERROR, NetlinkBuffer,
};
use nix::{
    errno::Errno,
    sys::{
        socket::{
            AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, recv, sendto, setsockopt,
            socket, sockopt,
        },
        time::TimeVal,
    },
};

use super::{
    attribute::{kept, text},
    setting::Setting,
};

/// `NFNL_SUBSYS_NFTABLES`: the upper byte of a message's type.
pub(super) const NFTABLES: u16 = 10 << 8;

/// Bytes of `struct nfgenmsg`, the start of each payload: family, version, resource.
const GENERIC_HEADER_BYTES: usize = 4;

/// `NFPROTO_UNSPEC`: asks for the objects of every family.
const ALL_FAMILIES: u8 = 0;

/// Bytes of the header of every netlink message.
const HEADER_BYTES: usize = 16;

/// Most bytes kept for the attributes of all tables in a namespace. A mesh has some tens of rules of a few
/// hundred bytes each. They all go into one message to the agent, and its limit is 4 MiB (ttrpc).
pub(super) const NFT_BYTES_MAX: usize = 1 << 20;

/// The kernel fills at most 32 KiB for one read of a dump.
const READ_BYTES: usize = 64 * 1024;

/// How often a dump is restarted because the rules changed meanwhile.
const DUMPS_MAX: usize = 5;

/// Seconds before a dump times out. The kernel never waits for anyone here.
const ANSWER_SECONDS: i64 = 30;

/// One kind of object, by the number of its dump request (`NFT_MSG_GET*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dump {
    Tables = 1,
    Chains = 4,
    Rules = 7,
    Sets = 10,
    Elements = 13,
    Objects = 19,
}

/// All tables of a namespace with their contents.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Ruleset {
    pub(super) tables: Vec<Object>,
    pub(super) chains: Vec<Object>,
    pub(super) sets: Vec<Object>,
    /// Elements of sets, some at a time.
    pub(super) elements: Vec<Object>,
    /// Named counters, quotas, limits and the like.
    pub(super) objects: Vec<Object>,
    pub(super) rules: Vec<Object>,
}

/// One object as the kernel dumps it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Object {
    /// `NFPROTO_*`.
    pub(super) family: u8,
    /// The attributes, padded to whole words.
    pub(super) attributes: Vec<u8>,
}

/// A netlink socket for nftables.
#[derive(Debug)]
pub(super) struct Netfilter {
    socket: OwnedFd,
    sequence: u32,
    bytes_left: usize,
}

impl Netfilter {
    /// Opens a socket in this thread's namespace. Returns `None` if the kernel has no netfilter over netlink.
    pub(super) fn open() -> io::Result<Option<Netfilter>> {
        let protocol = SockProtocol::NetlinkNetFilter;
        let made = socket(AddressFamily::Netlink, SockType::Raw, SockFlag::SOCK_CLOEXEC, protocol);
        let socket = match made {
            Err(Errno::EPROTONOSUPPORT) => return Ok(None),
            made => made?,
        };
        setsockopt(&socket, sockopt::ReceiveTimeout, &TimeVal::new(ANSWER_SECONDS, 0))?;
        Ok(Some(Netfilter { socket, sequence: 0, bytes_left: NFT_BYTES_MAX }))
    }

    /// Dumps all objects of one kind matching `attributes`. Family 0 means all families. A kernel without
    /// nf_tables has none.
    ///
    /// # Errors
    /// The kernel's own; rules changing too often; or more than [`NFT_BYTES_MAX`] bytes over all dumps of
    /// this socket.
    pub(super) fn dump(&mut self, what: Dump, family: u8, attributes: &[u8]) -> io::Result<Vec<Object>> {
        for _ in 0..DUMPS_MAX {
            let bytes_left = self.bytes_left;
            self.request(what, family, attributes)?;
            match self.answer()? {
                Some(objects) => return Ok(objects),
                None => self.bytes_left = bytes_left,
            }
        }
        Err(io::Error::other("the rules change faster than they can be read"))
    }

    fn request(&mut self, what: Dump, family: u8, attributes: &[u8]) -> io::Result<()> {
        self.sequence += 1;
        let flags = NLM_F_REQUEST | NLM_F_DUMP;
        let message = message(NFTABLES | what as u16, flags, self.sequence, family, attributes);
        let kernel = NetlinkAddr::new(0, 0);
        sendto(self.socket.as_raw_fd(), &message, &kernel, MsgFlags::empty())?;
        Ok(())
    }

    /// Reads the answer to the last request. Returns `None` if the rules changed during the dump.
    fn answer(&mut self) -> io::Result<Option<Vec<Object>>> {
        let (mut objects, mut whole) = (Vec::new(), true);
        let mut buffer = vec![0; READ_BYTES];
        loop {
            // With MSG_TRUNC the kernel returns the whole length of its message.
            let read = recv(self.socket.as_raw_fd(), &mut buffer, MsgFlags::MSG_TRUNC)?;
            let mut rest = buffer.get(..read).ok_or_else(|| io::Error::other("an answer was cut off"))?;
            while !rest.is_empty() {
                let message = NetlinkBuffer::new_checked(rest).map_err(io::Error::other)?;
                let length = usize::try_from(message.length()).map_err(io::Error::other)?;
                rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
                if message.sequence_number() != self.sequence {
                    continue;
                }
                whole &= message.flags() & NLM_F_DUMP_INTR == 0;
                match message.message_type() {
                    NLMSG_DONE => return Ok(whole.then_some(objects)),
                    NLMSG_ERROR => match errno(message.payload())? {
                        // A kernel without the subsystem, or without the needed module.
                        Errno::EINVAL | Errno::EOPNOTSUPP => return Ok(Some(Vec::new())),
                        // The set's table was removed just now.
                        Errno::ENOENT => return Ok(None),
                        error => return Err(error.into()),
                    },
                    _ => objects.push(self.object(message.payload())?),
                }
            }
        }
    }

    fn object(&mut self, payload: &[u8]) -> io::Result<Object> {
        let (header, attributes) = payload
            .split_at_checked(GENERIC_HEADER_BYTES)
            .ok_or_else(|| io::Error::other("an object without a family"))?;
        let too_much = || io::Error::other(format!("more than {NFT_BYTES_MAX} bytes of tables and rules"));
        self.bytes_left = self.bytes_left.checked_sub(attributes.len()).ok_or_else(too_much)?;
        Ok(Object { family: header[0], attributes: attributes.to_vec() })
    }
}

/// Reads the error of `struct nlmsgerr`. It is negative there.
fn errno(payload: &[u8]) -> io::Result<Errno> {
    let number = payload.first_chunk().map(|bytes| i32::from_ne_bytes(*bytes));
    let number = number.ok_or_else(|| io::Error::other("an error without a number"))?;
    Ok(Errno::from_raw(number.wrapping_neg()))
}

/// Builds a message about an object of this family.
pub(super) fn message(kind: u16, flags: u16, sequence: u32, family: u8, attributes: &[u8]) -> Vec<u8> {
    let mut message = vec![0; HEADER_BYTES];
    message.extend([family, 0, 0, 0]);
    message.extend(attributes);
    let length = u32::try_from(message.len()).expect("an object has less than 64 KiB for each attribute");
    let mut header = NetlinkBuffer::new(&mut message[..]);
    header.set_length(length);
    header.set_message_type(kind);
    header.set_flags(flags);
    header.set_sequence_number(sequence);
    message
}

/// `NFTA_TABLE_NAME`, and the table's name in every other object.
pub(super) const TABLE: u16 = 1;

/// Returns the names of the tables in this thread's namespace.
pub(super) fn tables() -> io::Result<Vec<Setting>> {
    let Some(mut netfilter) = Netfilter::open()? else { return Ok(Vec::new()) };
    let tables = netfilter.dump(Dump::Tables, ALL_FAMILIES, &[])?;
    let setting = |table: Object| {
        let name = text(&table.attributes, TABLE).unwrap_or_default();
        Setting::NftTable { family: table.family, name }
    };
    Ok(tables.into_iter().map(setting).collect())
}

/// Returns the tables of this thread's namespace with their contents.
///
/// # Errors
/// As for [`Netfilter::dump`].
pub(super) fn ruleset() -> io::Result<Ruleset> {
    /// `NFTA_SET_TABLE` and `NFTA_SET_NAME`. Requests for elements use the same numbers.
    const NAMES: [u16; 2] = [TABLE, 2];
    let Some(mut netfilter) = Netfilter::open()? else { return Ok(Ruleset::default()) };
    let mut all = |what| netfilter.dump(what, ALL_FAMILIES, &[]);
    let mut ruleset = Ruleset {
        tables: all(Dump::Tables)?,
        chains: all(Dump::Chains)?,
        sets: all(Dump::Sets)?,
        objects: all(Dump::Objects)?,
        rules: all(Dump::Rules)?,
        elements: Vec::new(),
    };
    for set in &ruleset.sets {
        let names = kept(&set.attributes, &NAMES);
        ruleset.elements.extend(netfilter.dump(Dump::Elements, set.family, &names)?);
    }
    Ok(ruleset)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two attributes: number 1, "nat" with its zero; number 2, four bytes.
    const ATTRIBUTES: [u8; 16] = [8, 0, 1, 0, b'n', b'a', b't', 0, 8, 0, 2, 0, 0, 0, 0, 1];

    #[test]
    fn an_object_beyond_the_bound_is_refused_and_never_kept() {
        let Ok(Some(mut netfilter)) = Netfilter::open() else {
            eprintln!("skipped: this kernel has no netfilter over netlink");
            return;
        };
        netfilter.bytes_left = 40;
        let payload = [&[2, 0, 0, 0][..], &ATTRIBUTES].concat();
        let object = netfilter.object(&payload).unwrap();
        assert_eq!((object.family, &object.attributes[..]), (2, &ATTRIBUTES[..]));
        netfilter.object(&payload).unwrap();
        let error = netfilter.object(&payload).unwrap_err().to_string();
        assert!(error.starts_with("more than 1048576 bytes"), "{error}");
        assert!(netfilter.object(&[2, 0]).is_err());
    }

    #[test]
    fn the_kernels_errors_are_read_with_their_sign() {
        assert_eq!(errno(&(-22i32).to_ne_bytes()).unwrap(), Errno::EINVAL);
        assert_eq!(errno(&i32::MIN.to_ne_bytes()).unwrap(), Errno::UnknownErrno);
        assert!(errno(&[1, 2]).is_err());
    }
}
