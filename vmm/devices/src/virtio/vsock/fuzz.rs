//! The connections of a device without queues and thread, for `tests/fuzz` only: one input always does the
//! same. Its bounds hold for every input.

use std::io;
use std::os::unix::net::UnixListener;
use std::sync::Arc;

use vm_memory::{Bytes as _, GuestAddress, GuestRegionMmap};
use vmm_sys_util::epoll::EpollEvent;

use super::HostPorts;
use super::buffer::Buffer;
use super::connection::BUFFER_BYTES;
use super::dial_rules::{DialRules, PROGRAM_STREAMS_MAX, STREAMS_MAX};
use super::mux::{FIRST_ID, GuestStream, Mux, REPLIES_MAX};
use super::packet::HEADER_BYTES;
use super::table::CONNECTIONS_MAX;
use super::tx::Packet;
use crate::virtio::GuestMemory;
use crate::virtio::chain::{Segment, Segments};

/// Guest memory for one packet each way.
const MEMORY: usize = 0x2_0000;

/// Token of the listener.
const LISTENER: u64 = 4;

/// Events taken at once.
const EVENTS_MAX: usize = 64;

/// The connections of a device.
#[derive(Debug)]
pub struct Streams {
    mux: Mux,
    memory: GuestMemory,
    guest_ports: Vec<u32>,
}

impl Streams {
    /// Connections of the guest with context id `guest_cid`, as those of [`Vsock::new`](super::Vsock::new).
    ///
    /// # Errors
    /// The process has no descriptor left.
    pub fn new(
        guest_cid: u32,
        listener: UnixListener,
        ports: HostPorts,
        taker: GuestStream,
    ) -> io::Result<Streams> {
        listener.set_nonblocking(true)?;
        let ram = GuestRegionMmap::from_range(GuestAddress(0), MEMORY, None).map_err(io::Error::other)?;
        let memory = GuestMemory::new(vec![ram]).map_err(io::Error::other)?;
        let guest_ports = ports.agent.iter().copied().chain(ports.programs).collect();
        let mux = Mux::new(guest_cid, Arc::new(listener), DialRules::new(ports), taker, 0, FIRST_ID)?;
        mux.watch_listener(LISTENER)?;
        Ok(Streams { mux, memory, guest_ports })
    }

    /// Takes a packet of the guest's, a header with its payload behind it. Returns true if it was in order,
    /// or `None` while no packet is taken.
    pub fn receive(&mut self, packet: &[u8]) -> Option<bool> {
        if !self.mux.takes_packets() {
            return None;
        }
        let packet = &packet[..packet.len().min(MEMORY)];
        let _ = self.memory.writable().write(packet, GuestAddress(0));
        let segments = self.segments(packet.len());
        Some(Packet::parse(Buffer::new(&segments)).is_some_and(|packet| self.mux.receive(&packet)))
    }

    /// The next packet for the guest, into a buffer of so many bytes. The buffer holds a header and at
    /// least one byte more.
    pub fn send(&mut self, bytes: usize) -> Option<Vec<u8>> {
        let segments = self.segments(bytes.clamp(HEADER_BYTES + 1, MEMORY));
        let length = self.mux.has_waiting().then(|| self.mux.fill(Buffer::new(&segments))).flatten()?;
        assert!(u64::from(length) <= segments.bytes(), "{length} bytes in room for {}", segments.bytes());
        let mut packet = vec![0; length as usize];
        self.memory.writable().read_slice(&mut packet, GuestAddress(0)).ok()?;
        Some(packet)
    }

    /// Acts on all events at the host's ends.
    pub fn proceed(&mut self) {
        self.mux.accept();
        let mut events = [EpollEvent::default(); EVENTS_MAX];
        let count = self.mux.epoll.wait(0, &mut events).unwrap_or_default();
        for event in &events[..count] {
            match event.data() {
                id @ FIRST_ID.. => self.mux.stream_event(id, event.event_set()),
                _ => self.mux.listener_event(),
            }
        }
    }

    /// Fails if a bound does not hold.
    pub fn check(&self) {
        assert!(self.mux.replies.len() <= REPLIES_MAX, "{} resets wait", self.mux.replies.len());
        let dialled: usize = self.guest_ports.iter().map(|port| self.mux.table.dialled_by_guest(*port)).sum();
        assert!(dialled <= STREAMS_MAX + PROGRAM_STREAMS_MAX, "the guest has {dialled} streams");
        self.mux.table.check(CONNECTIONS_MAX, BUFFER_BYTES as usize);
    }

    fn segments(&self, bytes: usize) -> Segments {
        let mut segments = Segments::default();
        // In two pieces, as drivers give them.
        for (address, length) in
            [(0, bytes.min(HEADER_BYTES)), (HEADER_BYTES, bytes.saturating_sub(HEADER_BYTES))]
        {
            let segment = Segment { address: GuestAddress(address as u64), length: length as u32 };
            segments.push(segment, || self.memory.writable());
        }
        segments
    }
}
