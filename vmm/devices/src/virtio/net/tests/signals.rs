//! Notifications of a driver about sent frames.

use std::sync::Arc;

use super::{BUFFER, MERGE, Settings, Wire, net_with};
use crate::virtio::net::worker::NetWorker;
use crate::virtio::testing::{Driver, Line, WRITE, activation, memory};

/// A worker driven by the test itself, and its interrupt line.
struct Bench {
    worker: NetWorker,
    rx: Driver,
    tx: Driver,
    wire: Wire,
    line: Arc<Line>,
}

fn bench() -> Bench {
    let (net, wire, _) = net_with(Settings::default());
    let (memory, line) = (memory(), Line::new());
    let [rx, tx, control] = [0, 1, 2].map(|index| Driver::new(&memory, index));
    let queues = vec![rx.queue(), tx.queue(), control.queue()];
    let (activation, _kicks) = activation(&memory, queues, &line, MERGE);
    Bench { worker: net.back_end(activation).unwrap(), rx, tx, wire, line }
}

impl Bench {
    /// Sends some frames of this length. Returns the number of resulting interrupts.
    fn send(&mut self, count: usize, bytes: u32) -> u64 {
        for _ in 0..count {
            self.tx.put(&[(BUFFER, bytes, 0)]);
        }
        self.worker.tx_ready = true;
        self.worker.transmit();
        assert_eq!(self.tx.take_used().len(), count);
        self.line.interrupts()
    }
}

#[test]
fn a_little_that_was_sent_is_heard_of_with_the_next_frame_received() {
    let mut bench = bench();
    assert_eq!(bench.send(1, 60), 0);
    assert!(bench.worker.tx.has_unheard());
    bench.rx.put(&[(BUFFER, 0x1_1000, WRITE)]);
    bench.wire.send(60);
    bench.worker.starved = false;
    bench.worker.receive();
    assert_eq!(bench.line.interrupts(), 1);
    assert!(!bench.worker.tx.has_unheard());
}

#[test]
fn many_frames_are_heard_of_at_once() {
    let mut bench = bench();
    assert_eq!(bench.send(15, 60), 0);
    assert_eq!(bench.send(1, 60), 1);
    assert_eq!(bench.send(1, 60), 0, "it is counted anew");
}

#[test]
fn many_bytes_are_heard_of_at_once() {
    let mut bench = bench();
    assert_eq!(bench.send(2, 8 << 10), 1);
    assert_eq!(bench.send(1, 16 << 10), 1);
    assert!(!bench.worker.tx.has_unheard());
}

#[test]
fn frames_that_make_no_sense_count_too() {
    let mut bench = bench();
    assert_eq!(bench.send(16, 1), 1);
}

#[test]
fn a_driver_need_not_notify_of_its_answer_to_a_frame_that_it_hears_of() {
    let mut bench = bench();
    assert_eq!(bench.send(1, 60), 0);
    assert!(bench.tx.wants_kicks());
    bench.rx.put(&[(BUFFER, 0x1_1000, WRITE)]);
    bench.wire.send(60);
    bench.worker.starved = false;
    bench.worker.receive();
    assert_eq!(bench.line.interrupts(), 1);
    assert!(!bench.tx.wants_kicks());
    bench.tx.put(&[(BUFFER, 60, 0)]);
    bench.worker.transmit();
    assert_eq!(bench.tx.take_used().len(), 1);
    assert!(bench.tx.wants_kicks(), "the worker sleeps, and nobody would wake it");
}
