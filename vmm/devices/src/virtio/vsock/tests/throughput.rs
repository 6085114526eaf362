//! A lot of bytes both ways at once, to see that none is lost, doubled or out of place. Times nothing.

use std::collections::hash_map::DefaultHasher;
use std::hash::Hasher;
use std::io::{Read, Write};
use std::thread;

use super::super::packet::{Header, Op};
use super::guest::{Guest, data, with_op};
use crate::virtio::VirtioDevice as _;

const TOTAL: usize = 64 << 20;
const PIECE: usize = 64 << 10;

/// Returns a piece of the stream for `seed`.
fn piece(seed: u64, number: usize) -> Vec<u8> {
    let mut state = seed.wrapping_add(number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(PIECE);
    while bytes.len() < PIECE {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes
}

fn checksum(seed: u64) -> u64 {
    let mut hasher = DefaultHasher::new();
    (0..TOTAL / PIECE).for_each(|number| hasher.write(&piece(seed, number)));
    hasher.finish()
}

#[test]
fn sixty_four_mebibytes_each_way_arrive_whole() {
    let mut guest = Guest::awake();
    let (mut host, mut header) = guest.connect(1024);
    let mut host_writes = host.try_clone().unwrap();
    let writer = thread::spawn(move || {
        (0..TOTAL / PIECE).for_each(|number| host_writes.write_all(&piece(1, number)).unwrap());
    });
    let reader = thread::spawn(move || {
        let (mut hasher, mut bytes) = (DefaultHasher::new(), vec![0; PIECE]);
        for _ in 0..TOTAL / PIECE {
            host.read_exact(&mut bytes).unwrap();
            hasher.write(&bytes);
        }
        hasher.finish()
    });

    let mut hasher = DefaultHasher::new();
    let (mut kept, mut received, mut reported) = (Vec::new(), 0_usize, 0_usize);
    let (mut pieces_sent, mut credit) = (0, Header::default());
    while received < TOTAL || pieces_sent < TOTAL / PIECE {
        let sent = (pieces_sent * PIECE) as u32;
        let may_send = credit.buf_alloc.saturating_sub(sent.wrapping_sub(credit.fwd_cnt)) >= PIECE as u32;
        if may_send && pieces_sent < TOTAL / PIECE {
            guest.send(data(header, PIECE), &piece(2, pieces_sent));
            pieces_sent += 1;
        } else if let Some((packet, payload)) = next(&mut guest, may_send) {
            credit = packet;
            received += payload.len();
            kept.extend(payload);
            // Hashing whole pieces makes the sum independent of how packets were cut.
            while kept.len() >= PIECE {
                hasher.write(&kept[..PIECE]);
                kept.drain(..PIECE);
            }
            header.fwd_cnt = received as u32;
            if received - reported >= 32 * 1024 {
                reported = received;
                guest.send(with_op(header, Op::CreditUpdate), &[]);
            }
        }
    }
    writer.join().unwrap();
    assert_eq!(hasher.finish(), checksum(1), "host to guest");
    assert_eq!(reader.join().unwrap(), checksum(2), "guest to host");
    assert_eq!(guest.device.counts().faults, 0);
}

/// The next packet; waits for it if the guest has nothing else to do.
fn next(guest: &mut Guest, busy: bool) -> Option<(Header, Vec<u8>)> {
    if busy { guest.try_receive() } else { Some(guest.receive()) }
}
