//! A connection under random use by both sides: bytes in order, none lost, credit kept, buffers bounded.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Write};

use proptest::prelude::*;

use super::super::connection::{Admission, BUFFER_BYTES, Connection, Ports};
use super::super::packet::{Op, SHUTDOWN_RECEIVE, SHUTDOWN_SEND};

const PORTS: Ports = Ports { guest: 7, host: 80 };

/// A possible next event.
#[derive(Clone, Debug)]
enum Step {
    GuestSends(u32),
    HostReads(usize),
    HostSends(u32),
    GuestReads(u32),
    Controls,
    GuestEnds,
    HostEnds,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (1_u32..90_000).prop_map(Step::GuestSends),
        4 => (1_usize..120_000).prop_map(Step::HostReads),
        6 => (1_u32..30_000).prop_map(Step::HostSends),
        4 => (1_u32..40_000).prop_map(Step::GuestReads),
        6 => Just(Step::Controls),
        1 => Just(Step::GuestEnds),
        1 => Just(Step::HostEnds),
    ]
}

/// A host's socket: takes some bytes and then would block.
#[derive(Default)]
struct Pipe {
    bytes: VecDeque<u8>,
    room: usize,
}

impl Write for Pipe {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = bytes.len().min(self.room - self.bytes.len());
        if count == 0 {
            return Err(ErrorKind::WouldBlock.into());
        }
        self.bytes.extend(&bytes[..count]);
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Both sides and their views of the connection.
struct World {
    connection: Connection,
    pipe: Pipe,
    guest_sent: u32,
    guest_knows: (u32, u32),
    guest_ended: bool,
    host_read: u32,
    guest_alloc: u32,
    in_guest: u32,
    guest_took: u32,
    host_ended: bool,
    sent: Vec<(Op, u32)>,
}

impl World {
    fn new(guest_alloc: u32, room: usize) -> World {
        let mut connection = Connection::dialled_by_guest(PORTS);
        connection.learn_credit(guest_alloc, 0);
        let mut world = World {
            connection,
            pipe: Pipe { room, ..Pipe::default() },
            guest_sent: 0,
            guest_knows: (0, 0),
            guest_ended: false,
            host_read: 0,
            guest_alloc,
            in_guest: 0,
            guest_took: 0,
            host_ended: false,
            sent: Vec::new(),
        };
        world.controls();
        assert_eq!(world.sent, [(Op::Response, 0)]);
        world
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::GuestSends(wanted) if !self.guest_ended => {
                let in_flight = self.guest_sent.wrapping_sub(self.guest_knows.1);
                self.guest_sends(wanted.min(self.guest_knows.0 - in_flight));
            }
            Step::HostReads(wanted) => self.host_reads(wanted),
            Step::HostSends(wanted) if !self.host_ended => self.host_sends(wanted),
            Step::GuestReads(wanted) => {
                let count = wanted.min(self.in_guest);
                self.in_guest -= count;
                self.guest_took = self.guest_took.wrapping_add(count);
                self.connection.learn_credit(self.guest_alloc, self.guest_took);
            }
            Step::Controls => self.controls(),
            Step::GuestEnds if !self.guest_ended => {
                self.guest_ended = true;
                self.connection.guest_shutdown(SHUTDOWN_SEND);
            }
            Step::HostEnds if !self.host_ended => {
                self.host_ended = true;
                self.connection.host_ended();
            }
            _ => {}
        }
    }

    fn guest_sends(&mut self, count: u32) {
        if count == 0 {
            return;
        }
        let bytes: Vec<u8> = (0..count).map(|at| byte(self.guest_sent.wrapping_add(at))).collect();
        assert_eq!(self.connection.admit(count), Admission::Take, "within its credit");
        self.guest_sent = self.guest_sent.wrapping_add(count);
        let direct = if self.connection.is_buffering() { 0 } else { self.pipe.write(&bytes).unwrap_or(0) };
        self.connection.forward(direct as u32);
        self.connection.keep(&bytes[direct..]);
    }

    fn host_reads(&mut self, wanted: usize) {
        for got in self.pipe.bytes.drain(..wanted.min(self.pipe.bytes.len())) {
            assert_eq!(got, byte(self.host_read), "in order");
            self.host_read = self.host_read.wrapping_add(1);
        }
        self.connection.flush(&mut self.pipe);
    }

    fn host_sends(&mut self, wanted: u32) {
        if self.connection.wants_host_bytes() {
            let count = wanted.min(self.connection.credit());
            self.connection.sent(count);
            self.in_guest += count;
            assert!(self.in_guest <= self.guest_alloc, "the guest's credit is kept");
        }
    }

