//! Devices of the node.

use nix::errno::Errno;

use crate::attempt::{Attempt, BOTH, SHARE, attempt};
use crate::hand::{HERE, Hand, Refusal, Tried};
use crate::node::Node;

pub(super) const ALL: &[Attempt] = &[
    attempt("make a VM with KVM", BOTH, make_vm),
    attempt("read a disk of the node", BOTH, read_disk),
    attempt("make a device and open it", BOTH, make_device),
    attempt("open a device in the volume", SHARE, open_device),
    attempt("make a network interface", BOTH, make_tap),
    attempt("use I/O ports", BOTH, use_ports),
];

fn make_vm(hand: &mut Hand, _: &Node) -> Tried {
    /// `KVM_CREATE_VM`.
    const CREATE: u64 = 0xae01;
    let kvm = hand.open("/dev/kvm", libc::O_RDWR)?;
    hand.call(libc::SYS_ioctl, &[kvm, CREATE, 0]).map(drop)
}

fn read_disk(hand: &mut Hand, node: &Node) -> Tried {
    let disk = hand.open(&node.loop_device, libc::O_RDONLY)?;
    let room = hand.put(&[0; 512])?;
    let read = hand.call(libc::SYS_read, &[disk, room, 512])?;
    if read == 512 { Ok(()) } else { Err(Refusal::NoEffect) }
}

/// `/dev/zero`, with a name in the volume.
fn make_device(hand: &mut Hand, node: &Node) -> Tried {
    let made = node.path("disk/tenant/made");
    let _ = std::fs::remove_file(&made);
    let places = node.volumes().map(|volume| format!("{volume}/made"));
    let device = hand.first(&places, |hand, place| {
        let mode = u64::from(libc::S_IFCHR | 0o666);
        hand.call(libc::SYS_mknodat, &[HERE, place, mode, libc::makedev(1, 5)])?;
        hand.call(libc::SYS_openat, &[HERE, place, libc::O_RDONLY as u64, 0])
    });
    let _ = std::fs::remove_file(&made);
    device.map(drop)
}

/// A device node that somebody left in the volume.
fn open_device(hand: &mut Hand, node: &Node) -> Tried {
    use nix::sys::stat::{Mode, SFlag, makedev, mknod};
    let name = node.path("disk/tenant/found");
    if let Err(error) = mknod(name.as_str(), SFlag::S_IFCHR, Mode::from_bits_truncate(0o666), makedev(1, 5))
        && error != Errno::EEXIST
    {
        return Err(Refusal::Fault(error.into()));
    }
    let places = node.volumes().map(|volume| format!("{volume}/found"));
    hand.first(&places, |hand, place| hand.call(libc::SYS_openat, &[HERE, place, 0, 0])).map(drop)
}

fn make_tap(hand: &mut Hand, _: &Node) -> Tried {
    /// `TUNSETIFF`, and `IFF_TAP | IFF_NO_PI`.
    const SET: u64 = 0x4004_54ca;
    const TAP: u16 = 0x1002;
    let tun = hand.open("/dev/net/tun", libc::O_RDWR)?;
    let mut request = [0u8; 40];
    request[..8].copy_from_slice(b"redtap0\0");
    request[16..18].copy_from_slice(&TAP.to_le_bytes());
    let request = hand.put(&request)?;
    hand.call(libc::SYS_ioctl, &[tun, SET, request]).map(drop)
}

fn use_ports(hand: &mut Hand, _: &Node) -> Tried {
    hand.call(libc::SYS_iopl, &[3]).map(drop)
}
