//! Both ends in one process, and each against a stranger.

use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;

use fuse_backend_rs::abi::fuse_abi::{InHeader, Opcode, OutHeader};
use proptest::prelude::*;
use rustix::net::RecvFlags;
use vm_memory::ByteValued as _;

use super::packet::{ANSWER_BYTES_MAX, Call, HEAD_BYTES, Outcome, REQUEST_BYTES_MAX, Reply};
use super::socket::{connected, receive, send, write};
use super::{Channel, ShareLink, ShareServer};
use crate::virtio::fs::{Cache, Share};

/// A request for the attributes of the root. It needs no INIT.
fn getattr() -> Vec<u8> {
    let header =
        InHeader { len: 56, opcode: Opcode::Getattr as u32, unique: 7, nodeid: 1, ..InHeader::default() };
    [header.as_slice(), &[0; 16]].concat()
}

fn served(root: &Path) -> ShareLink {
    let (link, theirs) = ShareLink::pair().unwrap();
    let share = Share::open(root.to_str().unwrap(), i32::MAX, Cache::Auto).unwrap();
    // The root is there from the first request on, as after INIT.
    fuse_backend_rs::api::filesystem::FileSystem::init(
        &share,
        fuse_backend_rs::abi::fuse_abi::FsOptions::empty(),
    )
    .unwrap();
    std::thread::spawn(move || ShareServer::new(theirs).run(share).unwrap());
    link.wait_until_ready(10_000).unwrap();
    link
}

/// A share of the test's own. It answers the first packet of one channel with this, and no other.
fn answering(packet: Vec<u8>) -> ShareLink {
    let (link, theirs) = ShareLink::pair().unwrap();
    std::thread::spawn(move || {
        read(&theirs, &mut [0; 8]).unwrap();
        let (channel, of_vmm) = connected().unwrap();
        send(theirs.as_fd(), &[IoSlice::new(&ShareServer::CHANNEL)], Some(of_vmm.as_fd())).unwrap();
        drop(of_vmm);
        read(&channel, &mut vec![0; HEAD_BYTES + REQUEST_BYTES_MAX]).unwrap();
        send(channel.as_fd(), &[IoSlice::new(&packet)], None).unwrap();
    });
    link
}

/// A packet; none where the other side has hung up.
fn read(socket: &OwnedFd, bytes: &mut [u8]) -> Option<(usize, Option<OwnedFd>)> {
    let received =
        receive(socket.as_fd(), &mut [IoSliceMut::new(bytes)], true, RecvFlags::empty()).ok()??;
    Some((received.bytes, received.file))
}

#[test]
fn a_request_is_answered_and_one_that_makes_no_sense_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let mut channel = Channel::open(&served(dir.path()));
    for _ in 0..3 {
        let answer = channel.request(&getattr(), ANSWER_BYTES_MAX as u64, false).unwrap();
        let message = answer.message.unwrap();
        assert_eq!((message.len(), &message[4..16]), (120, &[0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0][..]));
        // No room for the answer, and no whole request.
        for (message, room) in [(getattr(), 20), (getattr()[..20].to_vec(), 200)] {
            assert!(channel.request(&message, room, false).unwrap().message.is_none());
        }
    }
    channel.notice(&getattr()).unwrap();
    channel.settle();
    assert!(channel.request(&getattr(), 200, false).unwrap().message.is_some());
}

#[test]
fn a_share_that_answers_garbage_is_lost_with_the_reason() {
    let head = |outcome| Reply { outcome, freed: false }.head().to_vec();
    let too_long = [head(Outcome::Answered), vec![0; 201]].concat();
    let longer_than_any = [head(Outcome::Answered), vec![0; ANSWER_BYTES_MAX + 1]].concat();
    for packet in [
        vec![1],
        vec![9; HEAD_BYTES],
        too_long,
        longer_than_any,
        [head(Outcome::Nothing), vec![0]].concat(),
        head(Outcome::Done { error: 0 }),
    ] {
        let link = answering(packet.clone());
        let mut channel = Channel::open(&link);
        for _ in 0..2 {
            let error = channel.request(&getattr(), 200, true).err().unwrap();
            assert_eq!(error.raw_os_error(), Some(libc::EIO), "{} bytes", packet.len());
        }
        let reason = link.reason();
        assert!(["makes no sense", "too long"].iter().any(|why| reason.contains(why)), "{reason}");
        let mut event = [nix::poll::PollFd::new(link.lost(), nix::poll::PollFlags::POLLIN)];
        assert_eq!(nix::poll::poll(&mut event, nix::poll::PollTimeout::ZERO).unwrap(), 1);
    }
}

