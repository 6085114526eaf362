//! Handles packets from the guest, and decides the next packet for the guest.
//!
//! The multiplexer owns the table, the pending dials, the resets for stray packets, and the epoll set with
//! the host's ends. It handles chains of guest memory but no queue, so it outlives a pause.
//!
//! Every packet for the guest waits as a flag or a place in line, never as bytes: control packets at most one
//! of each kind per connection, stray resets at most [`REPLIES_MAX`]. When those are full, no packet is taken
//! from the guest until it gives rx buffers (virtio 1.2 section 5.10.6.1).

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use vmm_sys_util::epoll::{ControlOperation, Epoll, EpollEvent, EventSet};

use super::connection::{Connection, Ports};
use super::dial::{Dials, Wanted};
use super::dial_rules::DialRules;
use super::packet::{HOST_CID, Header, Op, TYPE_STREAM};
use super::table::Table;
use super::tx::Packet;

/// Most resets, for packets without a connection, waiting for rx buffers.
pub(super) const REPLIES_MAX: usize = 256;

/// Tokens below this one belong to the worker. Ids of dials and connections start here.
pub(super) const FIRST_ID: u64 = 16;

/// Announces a stream opened by the guest: the host's port, and a number for accepting it. Returning `false`
/// refuses it. Called on the device's thread.
pub type GuestStream = Arc<dyn Fn(u32, u64) -> bool + Send + Sync>;

/// See the module.
pub(super) struct Mux {
    guest_cid: u64,
    guest_stream: GuestStream,
    dial_rules: DialRules,
    listener: Arc<UnixListener>,
    /// True until an accept returns nothing after the listener's last event.
    acceptable: bool,
    /// The last accept failed, most likely for lack of a descriptor. Nothing wakes the worker when one is
    /// free again.
    accept_failed: bool,
    pub(super) epoll: Epoll,
    /// Also numbers the guest's streams.
    pub(super) next_id: u64,
    dials: Dials,
    pub(super) table: Table,
    pub(super) replies: VecDeque<Header>,
    /// The connection having its turn, and the bytes left of the turn.
    pub(super) turn: Option<(u64, usize)>,
}

impl Mux {
    /// Starts without connections. Diallers wait in the listener's backlog until [`accept`](Self::accept).
    pub(super) fn new(
        guest_cid: u32,
        listener: Arc<UnixListener>,
        dial_rules: DialRules,
        guest_stream: GuestStream,
        next_host_port: u32,
        next_id: u64,
    ) -> io::Result<Mux> {
        Ok(Mux {
            guest_cid: u64::from(guest_cid),
            guest_stream,
            dial_rules,
            listener,
            acceptable: true,
            accept_failed: false,
            epoll: Epoll::new()?,
            next_id,
            dials: Dials::default(),
            table: Table::new(next_host_port),
            replies: VecDeque::new(),
            turn: None,
        })
    }

    /// Watches the listener, under the worker's token.
    pub(super) fn watch_listener(&self, token: u64) -> io::Result<()> {
        let event = EpollEvent::new(EventSet::IN | EventSet::EDGE_TRIGGERED, token);
        self.epoll.ctl(ControlOperation::Add, self.listener.as_raw_fd(), event)
    }

    /// Stops watching it, when no worker waits. The next worker finds later diallers.
    pub(super) fn unwatch_listener(&mut self) {
        self.acceptable = true;
        // Fails only if the listener is not watched.
        let _absent =
            self.epoll.ctl(ControlOperation::Delete, self.listener.as_raw_fd(), EpollEvent::default());
    }

    // --- the host ---

    /// Handles the listener's event: there are diallers.
    pub(super) fn listener_event(&mut self) {
        self.acceptable = true;
    }

    /// Takes all diallers out of the backlog. When descriptors run out, the rest wait for the next try.
    pub(super) fn accept(&mut self) {
        self.accept_failed = false;
        while self.acceptable {
            match self.listener.accept() {
                Ok((stream, _)) => self.dialled(stream),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.acceptable = false,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => {
                    self.accept_failed = true;
                    return;
                }
            }
        }
    }

    /// Returns true if diallers wait for another try.
    pub(super) fn accept_failed(&self) -> bool {
        self.accept_failed
    }

