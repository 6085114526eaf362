//! Connections within the rules: opening, bytes, ended halves, credit.

use std::io::{Read, Write};
use std::net::Shutdown;

use vm_memory::{Bytes as _, GuestAddress};

use super::super::connection::BUFFER_BYTES;
use super::super::packet::{HEADER_BYTES, Header, Op, SHUTDOWN_RECEIVE, SHUTDOWN_SEND};
use super::driver::{Descriptor, NEXT, SIZE};
use super::guest::{CREDIT, Guest, data, packet, pattern, read_line, with_op};
use crate::virtio::VirtioDevice as _;
use crate::virtio::testing::{IMAGE, image, image_content};

fn shutdown(header: Header, flags: u32) -> Header {
    Header { flags, ..with_op(header, Op::Shutdown) }
}

fn read_all(mut stream: &std::os::unix::net::UnixStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).unwrap();
    bytes
}

#[test]
fn a_host_program_dials_and_bytes_flow_both_ways() {
    let mut guest = Guest::awake();
    let (mut host, header) = guest.connect(1024);
    host.write_all(b"ping").unwrap();
    assert_eq!(guest.receive_bytes(4), b"ping");
    guest.send(data(header, 4), b"pong");
    let mut answer = [0; 4];
    host.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"pong");
    assert_eq!(guest.device.counts().faults, 0);
}

#[test]
fn bytes_are_sent_from_an_image() {
    let mut guest = Guest::awake();
    image(&guest.memory);
    let (mut host, header) = guest.connect(1024);
    let (slot, address) = guest.tx_slot();
    guest.memory.writable().write_slice(&data(header, 1000).to_bytes(), GuestAddress(address)).unwrap();
    let (next, length) = (slot * 2 + 1, HEADER_BYTES as u32);
    guest.queues[1].describe(slot * 2, Descriptor { address, length, flags: NEXT, next });
    guest.queues[1].describe(next, Descriptor { address: IMAGE + 9, length: 1000, flags: 0, next: 0 });
    guest.queues[1].offer(slot * 2);
    guest.kick(1);
    let mut received = [0; 1000];
    host.read_exact(&mut received).unwrap();
    assert_eq!(received[..], image_content()[9..1009]);
    assert_eq!(guest.device.counts().faults, 0);
}

#[test]
fn a_driver_without_event_idx_is_served_too() {
    let mut guest = Guest::asleep(0);
    guest.give_rx(0..SIZE);
    guest.start();
    let (mut host, header) = guest.connect(5);
    guest.send(data(header, 2), b"hi");
    let mut answer = [0; 2];
    host.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"hi");
}

#[test]
fn a_dial_that_the_guest_refuses_is_hung_up() {
    let mut guest = Guest::awake();
    let host = guest.dial(7);
    let request = guest.receive_op(Op::Request);
    guest.send(packet(Op::Reset, 7, request.src_port), &[]);
    assert_eq!(read_all(&host), b"");
}

#[test]
fn bytes_sent_with_the_connect_line_follow_the_answer() {
    let mut guest = Guest::awake();
    let mut host = guest.dial(7);
    host.write_all(b"early").unwrap();
    let request = guest.receive_op(Op::Request);
    guest.send(packet(Op::Response, 7, request.src_port), &[]);
    assert_eq!(guest.receive_bytes(5), b"early");
    assert_eq!(read_line(&mut host), format!("OK {}\n", request.src_port));
}

#[test]
fn a_dialler_that_leaves_before_the_answer_costs_the_guest_a_reset() {
    let mut guest = Guest::awake();
    let host = guest.dial(7);
    guest.receive_op(Op::Request);
    drop(host);
    guest.receive_op(Op::Reset);
}

#[test]
fn the_guest_dials_a_port_that_is_taken_and_one_that_is_not() {
    let mut guest = Guest::awake();
    let (mut host, header) = guest.connect_from_guest(50_000, 1025);
    guest.send(data(header, 5), b"ready");
    let mut bytes = [0; 5];
    host.read_exact(&mut bytes).unwrap();
    assert_eq!(&bytes, b"ready");
    host.write_all(b"go").unwrap();
    assert_eq!(guest.receive_bytes(2), b"go");
    guest.send(packet(Op::Request, 50_001, 9001), &[]);
    let reset = guest.receive_op(Op::Reset);
    assert_eq!((reset.src_port, reset.dst_port), (9001, 50_001));
}

