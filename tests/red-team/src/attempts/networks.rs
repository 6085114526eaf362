//! The node's networks and other ways to talk to its programs.

use crate::attempt::{Attempt, BOTH, attempt};
use crate::hand::{Hand, Refusal, Tried};
use crate::node::{ABSTRACT, Node};

pub(super) const ALL: &[Attempt] = &[
    attempt("connect to a port of the node", BOTH, connect_to_port),
    attempt("connect to a socket of the node by its path", BOTH, connect_to_path),
    attempt("connect to an abstract socket of the node", BOTH, connect_to_name),
    attempt("read packets of an interface", BOTH, read_packets),
    attempt("bring an interface up", BOTH, bring_up),
    attempt("attach shared memory of the node", BOTH, attach_memory),
];

fn socket(hand: &mut Hand, family: i32, kind: i32, protocol: u64) -> Tried<u64> {
    let kind = kind.cast_unsigned().into();
    hand.call(libc::SYS_socket, &[family.cast_unsigned().into(), kind, protocol])
}

fn connect(hand: &mut Hand, family: i32, address: &[u8]) -> Tried {
    let socket = socket(hand, family, libc::SOCK_STREAM, 0)?;
    let at = hand.put(address)?;
    hand.call(libc::SYS_connect, &[socket, at, address.len() as u64]).map(drop)
}

fn connect_to_port(hand: &mut Hand, node: &Node) -> Tried {
    let mut address = vec![libc::AF_INET as u8, 0];
    address.extend(node.port()?.to_be_bytes());
    address.extend([127, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0]);
    connect(hand, libc::AF_INET, &address)
}

fn unix(name: &[u8]) -> Vec<u8> {
    [&[libc::AF_UNIX as u8, 0], name].concat()
}

fn connect_to_path(hand: &mut Hand, node: &Node) -> Tried {
    let path = format!("{}\0", node.path("socket"));
    connect(hand, libc::AF_UNIX, &unix(path.as_bytes()))
}

fn connect_to_name(hand: &mut Hand, _: &Node) -> Tried {
    connect(hand, libc::AF_UNIX, &unix(format!("\0{ABSTRACT}").as_bytes()))
}

fn read_packets(hand: &mut Hand, node: &Node) -> Tried {
    /// `ETH_P_ALL`, in network byte order.
    const EVERY: u64 = 0x0300;
    let socket = socket(hand, libc::AF_PACKET, libc::SOCK_RAW, EVERY)?;
    let mut address = vec![libc::AF_PACKET as u8, 0, 0, 3];
    address.extend(node.interface.to_le_bytes());
    address.resize(20, 0);
    let at = hand.put(&address)?;
    hand.call(libc::SYS_bind, &[socket, at, address.len() as u64]).map(drop)
}

/// One message of rtnetlink(7), and its answer.
fn bring_up(hand: &mut Hand, node: &Node) -> Tried {
    let socket = socket(hand, libc::AF_NETLINK, libc::SOCK_RAW, 0)?;
    let flags = (libc::NLM_F_REQUEST | libc::NLM_F_ACK) as u16;
    let mut message = 32u32.to_le_bytes().to_vec();
    message.extend([libc::RTM_NEWLINK, flags].map(u16::to_le_bytes).concat());
    message.extend([1u32, 0, 0, node.interface].map(u32::to_le_bytes).concat());
    message.extend([libc::IFF_UP.cast_unsigned(); 2].map(u32::to_le_bytes).concat());
    message[0] = u8::try_from(message.len()).unwrap_or(0);
    let at = hand.put(&message)?;
    hand.call(libc::SYS_sendto, &[socket, at, message.len() as u64, 0, 0, 0])?;
    let room = hand.put(&[0; 64])?;
    hand.call(libc::SYS_recvfrom, &[socket, room, 64, 0, 0, 0])?;
    // The error follows the header of 16 bytes.
    let error = hand.get(room + 16, 4)?;
    if error == [0; 4] { Ok(()) } else { Err(Refusal::NoEffect) }
}

fn attach_memory(hand: &mut Hand, node: &Node) -> Tried {
    hand.call(libc::SYS_shmat, &[node.segment, 0, 0]).map(drop)
}