    /// Handles a new dialler. If its stream cannot be watched, it is closed.
    fn dialled(&mut self, stream: UnixStream) {
        let id = self.take_id();
        if stream.set_nonblocking(true).and_then(|()| self.watch(id, stream.as_raw_fd())).is_ok() {
            self.dials.insert(id, stream);
            self.proceed_dial(id);
        }
    }

    fn take_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id - 1
    }

    fn watch(&self, id: u64, fd: RawFd) -> io::Result<()> {
        self.epoll.ctl(ControlOperation::Add, fd, EpollEvent::new(stream_events(false), id))
    }

    /// Must follow any change to a connection. It settles the connection in the table, and watches for room
    /// in the host's socket while bytes are kept for it. At other times, each read of a host program would
    /// wake the thread for nothing.
    fn settle(&mut self, id: u64) {
        self.table.settle(id);
        let Some(link) = self.table.get_mut(id) else { return };
        let buffering = link.connection.is_buffering();
        if let Some(stream) = &link.stream
            && link.watches_room != buffering
        {
            link.watches_room = buffering;
            let event = EpollEvent::new(stream_events(buffering), id);
            // If there is room already, the event is raised at once.
            if self.epoll.ctl(ControlOperation::Modify, stream.as_raw_fd(), event).is_err() {
                link.connection.reset();
                link.connection.host_gone();
                self.table.settle(id);
            }
        }
    }

    fn proceed_dial(&mut self, id: u64) {
        match self.dials.proceed(id) {
            Some((stream, Wanted::Connect(guest))) if !self.table.is_full() => {
                let host = self.table.take_host_port(guest);
                self.table.insert(id, Connection::dialled_by_host(Ports { guest, host }), stream);
            }
            Some((stream, Wanted::Accept(number))) => self.accepted(number, stream),
            _ => {}
        }
    }

    /// Handles the host's acceptance of a guest's stream. If the stream is gone, the dialler's socket is
    /// closed.
    fn accepted(&mut self, number: u64, stream: UnixStream) {
        // Its events so far were the dial's.
        let event = EpollEvent::new(stream_events(false), number);
        if self.table.is_awaited(number)
            && self.epoll.ctl(ControlOperation::Modify, stream.as_raw_fd(), event).is_ok()
        {
            self.table.accept(number, stream);
            self.settle(number);
        }
    }

    /// Resets the guest's streams after the host's timeout. Returns the time until the next timeout.
    pub(super) fn give_up_awaited(&mut self) -> Option<Duration> {
        if !self.table.awaits() {
            return None;
        }
        let now = Instant::now();
        self.table.give_up_awaited(now);
        self.table.awaits_for(now)
    }

    /// Handles an event of a dial's or a connection's stream.
    pub(super) fn stream_event(&mut self, id: u64, events: EventSet) {
        let Some(link) = self.table.get_mut(id) else {
            return self.proceed_dial(id);
        };
        link.readable = true;
        if let Some(mut stream) = link.stream.as_ref()
            && events.intersects(EventSet::OUT | EventSet::HANG_UP | EventSet::ERROR)
        {
            link.connection.flush(&mut stream);
        }
        if events.contains(EventSet::HANG_UP) {
            link.connection.host_gone();
        }
        self.settle(id);
    }

    // --- the guest ---

    /// Returns true if a packet may be taken from the guest, because it can be answered.
    pub(super) fn takes_packets(&self) -> bool {
        self.replies.len() < REPLIES_MAX
    }

    /// Handles a packet. Returns false if the packet itself broke a rule, whatever its connection.
    pub(super) fn receive(&mut self, packet: &Packet) -> bool {
        let header = packet.header;
        let op = Op::from_wire(header.op);
        let known = header.src_cid == self.guest_cid
            && header.dst_cid == HOST_CID
            && header.kind == TYPE_STREAM
            && op.is_some();
        let Some(op) = op.filter(|_| known) else {
            // An RST in answer to an RST could go round for ever.
            if op != Some(Op::Reset) {
                self.replies.push_back(header.reset_reply());
            }
            return false;
        };
        let ports = Ports { guest: header.src_port, host: header.dst_port };
        match (self.table.find(ports), op) {
            (None, Op::Request) => self.guest_dials(ports, packet),
            (None, Op::Reset) => {}
            (None, _) => self.replies.push_back(header.reset_reply()),
            (Some(id), _) => self.receive_for(id, op, packet),
        }
        packet.whole || op != Op::Data
    }

    fn guest_dials(&mut self, ports: Ports, packet: &Packet) {
        let (id, now) = (self.take_id(), Instant::now());
        if !self.admit(ports.host, id, now) {
            return self.replies.push_back(packet.header.reset_reply());
        }
        let mut connection = Connection::dialled_by_guest(ports);
        connection.learn_credit(packet.header.buf_alloc, packet.header.fwd_cnt);
        self.table.insert_awaited(id, connection, now);
    }

    /// Admits a guest's stream and announces it to the host. A refused stream costs nothing but its reset.
    fn admit(&mut self, host_port: u32, number: u64, now: Instant) -> bool {
        let open = |port| self.table.dialled_by_guest(port);
        !self.table.is_full()
            && self.dial_rules.admit(host_port, open, now)
            && (self.guest_stream)(host_port, number)
    }

    fn receive_for(&mut self, id: u64, op: Op, packet: &Packet) {
        let Some(link) = self.table.get_mut(id) else { return };
        let connection = &mut link.connection;
        connection.learn_credit(packet.header.buf_alloc, packet.header.fwd_cnt);
        match op {
            // A second REQUEST: the guest has lost track.
            Op::Request => connection.reset(),
            Op::Response => {
                if connection.accept() && !answer_dialler(link.stream.as_ref(), connection.ports().host) {
                    connection.reset();
                }
            }
            Op::Reset => connection.guest_reset(),
            Op::Shutdown => connection.guest_shutdown(packet.header.flags),
            // Bytes are missing. The next bytes must not be taken for a complete stream.
            Op::Data if !packet.whole => connection.reset(),
            Op::Data => packet.deliver(link),
            Op::CreditUpdate => {}
            Op::CreditRequest => connection.credit_requested(),
        }
        self.settle(id);
    }

    /// Returns true if anything may be waiting for an rx buffer.
    pub(super) fn has_waiting(&self) -> bool {
        !self.replies.is_empty() || self.turn.is_some() || self.table.has_waiting()
    }

    /// Returns the guest's context id.
    pub(super) fn guest_cid(&self) -> u64 {
        self.guest_cid
    }
}

