//! One party must not slow another down: slow hosts, many connections, a guest without buffers.

use std::io::{Read, Write};

use nix::sys::resource::{Resource, getrlimit, setrlimit};

use super::super::connection::BUFFER_BYTES;
use super::super::dial_rules::{PROGRAM_STREAMS_MAX, STREAMS_MAX};
use super::super::mux::REPLIES_MAX;
use super::super::packet::{Header, Op};
use super::super::table::CONNECTIONS_MAX;
use super::driver::SIZE;
use super::guest::{Guest, HOST_PORTS, PROGRAM_PORT, data, packet, pattern, with_op};
use crate::virtio::VirtioDevice as _;

#[test]
fn a_host_that_does_not_read_holds_up_its_own_connection_only() {
    let mut guest = Guest::awake();
    let (_slow, slow_header) = guest.connect(1);
    let (mut quick, quick_header) = guest.connect(2);
    let bytes = pattern(60_000);
    for _ in 0..4 {
        guest.send(data(slow_header, bytes.len()), &bytes);
    }
    guest.send(data(quick_header, 5), b"quick");
    let mut received = [0; 5];
    quick.read_exact(&mut received).unwrap();
    assert_eq!(&received, b"quick");
}

#[test]
fn a_guest_that_oversteps_its_credit_is_reset() {
    let mut guest = Guest::awake();
    let (_slow, header) = guest.connect(1);
    // Bytes taken by the socket are credited again; beyond that and the buffer there is no room.
    let piece = pattern(64_000);
    for _ in 0..20 {
        guest.send(data(header, piece.len()), &piece);
    }
    while Op::from_wire(guest.receive().0.op) != Some(Op::Reset) {}
    let too_much = vec![0; 1];
    guest.send(data(header, 1), &too_much);
    assert_eq!(guest.receive_op(Op::Reset).src_port, header.dst_port);
}

#[test]
fn connections_take_turns() {
    let mut guest = Guest::asleep(1 << 29);
    guest.give_rx(0..4);
    guest.start();
    let mut hosts = [1, 2, 3].map(|port| guest.connect(port));
    for (host, header) in &mut hosts {
        let large = Header { buf_alloc: 1 << 20, ..with_op(*header, Op::CreditUpdate) };
        guest.send(large, &[]);
        host.set_nonblocking(true).unwrap();
        while host.write(&[0; 4096]).is_ok() {}
    }
    // Each has over 150 KiB waiting; none may send all of it first.
    let mut sent = [0_usize; 3];
    while sent.iter().any(|&bytes| bytes < 100_000) {
        let (header, payload) = guest.receive();
        let port = header.dst_port as usize;
        sent[port - 1] += payload.len();
        let (least, most) = (sent.iter().min().unwrap(), sent.iter().max().unwrap());
        assert!(most - least <= 3 * 64 * 1024, "{sent:?}");
    }
}

#[test]
fn without_rx_buffers_hosts_wait_and_go_on_later() {
    let mut guest = Guest::asleep(1 << 29);
    guest.give_rx(0..1);
    guest.start();
    let mut host = guest.dial(1024);
    let (request, _, index) = guest.wait_for("the request", Guest::peek_receive);
    guest.send(packet(Op::Response, 1024, request.src_port), &[]);
    assert!(super::guest::read_line(&mut host).starts_with("OK "));
    let bytes = pattern(20_000);
    host.write_all(&bytes).unwrap();
    assert!(guest.peek_receive().is_none());
    guest.give_rx(index..index + 1);
    assert_eq!(guest.receive_bytes(bytes.len()), bytes);
}

#[test]
fn stray_packets_without_rx_buffers_stop_the_queue_and_not_the_device() {
    let mut guest = Guest::asleep(1 << 29);
    guest.start();
    // More strays than replies may wait: the rest stay in the guest's queue.
    let strays = REPLIES_MAX + 100;
    for port in 0..strays {
        guest.send(packet(Op::Data, 1, port as u32), &[]);
    }
    guest.give_rx(0..SIZE);
    for port in 0..strays {
        assert_eq!(guest.receive_op(Op::Reset).src_port, port as u32);
    }
}

#[test]
fn one_connection_too_many_is_refused() {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    let needed = 4096.min(hard);
    setrlimit(Resource::RLIMIT_NOFILE, soft.max(needed), hard).unwrap();
    let mut guest = Guest::awake();
    let open: Vec<_> = (0..CONNECTIONS_MAX as u32).map(|port| guest.connect(port)).collect();
    guest.send(packet(Op::Request, 5000, 80), &[]);
    guest.receive_op(Op::Reset);
    // An ended connection makes room for one more.
    guest.send(with_op(open[0].1, Op::Reset), &[]);
    guest.send(packet(Op::Request, 5000, 80), &[]);
    guest.receive_op(Op::Response);
}

#[test]
fn a_guest_reaches_no_port_that_was_not_named_and_nobody_hears_of_it() {
    let mut guest = Guest::awake();
    for port in (0..2000).filter(|port| !HOST_PORTS.contains(port) && *port != PROGRAM_PORT) {
        guest.send(packet(Op::Request, 5000, port), &[]);
        assert_eq!(guest.receive_op(Op::Reset).src_port, port);
    }
    assert!(guest.announced.lock().unwrap().is_empty());
    assert_eq!(guest.device.counts().faults, 0);
    guest.connect_from_guest(5000, HOST_PORTS[0]);
}

#[test]
fn a_guest_that_dials_without_end_is_refused_and_hosts_are_not() {
    let mut guest = Guest::awake();
    let dials = 500;
    let accepted = (0..dials)
        .filter(|port| {
            guest.send(packet(Op::Request, *port, 80), &[]);
            Op::from_wire(guest.receive().0.op) == Some(Op::Response)
        })
        .count();
    assert_eq!(accepted, STREAMS_MAX);
    assert_eq!(guest.announced.lock().unwrap().len(), STREAMS_MAX);
    guest.connect(1024);
}

#[test]
fn programs_that_dial_without_end_leave_the_agent_its_ports() {
    let mut guest = Guest::awake();
    let accepted = (0..500)
        .filter(|port| {
            guest.send(packet(Op::Request, *port, PROGRAM_PORT), &[]);
            Op::from_wire(guest.receive().0.op) == Some(Op::Response)
        })
        .count();
    assert_eq!(accepted, PROGRAM_STREAMS_MAX);
    guest.send(packet(Op::Request, 5000, HOST_PORTS[0]), &[]);
    guest.receive_op(Op::Response);
}

#[test]
fn a_guest_that_opens_and_resets_without_end_is_slowed_down() {
    let mut guest = Guest::awake();
    let mut refused = 0;
    // More dials than allowed in a row. The time passing meanwhile adds a few.
    for port in 0..2000 {
        guest.send(packet(Op::Request, port, 80), &[]);
        let answer = guest.receive().0;
        refused += usize::from(Op::from_wire(answer.op) == Some(Op::Reset));
        guest.send(packet(Op::Reset, port, 80), &[]);
    }
    assert!(refused > 0, "every dial was let through");
}

#[test]
fn a_buffer_is_as_large_as_the_credit_that_promises_it() {
    let mut guest = Guest::awake();
    let response = {
        guest.send(packet(Op::Request, 1, 80), &[]);
        guest.receive_op(Op::Response)
    };
    assert_eq!(response.buf_alloc, BUFFER_BYTES);
}
