//! Guests breaking the rules. The device counts, answers if an answer is possible, and goes on.

use proptest::prelude::*;
use vm_memory::{Bytes, GuestAddress};

use super::super::packet::{HEADER_BYTES, Header, Op};
use super::driver::{Descriptor, NEXT, SIZE, WRITE};
use super::guest::{Guest, MEMORY_BYTES, data, packet, with_op};
use crate::virtio::VirtioDevice as _;

/// Shows that packets still flow both ways.
fn still_works(guest: &mut Guest) {
    guest.send(packet(Op::CreditRequest, 4242, 4343), &[]);
    assert_eq!(guest.receive_op(Op::Reset).src_port, 4343);
}

/// Sends descriptors as they are, the first of them as the head.
fn send_chain(guest: &mut Guest, chain: &[Descriptor]) {
    let (slot, _) = guest.tx_slot();
    for (offset, descriptor) in (0..).zip(chain) {
        guest.queues[1].describe(slot * 2 + offset, *descriptor);
    }
    guest.queues[1].offer(slot * 2);
    guest.kick(1);
}

const HEADER: u32 = HEADER_BYTES as u32;

#[test]
fn chains_that_make_no_sense_are_dropped_and_counted() {
    let mut guest = Guest::awake();
    let (slot, address) = guest.tx_slot();
    let good = packet(Op::Request, 1, 80);
    guest.memory.writable().write_slice(&good.to_bytes(), GuestAddress(address)).unwrap();
    let head = Descriptor { address, length: HEADER, flags: 0, next: 0 };
    let end = MEMORY_BYTES as u64;
    let chains = [
        // Too short for a header, empty, and beyond memory's end in three ways.
        vec![Descriptor { length: HEADER - 1, ..head }],
        vec![Descriptor { length: 0, ..head }],
        vec![Descriptor { address: end, ..head }],
        vec![Descriptor { address: end - 1, ..head }],
        vec![Descriptor { address: u64::MAX - 3, ..head }],
        // Loops: to itself, and to a descriptor beyond the table.
        vec![Descriptor { flags: NEXT, next: slot * 2, ..head }],
        vec![Descriptor { flags: NEXT, next: SIZE, ..head }],
        // The device is to write where it should read.
        vec![Descriptor { flags: WRITE, ..head }],
        vec![
            Descriptor { flags: NEXT, next: slot * 2 + 1, ..head },
            Descriptor { flags: WRITE, length: 8, ..head },
        ],
    ];
    for (number, chain) in (1..).zip(chains) {
        for (offset, descriptor) in (0..).zip(&chain) {
            guest.queues[1].describe(slot * 2 + offset, *descriptor);
        }
        guest.queues[1].offer(slot * 2);
        guest.kick(1);
        guest.wait_for("the chain to come back", |guest| guest.queues[1].take_used());
        still_works(&mut guest);
        assert_eq!(guest.device.counts().faults, number, "{chain:?}");
    }
    assert!(guest.announced.lock().unwrap().is_empty());
}

#[test]
fn a_head_beyond_the_table_is_skipped() {
    let mut guest = Guest::awake();
    guest.queues[1].offer(SIZE + 7);
    still_works(&mut guest);
    assert_eq!(guest.device.counts().faults, 1);
}

#[test]
fn an_index_that_promises_too_much_stops_the_queue_and_the_thread_still_obeys() {
    let mut guest = Guest::asleep(1 << 29);
    guest.queues[1].offer_index(SIZE * 2);
    guest.start();
    guest.kick(1);
    assert_eq!(guest.device_pause().len(), 3);
    assert_eq!(guest.device.counts().faults, 1);
}

#[test]
fn rx_buffers_that_cannot_hold_a_packet_go_back_empty() {
    let mut guest = Guest::asleep(1 << 29);
    let good = Descriptor { address: 0x10_0000, length: 0x1000, flags: WRITE, next: 0 };
    guest.queues[0].describe(0, Descriptor { length: HEADER, ..good });
    guest.queues[0].describe(1, Descriptor { flags: 0, ..good });
    guest.queues[0].describe(2, Descriptor { address: MEMORY_BYTES as u64 - 8, ..good });
    guest.queues[0].describe(3, Descriptor { flags: WRITE | NEXT, next: 3, ..good });
    guest.give_rx(0..5);
    guest.start();
    guest.send(packet(Op::Data, 1, 2), &[]);
    for index in 0..4 {
        assert_eq!(guest.wait_for("a buffer", |guest| guest.queues[0].take_used()), (index, 0));
    }
    guest.receive_op(Op::Reset);
    assert_eq!(guest.device.counts().faults, 4);
}

#[test]
fn an_rx_buffer_in_pieces_is_filled_in_order() {
    let mut guest = Guest::asleep(1 << 29);
    let base = 0x10_0000;
    // The header itself is cut in two.
    guest.queues[0].describe(0, Descriptor { address: base, length: 20, flags: WRITE | NEXT, next: 1 });
    guest.queues[0].describe(1, Descriptor { address: base + 20, length: 30, flags: WRITE | NEXT, next: 2 });
    guest.queues[0].describe(2, Descriptor { address: base + 50, length: 100, flags: WRITE, next: 0 });
    guest.give_rx(0..1);
    guest.start();
    let (mut host, _) = guest.connect(9);
    std::io::Write::write_all(&mut host, b"split over two pieces").unwrap();
    assert_eq!(guest.receive_bytes(21), b"split over two pieces");
}