/// Returns the watched events for a host's stream, as edges. A stream without service then causes no
/// wake-ups, and needs no system calls.
fn stream_events(room: bool) -> EventSet {
    let events = EventSet::IN | EventSet::READ_HANG_UP | EventSet::EDGE_TRIGGERED;
    if room { events | EventSet::OUT } else { events }
}

/// Writes the dialler's answer. It is the first line on the socket, so there is room for it.
fn answer_dialler(stream: Option<&UnixStream>, host_port: u32) -> bool {
    let line = format!("OK {host_port}\n");
    stream.is_some_and(|mut stream| io::Write::write(&mut stream, line.as_bytes()).ok() == Some(line.len()))
}

impl std::fmt::Debug for Mux {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Mux")
            .field("guest_cid", &self.guest_cid)
            .field("table", &self.table)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;

    use super::super::dial_rules::HostPorts;
    use super::*;

    fn mux(listener: UnixListener) -> Mux {
        listener.set_nonblocking(true).unwrap();
        Mux::new(
            3,
            Arc::new(listener),
            DialRules::new(HostPorts::default()),
            Arc::new(|_, _| false),
            0,
            FIRST_ID,
        )
        .unwrap()
    }

    #[test]
    fn diallers_that_cannot_be_accepted_are_tried_again() {
        // Not a listening socket, so accepting from it fails, as it does without a free descriptor.
        let mut mux = mux(UnixListener::from(OwnedFd::from(UnixStream::pair().unwrap().0)));
        mux.accept();
        assert!(mux.accept_failed());
        let dir = tempfile::tempdir().unwrap();
        mux.listener = Arc::new(UnixListener::bind(dir.path().join("socket")).unwrap());
        mux.listener.set_nonblocking(true).unwrap();
        mux.accept();
        assert!(!mux.accept_failed());
    }
}