#[test]
fn a_stream_that_is_accepted_late_has_lost_nothing() {
    let mut guest = Guest::awake();
    let (number, header) = guest.open_from_guest(50_000, 1025);
    let said = pattern(10_000);
    guest.send(data(header, said.len()), &said);
    guest.send(shutdown(header, SHUTDOWN_SEND), &[]);
    let mut host = guest.accept(number);
    assert_eq!(read_all(&host), said);
    host.write_all(b"heard").unwrap();
    assert_eq!(guest.receive_bytes(5), b"heard");
}

#[test]
fn a_stream_that_its_guest_has_left_is_still_read() {
    let mut guest = Guest::awake();
    let (number, header) = guest.open_from_guest(50_000, 1025);
    guest.send(data(header, 5), b"ready");
    guest.send(shutdown(header, SHUTDOWN_SEND | SHUTDOWN_RECEIVE), &[]);
    guest.receive_op(Op::Reset);
    assert_eq!(read_all(&guest.accept(number)), b"ready");
}

#[test]
fn a_number_is_accepted_once_and_none_is_used_again() {
    let mut guest = Guest::awake();
    let (number, header) = guest.open_from_guest(50_000, 1025);
    let mut host = guest.accept(number);
    guest.send(data(header, 2), b"go");
    host.read_exact(&mut [0; 2]).unwrap();
    for absent in [number, number + 1, 0, u64::MAX] {
        assert_eq!(read_all(&guest.accept(absent)), b"", "{absent}");
    }
    let (left, header) = guest.open_from_guest(50_001, 1025);
    guest.send(with_op(header, Op::Reset), &[]);
    assert_eq!(read_all(&guest.accept(left)), b"");
    let (before, _) = guest.open_from_guest(50_002, 1025);
    let queues = guest.device.pause().unwrap();
    guest.device.reset();
    guest.activate(queues);
    let (after, _) = guest.open_from_guest(50_002, 1025);
    assert!(after > before, "{after} {before}");
    assert_eq!(read_all(&guest.accept(before)), b"");
}

#[test]
fn diallers_wait_for_the_driver() {
    let mut guest = Guest::asleep(1 << 29);
    let mut host = guest.dial(1024);
    guest.give_rx(0..SIZE);
    guest.start();
    let request = guest.receive_op(Op::Request);
    guest.send(packet(Op::Response, 1024, request.src_port), &[]);
    assert_eq!(read_line(&mut host), format!("OK {}\n", request.src_port));
}

#[test]
fn the_host_ends_its_half_and_still_hears_the_guest() {
    let mut guest = Guest::awake();
    let (mut host, header) = guest.connect(1024);
    host.write_all(b"last").unwrap();
    host.shutdown(Shutdown::Write).unwrap();
    assert_eq!(guest.receive_bytes(4), b"last");
    assert_eq!(guest.receive_op(Op::Shutdown).flags, SHUTDOWN_SEND);
    let answer = pattern(10_000);
    guest.send(data(header, answer.len()), &answer);
    guest.send(shutdown(header, SHUTDOWN_SEND), &[]);
    guest.receive_op(Op::Reset);
    assert_eq!(read_all(&host), answer);
}

#[test]
fn the_guest_ends_its_half_and_still_hears_the_host() {
    let mut guest = Guest::awake();
    let (mut host, header) = guest.connect(1024);
    guest.send(data(header, 3), b"bye");
    guest.send(shutdown(header, SHUTDOWN_SEND), &[]);
    assert_eq!(read_all(&host), b"bye");
    host.write_all(b"and you").unwrap();
    assert_eq!(guest.receive_bytes(7), b"and you");
    drop(host);
    assert_eq!(guest.receive_op(Op::Shutdown).flags & SHUTDOWN_SEND, SHUTDOWN_SEND);
    guest.receive_op(Op::Reset);
}