    fn controls(&mut self) {
        while let Some(control) = self.connection.next_control() {
            self.guest_knows = self.connection.report_credit();
            self.sent.push(control);
        }
    }
}

fn byte(position: u32) -> u8 {
    (position % 251) as u8
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn every_byte_arrives_in_order_whatever_the_pace(
        steps in prop::collection::vec(step(), 1..150),
        guest_alloc in 1_u32..300_000,
        room in 1_usize..200_000,
    ) {
        let mut world = World::new(guest_alloc, room);
        for step in &steps {
            world.step(step);
            let kept = world.guest_sent - world.host_read - world.pipe.bytes.len() as u32;
            prop_assert!(kept <= BUFFER_BYTES);
        }
        while world.host_read != world.guest_sent {
            world.host_reads(usize::MAX);
        }
        prop_assert!(!world.connection.is_buffering());
        prop_assert_eq!(world.connection.shuts_write_side(), world.guest_ended);
        prop_assert!(!world.connection.shuts_write_side(), "only once");
        world.controls();
        let reset = world.sent.iter().any(|sent| sent.0 == Op::Reset);
        prop_assert_eq!(reset, world.guest_ended && world.host_ended);
        prop_assert_eq!(world.connection.left_by_guest(), reset);
        let shutdown = world.sent.contains(&(Op::Shutdown, SHUTDOWN_SEND));
        prop_assert_eq!(shutdown, world.host_ended);
        if !world.guest_ended && !world.host_ended {
            // All is delivered: the guest knows of at least three quarters of its credit.
            let in_flight = world.guest_sent - world.guest_knows.1;
            prop_assert!(in_flight < BUFFER_BYTES / 4);
        }
    }

    #[test]
    fn no_sequence_of_guest_words_breaks_the_bounds(words in prop::collection::vec((0_u8..9, any::<u32>()), 0..60)) {
        let mut connection = Connection::dialled_by_host(PORTS);
        let mut pipe = Pipe { room: 1000, ..Pipe::default() };
        for (word, number) in words {
            match word {
                0 => { connection.accept(); }
                1 => connection.guest_shutdown(number),
                2 => connection.guest_reset(),
                3 => connection.credit_requested(),
                4 => connection.learn_credit(number, number.rotate_left(7)),
                5 => connection.host_gone(),
                6 => { connection.next_control(); }
                7 => connection.flush(&mut pipe),
                _ => {
                    let length = number % (BUFFER_BYTES + 2);
                    if connection.admit(length) == Admission::Take {
                        connection.keep(&vec![0; length as usize]);
                    }
                }
            }
            // Checked arithmetic within panics if more were admitted than the buffer holds.
            connection.credit();
        }
        connection.guest_reset();
        connection.flush(&mut io::sink());
        prop_assert!(connection.left_by_guest() && connection.left_by_host());
    }
}

#[test]
fn a_host_that_is_gone_costs_the_guest_no_credit() {
    let mut world = World::new(1000, 1);
    world.guest_knows.0 = BUFFER_BYTES;
    world.guest_sends(BUFFER_BYTES);
    world.connection.host_gone();
    world.controls();
    assert_eq!(world.guest_knows, (BUFFER_BYTES, BUFFER_BYTES));
    assert_eq!(world.sent.last(), Some(&(Op::Shutdown, SHUTDOWN_RECEIVE)));
    assert_eq!(world.connection.admit(5), Admission::Discard);
    assert!(!world.connection.left_by_guest());
}

#[test]
fn one_byte_over_the_credit_is_a_reset() {
    let mut world = World::new(1000, 1);
    world.guest_knows.0 = BUFFER_BYTES;
    world.guest_sends(BUFFER_BYTES);
    // One byte went straight through.
    assert_eq!(world.connection.admit(2), Admission::Discard);
    world.controls();
    assert_eq!(world.sent.last(), Some(&(Op::Reset, 0)));
    assert!(world.connection.is_buffering(), "what was admitted is still delivered");
}

#[test]
fn a_dial_given_up_before_the_guest_heard_of_it_is_forgotten() {
    let mut connection = Connection::dialled_by_host(PORTS);
    connection.host_gone();
    assert!(connection.left_by_guest() && connection.left_by_host());
    let mut connection = Connection::dialled_by_host(PORTS);
    assert_eq!(connection.next_control(), Some((Op::Request, 0)));
    connection.host_gone();
    assert_eq!(connection.next_control(), Some((Op::Reset, 0)));
}