#[test]
fn packets_for_nobody_are_answered_with_a_reset() {
    let mut guest = Guest::awake();
    let stray = packet(Op::Data, 5, 6);
    let packets = [
        stray,
        with_op(stray, Op::Response),
        with_op(stray, Op::Shutdown),
        Header { op: 0, ..stray },
        Header { op: 99, ..stray },
        Header { kind: 2, ..with_op(stray, Op::Request) },
        Header { dst_cid: 1, ..with_op(stray, Op::Request) },
        Header { src_cid: 77, ..with_op(stray, Op::Request) },
    ];
    for packet in packets {
        guest.send(packet, &[]);
        let reset = guest.receive_op(Op::Reset);
        assert_eq!((reset.src_port, reset.dst_port), (6, 5), "{packet:?}");
        assert_eq!((reset.src_cid, reset.dst_cid), (packet.dst_cid, packet.src_cid));
    }
    assert!(guest.announced.lock().unwrap().is_empty());
}

#[test]
fn a_reset_for_nobody_is_not_answered() {
    let mut guest = Guest::awake();
    guest.send(packet(Op::Reset, 5, 6), &[]);
    guest.send(Header { src_cid: 77, ..packet(Op::Reset, 5, 6) }, &[]);
    still_works(&mut guest);
}

#[test]
fn a_length_beyond_the_chain_resets_the_connection() {
    for length in [5, 1 << 20, u32::MAX] {
        let mut guest = Guest::awake();
        let (_host, header) = guest.connect(1024);
        let (_, address) = guest.tx_slot();
        let lie = Header { len: length, ..data(header, 0) };
        guest.memory.writable().write_slice(&lie.to_bytes(), GuestAddress(address)).unwrap();
        send_chain(&mut guest, &[Descriptor { address, length: HEADER + 4, flags: 0, next: 0 }]);
        guest.receive_op(Op::Reset);
        assert_eq!(guest.device.counts().faults, 1);
        still_works(&mut guest);
    }
}

#[test]
fn a_connection_that_is_asked_for_twice_is_reset() {
    let mut guest = Guest::awake();
    let (_host, header) = guest.connect_from_guest(5, 6);
    guest.send(header, &[]);
    guest.receive_op(Op::Reset);
    still_works(&mut guest);
}

#[test]
fn data_before_the_answer_or_after_the_end_is_a_broken_rule() {
    let mut guest = Guest::awake();
    let _host = guest.dial(7);
    let request = guest.receive_op(Op::Request);
    guest.send(data(packet(Op::Data, 7, request.src_port), 1), b"x");
    guest.receive_op(Op::Reset);
    let (_host, header) = guest.connect(8);
    guest.send(Header { flags: 2, ..with_op(header, Op::Shutdown) }, &[]);
    guest.send(data(header, 1), b"x");
    guest.receive_op(Op::Reset);
}

#[test]
fn credit_that_cannot_be_stalls_the_guest_alone() {
    let mut guest = Guest::awake();
    let (mut host, header) = guest.connect(7);
    // More taken than was ever sent.
    guest.send(Header { fwd_cnt: 1000, ..with_op(header, Op::CreditUpdate) }, &[]);
    std::io::Write::write_all(&mut host, b"x").unwrap();
    guest.receive_op(Op::CreditRequest);
    still_works(&mut guest);
}

/// Packets of one connection, valid about as often as not.
fn any_packet() -> impl Strategy<Value = (Header, usize)> {
    let numbers = prop_oneof![Just(0), 1_u32..5000, any::<u32>()];
    let credit = (numbers.clone(), numbers.clone());
    (0_u16..9, 1_u32..3, 79_u32..81, 0_usize..3000, numbers, 0_u32..5, credit, 0_u8..10).prop_map(
        |(op, guest, host, length, lie, flags, (buf_alloc, fwd_cnt), honest)| {
            let len = if honest > 0 { length as u32 } else { lie };
            let header = packet(Op::Data, guest, host);
            (Header { op, len, flags, buf_alloc, fwd_cnt, ..header }, length)
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn no_sequence_of_packets_stops_the_device(packets in prop::collection::vec(any_packet(), 1..80)) {
        let mut guest = Guest::awake();
        for (header, length) in packets {
            guest.send(header, &vec![7; length]);
            // The host programs come and go as well.
            if header.flags == 0 {
                let announced = guest.announced.lock().unwrap().pop_front();
                announced.map(|(_, number)| guest.accept(number));
            }
            while guest.try_receive().is_some() {}
        }
        guest.send(packet(Op::CreditRequest, 4242, 4343), &[]);
        while guest.receive().0.src_port != 4343 {}
        prop_assert_eq!(guest.device_pause().len(), 3);
    }
}