#[test]
fn a_host_program_that_hangs_up_ends_both_halves_after_its_last_byte() {
    let mut guest = Guest::awake();
    let (mut host, header) = guest.connect(1024);
    let bytes = pattern(30_000);
    host.write_all(&bytes).unwrap();
    drop(host);
    let (mut received, mut flags) = (Vec::new(), 0);
    while flags != SHUTDOWN_SEND | SHUTDOWN_RECEIVE {
        let (header, payload) = guest.receive();
        match Op::from_wire(header.op) {
            Some(Op::Data) => received.extend(payload),
            Some(Op::Shutdown) => flags |= header.flags,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(received, bytes);
    guest.send(with_op(header, Op::Reset), &[]);
    // The ports are free, so a packet for them is now a stray.
    guest.send(data(header, 1), b"x");
    guest.receive_op(Op::Reset);
}

#[test]
fn a_guest_that_reads_no_more_makes_the_host_fail_to_write() {
    let mut guest = Guest::awake();
    let (mut host, header) = guest.connect(1024);
    guest.send(shutdown(header, SHUTDOWN_RECEIVE), &[]);
    guest.send(data(header, 2), b"ok");
    let mut bytes = [0; 2];
    host.read_exact(&mut bytes).unwrap();
    assert_eq!(host.write(b"x").unwrap_err().kind(), std::io::ErrorKind::BrokenPipe);
}

#[test]
fn all_that_the_guest_sent_before_its_close_reaches_a_slow_host() {
    let mut guest = Guest::awake();
    let (host, header) = guest.connect(1024);
    let bytes = pattern(BUFFER_BYTES as usize);
    for piece in bytes.chunks(60_000) {
        guest.send(data(header, piece.len()), piece);
    }
    guest.send(shutdown(header, SHUTDOWN_SEND | SHUTDOWN_RECEIVE), &[]);
    // The guest is let go at once, though the host has read nothing yet.
    loop {
        match Op::from_wire(guest.receive().0.op) {
            Some(Op::CreditUpdate) => {}
            Some(Op::Reset) => break,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(read_all(&host), bytes);
}

#[test]
fn a_guest_that_resets_loses_nothing_that_it_sent() {
    let mut guest = Guest::awake();
    let (host, header) = guest.connect(1024);
    let bytes = pattern(200_000);
    for piece in bytes.chunks(50_000) {
        guest.send(data(header, piece.len()), piece);
    }
    guest.send(with_op(header, Op::Reset), &[]);
    assert_eq!(read_all(&host), bytes);
}

#[test]
fn the_guest_never_gets_more_than_its_credit() {
    let mut guest = Guest::awake();
    let mut host = guest.dial(1024);
    let request = guest.receive_op(Op::Request);
    let header = Header { buf_alloc: 10, ..packet(Op::Response, 1024, request.src_port) };
    guest.send(header, &[]);
    let bytes = pattern(35);
    host.write_all(&bytes).unwrap();
    let mut received = guest.receive_bytes(10);
    while received.len() < 35 {
        // Out of credit: it is asked for, and nothing else comes.
        guest.receive_op(Op::CreditRequest);
        let fwd_cnt = received.len() as u32;
        guest.send(Header { fwd_cnt, ..with_op(header, Op::CreditUpdate) }, &[]);
        let more = guest.receive_bytes(10.min(35 - received.len()));
        assert!(more.len() <= 10);
        received.extend(more);
    }
    assert_eq!(received, bytes);
}

#[test]
fn the_guest_gets_its_credit_when_it_asks_and_as_the_host_reads() {
    let mut guest = Guest::awake();
    let (mut host, header) = guest.connect(1024);
    guest.send(with_op(header, Op::CreditRequest), &[]);
    let update = guest.receive_op(Op::CreditUpdate);
    assert_eq!((update.buf_alloc, update.fwd_cnt), (BUFFER_BYTES, 0));
    let bytes = pattern(CREDIT as usize);
    guest.send(data(header, bytes.len()), &bytes);
    let mut received = vec![0; bytes.len()];
    host.read_exact(&mut received).unwrap();
    assert_eq!(received, bytes);
    assert_eq!(guest.receive_op(Op::CreditUpdate).fwd_cnt, CREDIT);
}
