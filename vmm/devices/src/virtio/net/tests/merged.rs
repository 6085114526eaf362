//! Frames over several chains, as a driver sees them while they are received.

use std::time::{Duration, Instant};

use super::{BUFFER, MERGE, net};
use crate::virtio::VirtioDevice as _;
use crate::virtio::testing::{Driver, Line, WRITE, activation, memory};

const CHAINS: u16 = 10;
const CHAIN_BYTES: u32 = 100;
const FRAMES: u16 = 500;
const PATIENCE: Duration = Duration::from_secs(20);

/// Drivers take all chains of a frame as soon as they see the first one, and lose the frame if one is
/// missing.
#[test]
fn a_frame_over_several_chains_is_seen_whole_or_not_at_all() {
    let (mut net, wire) = net();
    let (memory, line) = (memory(), Line::new());
    let [mut rx, tx, control] = [0, 1, 2].map(|index| Driver::new(&memory, index));
    let queues = vec![rx.queue(), tx.queue(), control.queue()];
    let (active, kicks) = activation(&memory, queues, &line, MERGE);
    net.activate(active).unwrap();
    let mut room = Driver::SIZE;
    for frame in 1..=FRAMES {
        for place in 0..u64::from(room) {
            rx.put(&[(BUFFER + 0x1000 * place, CHAIN_BYTES, WRITE)]);
        }
        room = CHAINS;
        kicks[0].write(1).unwrap();
        wire.send((u32::from(CHAINS) * CHAIN_BYTES) as usize);
        let begun = Instant::now();
        while rx.used_index() != frame * CHAINS {
            assert_eq!(rx.used_index() % CHAINS, 0, "a part of frame {frame} is there");
            assert!(begun.elapsed() < PATIENCE, "frame {frame} did not come");
        }
    }
}