#[test]
fn a_share_that_ends_or_cannot_begin_says_so() {
    let (link, theirs) = ShareLink::pair().unwrap();
    let server = ShareServer::new(theirs);
    server.say("it cannot:\nno root");
    assert_eq!(link.wait_until_ready(10_000).unwrap_err().to_string(), "it cannot: no root");
    server.say(&"x".repeat(10_000));
    assert_eq!(link.reason(), "x".repeat(512));
    drop(server);
    assert_eq!(link.wait_until_ready(10_000).unwrap_err().to_string(), "its process has ended");
    let mut channel = Channel::open(&link);
    assert_eq!(channel.notice(&[]).unwrap_err().raw_os_error(), Some(libc::EIO));
    assert_eq!(channel.lock(&[], true).0.unwrap_err().raw_os_error(), Some(libc::EIO));
    assert!(link.reason().contains("no channel to it"), "{}", link.reason());
}

#[test]
fn a_vmm_that_says_what_none_says_loses_that_channel_alone() {
    let dir = tempfile::tempdir().unwrap();
    let link = served(dir.path());
    let mut good = Channel::open(&link);
    let groups = [&Call::Groups.head()[..], &[0; 4 * 257]].concat();
    let too_long = [&Call::Notice.head()[..], &vec![0; REQUEST_BYTES_MAX + 1]].concat();
    let short_lock = [&Call::Lock { waits: true }.head()[..], &[0; 80]].concat();
    for packet in [vec![0], vec![7; HEAD_BYTES], groups, too_long, short_lock] {
        let ours = link.open_channel().unwrap();
        write(ours.as_fd(), &[IoSlice::new(&packet)]).unwrap();
        assert!(read(&ours, &mut [0; 64]).is_none(), "{} bytes", packet.len());
        assert!(good.request(&getattr(), 200, false).unwrap().message.is_some());
    }
    // Not one beyond the bound.
    let opened: Vec<_> = (0..64).map(|_| link.open_channel()).collect();
    let asked = Call::Request { room: 200, lend: false }.head();
    let many: Vec<_> = opened.iter().flatten().collect();
    assert!((1..=32).contains(&many.len()));
    for ours in many {
        write(ours.as_fd(), &[IoSlice::new(&asked), IoSlice::new(&getattr())]).unwrap();
        assert!(read(ours, &mut [0; 1000]).is_some());
    }
    let refused = opened.into_iter().find_map(Result::err).unwrap();
    assert_eq!(refused.to_string(), "it has no room for one");
    assert!(good.request(&getattr(), 200, false).unwrap().message.is_some());
}

#[test]
fn a_share_ends_with_its_vmm() {
    let dir = tempfile::tempdir().unwrap();
    let (link, theirs) = ShareLink::pair().unwrap();
    let share = Share::open(dir.path().to_str().unwrap(), i32::MAX, Cache::Auto).unwrap();
    let server = std::thread::spawn(move || ShareServer::new(theirs).run(share));
    link.wait_until_ready(10_000).unwrap();
    drop(link);
    server.join().unwrap().unwrap();
}

#[test]
fn requests_have_the_groups_of_the_latest_list() {
    // Only root may have other groups.
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let link = served(dir.path());
    let mut channels = [Channel::open(&link), Channel::open(&link)];
    for (set, expected) in [(&[3_000_111, 7][..], "7 3000111"), (&[3_000_112], "3000112")] {
        link.set_groups(set);
        for channel in &mut channels {
            channel.request(&getattr(), 200, false).unwrap();
        }
        let having = || {
            let threads = std::fs::read_dir("/proc/self/task").unwrap().flatten();
            let status = threads.filter_map(|one| std::fs::read_to_string(one.path().join("status")).ok());
            status.filter(|status| status.contains(&format!("Groups:\t{expected} "))).count()
        };
        assert_eq!(having(), 2);
    }
    let most: Vec<u32> = (0..300).collect();
    link.set_groups(&most);
    channels[0].request(&getattr(), 200, false).unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn no_packet_stops_the_share(
        packets in proptest::collection::vec(
            (0u32..7, 0u32..300, 0u32..3, proptest::collection::vec(any::<u8>(), 0..200)), 1..20)
    ) {
        let dir = tempfile::tempdir().unwrap();
        let link = served(dir.path());
        for (kind, room, flag, body) in packets {
            let ours = link.open_channel().unwrap();
            let head = [kind, room, flag].map(u32::to_le_bytes).concat();
            let sent = write(ours.as_fd(), &[IoSlice::new(&head), IoSlice::new(&body)]);
            // A notice has no answer.
            if sent.is_ok() && kind != 2 {
                read(&ours, &mut vec![0; HEAD_BYTES + ANSWER_BYTES_MAX]);
            }
        }
        let mut channel = Channel::open(&link);
        channel.afresh();
        prop_assert!(channel.request(&getattr(), 200, false).unwrap().message.is_some());
    }
}

const _: () = assert!(size_of::<OutHeader>() == 16);
