//! The control queue: the driver selects the frames it wants (virtio 1.2, section 5.1.6.5).
//!
//! ```text
//!   read by the device                                                          written by it
//!   ┌───────┬─────────┬──────────────────────────────────────────────────────┐ ┌─────┐
//!   │ class │ command │ data: a switch u8, an address [u8; 6], or two lists, │ │ ack │
//!   │  u8   │   u8    │ unicast and groups, each  u32 count, [u8; 6] × count │ │ u8  │
//!   └───────┴─────────┴──────────────────────────────────────────────────────┘ └─────┘
//! ```
//!
//! An invalid command changes nothing and is answered with an error.

use virtio_bindings::virtio_net as spec;
use virtio_queue::Queue;

use super::receive::{Command, Mac, TABLE_MAX, is_group};
use crate::virtio::Interrupt;
use crate::virtio::chain::{Chain, ChainFault, Segments};
use crate::virtio::ring::{Faults, Ring, Taken};

/// The control queue at work.
#[derive(Debug)]
pub(super) struct Control {
    queue: ControlQueue,
    chain: Chain,
    features: u64,
}

#[derive(Debug)]
enum ControlQueue {
    /// The driver does not use it.
    Unused(Queue),
    Open(Ring, Faults),
}

impl Control {
    /// Returns a queue without service: the driver did not choose it.
    pub(super) fn unused(queue: Queue) -> Control {
        Control { queue: ControlQueue::Unused(queue), chain: Chain::default(), features: 0 }
    }

    /// Returns a queue for the commands of `features`. Others count as `faults`.
    pub(super) fn new(ring: Ring, features: u64, faults: Faults) -> Control {
        Control { queue: ControlQueue::Open(ring, faults), chain: Chain::default(), features }
    }

    /// Answers one command. If it is valid, `change` applies it. Returns true if there was one.
    pub(super) fn serve(&mut self, change: impl FnMut(Command)) -> bool {
        let ControlQueue::Open(ring, faults) = &mut self.queue else { return false };
        let Some(taken) = ring.take(&mut self.chain) else { return false };
        let command =
            if taken.fault.is_none() { parse(&mut self.chain.readable, self.features) } else { None };
        // A fault of the chain itself is counted already.
        if command.is_none() && taken.fault.is_none() {
            faults.count();
        }
        let written = answer(&self.chain, taken, command.is_some());
        if written > 0 {
            command.into_iter().for_each(change);
        }
        ring.complete(taken, written);
        true
    }

    /// Asks the driver for notifications. Returns true if commands came in meanwhile.
    pub(super) fn listen(&mut self) -> bool {
        match &mut self.queue {
            ControlQueue::Open(ring, _) => ring.listen(),
            ControlQueue::Unused(_) => false,
        }
    }

    /// Interrupts the driver if it wants to know of its answers.
    pub(super) fn signal(&mut self, interrupt: &dyn Interrupt) {
        if let ControlQueue::Open(ring, _) = &mut self.queue {
            ring.signal(interrupt);
        }
    }

    pub(super) fn into_queue(self) -> Queue {
        match self.queue {
            ControlQueue::Open(ring, _) => ring.into_queue(),
            ControlQueue::Unused(queue) => queue,
        }
    }
}

/// Writes the answer, if the chain has a place for it; without one, there is no command. Returns the bytes
/// written.
fn answer(chain: &Chain, taken: Taken, known: bool) -> u32 {
    let ack = if known { spec::VIRTIO_NET_OK } else { spec::VIRTIO_NET_ERR };
    if taken.fault == Some(ChainFault::Endless) || chain.writable.write_at(0, &[ack as u8]).is_none() {
        return 0;
    }
    1
}

/// Reads a command. Returns `None` if it is invalid, or if its feature was not chosen.
fn parse(data: &mut Segments, features: u64) -> Option<Command> {
    let has = |feature: u32| features & (1 << feature) != 0;
    let [class, command] = take(data)?;
    let command = match (u32::from(class), u32::from(command)) {
        (spec::VIRTIO_NET_CTRL_RX, spec::VIRTIO_NET_CTRL_RX_PROMISC) if has(spec::VIRTIO_NET_F_CTRL_RX) => {
            Command::Promiscuous(switch(data)?)
        }
        (spec::VIRTIO_NET_CTRL_RX, spec::VIRTIO_NET_CTRL_RX_ALLMULTI) if has(spec::VIRTIO_NET_F_CTRL_RX) => {
            Command::AllMulticast(switch(data)?)
        }
        (spec::VIRTIO_NET_CTRL_MAC, spec::VIRTIO_NET_CTRL_MAC_TABLE_SET)
            if has(spec::VIRTIO_NET_F_CTRL_RX) =>
        {
            table(data)?
        }
        (spec::VIRTIO_NET_CTRL_MAC, spec::VIRTIO_NET_CTRL_MAC_ADDR_SET)
            if has(spec::VIRTIO_NET_F_CTRL_MAC_ADDR) =>
        {
            Command::Address(take(data).filter(|mac| !is_group(*mac) && *mac != [0; 6])?)
        }
        _ => return None,
    };
    // Excess bytes mean that the driver wanted something else.
    (data.bytes() == 0).then_some(command)
}

fn switch(data: &mut Segments) -> Option<bool> {
    match take(data)? {
        [0] => Some(false),
        [1] => Some(true),
        _ => None,
    }
}

/// Reads both lists of a table, or as much as needed to see that they are too long.
fn table(data: &mut Segments) -> Option<Command> {
    let mut addresses = Vec::new();
    for _ in 0..2 {
        let count = u32::from_le_bytes(take(data)?);
        if u64::from(count) * size_of::<Mac>() as u64 > data.bytes() {
            return None;
        }
        if count as usize > TABLE_MAX - addresses.len() {
            data.clear();
            return Some(Command::LongTable);
        }
        for _ in 0..count {
            addresses.push(take(data)?);
        }
    }
    Some(Command::Table(addresses))
}

fn take<const N: usize>(data: &mut Segments) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    data.take_front(&mut bytes)?;
    Some(bytes)
}
