//! Handles packets from the guest, and decides which packet the guest gets next.
//!
//! The multiplexer owns the table, the half-done dials, the resets that answer stray packets, and the epoll set that
//! watches the host's ends. Since it sees chains of guest memory but no queue, it outlives a pause.
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

/// Resets for packets without a connection that may wait for rx buffers.
pub(super) const REPLIES_MAX: usize = 256;

/// Tokens below this one belong to the worker; ids of dials and connections start here.
pub(super) const FIRST_ID: u64 = 16;

/// Announces a stream that the guest opened: the host's port, and the number by which the host accepts it; `false` refuses it. Called
/// on the device's thread.
pub type GuestStream = Arc<dyn Fn(u32, u64) -> bool + Send + Sync>;

/// See the module.
pub(super) struct Mux {
    guest_cid: u64,
    guest_stream: GuestStream,
    dial_rules: DialRules,
    listener: Arc<UnixListener>,
    /// No accept has come back empty since the listener's last event.
    acceptable: bool,
    /// The last accept failed, most likely for want of a descriptor: nothing wakes the worker when there is one.
    accept_failed: bool,
    pub(super) epoll: Epoll,
    /// Numbers streams of the guest's too.
    pub(super) next_id: u64,
    dials: Dials,
    pub(super) table: Table,
    pub(super) replies: VecDeque<Header>,
    /// The connection whose turn it is, and the bytes that are left of the turn.
    pub(super) turn: Option<(u64, usize)>,
}

impl Mux {
    /// No connections. Diallers wait in the listener's backlog until [`accept`](Self::accept).
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

    /// Has the listener watched, under the worker's token.
    pub(super) fn watch_listener(&self, token: u64) -> io::Result<()> {
        let event = EpollEvent::new(EventSet::IN | EventSet::EDGE_TRIGGERED, token);
        self.epoll.ctl(ControlOperation::Add, self.listener.as_raw_fd(), event)
    }

    /// The opposite, for when no worker waits. The next worker finds what comes meanwhile.
    pub(super) fn unwatch_listener(&mut self) {
        self.acceptable = true;
        // Only a listener that is not watched fails.
        let _absent =
            self.epoll.ctl(ControlOperation::Delete, self.listener.as_raw_fd(), EpollEvent::default());
    }

    // --- the host ---

    /// The listener has diallers.
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

    /// Whether diallers wait for another try.
    pub(super) fn accept_failed(&self) -> bool {
        self.accept_failed
    }

    /// A stream that cannot be watched is hung up on.
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

    /// After any change to a connection: settles it in the table, and watches for room in the host's
    /// socket while bytes are kept for it. At other times room is no news, and each read of a host
    /// program would wake the thread.
    fn settle(&mut self, id: u64) {
        self.table.settle(id);
        let Some(link) = self.table.get_mut(id) else { return };
        let buffering = link.connection.is_buffering();
        if let Some(stream) = &link.stream
            && link.watches_room != buffering
        {
            link.watches_room = buffering;
            let event = EpollEvent::new(stream_events(buffering), id);
            // Room that is there already raises the event at once.
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

    /// The host accepts a stream of the guest's. One that is not there any more is hung up on.
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

    /// Resets streams of the guest's that the host accepts too late. Returns when the next one is due.
    pub(super) fn give_up_awaited(&mut self) -> Option<Duration> {
        if self.table.awaits_for(Instant::now())?.is_zero() {
            self.table.give_up_awaited(Instant::now());
        }
        self.table.awaits_for(Instant::now())
    }

    /// Something happened to the stream of a dial or a connection.
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

    /// Whether a packet may be taken from the guest: it can be answered.
    pub(super) fn takes_packets(&self) -> bool {
        self.replies.len() < REPLIES_MAX
    }

    /// Acts on a packet; false if the packet itself, whatever its connection, broke a rule.
    pub(super) fn receive(&mut self, packet: &Packet) -> bool {
        let header = packet.header;
        let op = Op::from_wire(header.op);
        let known = header.src_cid == self.guest_cid
            && header.dst_cid == HOST_CID
            && header.kind == TYPE_STREAM
            && op.is_some();
        let Some(op) = op.filter(|_| known) else {
            // An RST that answers an RST could go round for ever.
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

    /// Whether a stream of the guest's may be there, and the host knows of it. One that is refused costs nothing but its reset.
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
            // A second REQUEST: the guest has lost count.
            Op::Request => connection.reset(),
            Op::Response => {
                if connection.accept() && !answer_dialler(link.stream.as_ref(), connection.ports().host) {
                    connection.reset();
                }
            }
            Op::Reset => connection.guest_reset(),
            Op::Shutdown => connection.guest_shutdown(packet.header.flags),
            // Bytes are missing: what follows them must not be taken for the whole.
            Op::Data if !packet.whole => connection.reset(),
            Op::Data => packet.deliver(link),
            Op::CreditUpdate => {}
            Op::CreditRequest => connection.credit_requested(),
        }
        self.settle(id);
    }

    /// Whether anything may be waiting for an rx buffer.
    pub(super) fn has_waiting(&self) -> bool {
        !self.replies.is_empty() || self.turn.is_some() || self.table.has_waiting()
    }

    /// The guest's context id.
    pub(super) fn guest_cid(&self) -> u64 {
        self.guest_cid
    }
}

/// The events that a host's stream is watched for, as edges: a stream that is not being served causes no wake-ups, and
/// needs no calls to be left alone.
fn stream_events(room: bool) -> EventSet {
    let events = EventSet::IN | EventSet::READ_HANG_UP | EventSet::EDGE_TRIGGERED;
    if room { events | EventSet::OUT } else { events }
}

/// Writes the line that a dialler waits for. That line is the first to be written, so the socket has room for it.
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
        // No listener, so that accepting from it fails as it does without a descriptor left.
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
