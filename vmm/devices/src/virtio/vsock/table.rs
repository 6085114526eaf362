//! All connections of a device, their streams, and the host ports in use.
//!
//! Owns the limit on connections and the two waiting lines for the guest: connections with a control packet
//! to send, and connections with possible bytes from their host. The table moves no bytes.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use super::connection::{Connection, Ports};

/// Most connections at one time. A connection with its last bytes still on their way to the host counts.
pub(super) const CONNECTIONS_MAX: usize = 1024;

/// First host port for dialling host programs. The ports below are for the guest's dials.
pub(super) const HOST_PORT_FIRST: u32 = 1 << 30;

/// Timeout for the host to accept a guest's stream. The daemon accepts at once, but may take seconds on a
/// busy node.
pub(super) const ACCEPT_WITHIN: Duration = Duration::from_secs(30);

/// A connection and the host's end of it.
#[derive(Debug)]
pub(super) struct Link {
    /// The connection's phases and credit.
    pub(super) connection: Connection,
    /// Kept until the host's end is no longer needed.
    pub(super) stream: Option<UnixStream>,
    /// The stream may have bytes: no read has returned nothing since its last event.
    pub(super) readable: bool,
    /// The stream is watched for room to write.
    pub(super) watches_room: bool,
    /// In the line for control packets; in the line for data.
    in_control: bool,
    in_data: bool,
}

/// See the module. Ids are never used twice, so a late event cannot reach a newer connection.
#[derive(Debug)]
pub(super) struct Table {
    links: HashMap<u64, Link>,
    by_ports: HashMap<Ports, u64>,
    control: VecDeque<u64>,
    data: VecDeque<u64>,
    next_host_port: u32,
    /// Connections not yet accepted by the host, with their timeouts. Ids ascend with time.
    awaited: BTreeMap<u64, Instant>,
    /// Number of connections dialled by the guest, by the host's port. There are as many entries as ports
    /// open to the guest.
    dialled_by_guest: BTreeMap<u32, usize>,
}

impl Table {
    /// Returns an empty table. Host ports start at `next_host_port`.
    pub(super) fn new(next_host_port: u32) -> Table {
        Table {
            links: HashMap::new(),
            by_ports: HashMap::new(),
            control: VecDeque::new(),
            data: VecDeque::new(),
            next_host_port: next_host_port.max(HOST_PORT_FIRST),
            awaited: BTreeMap::new(),
            dialled_by_guest: BTreeMap::new(),
        }
    }

    /// Returns the next host port.
    pub(super) fn next_host_port(&self) -> u32 {
        self.next_host_port
    }

    /// Returns true if there is no place for one more.
    pub(super) fn is_full(&self) -> bool {
        self.links.len() >= CONNECTIONS_MAX
    }

    /// Returns the number of the guest's dialled connections to this port of the host.
    pub(super) fn dialled_by_guest(&self, host_port: u32) -> usize {
        self.dialled_by_guest.get(&host_port).copied().unwrap_or_default()
    }

    /// Takes a host port not connected with `guest_port`.
    pub(super) fn take_host_port(&mut self, guest_port: u32) -> u32 {
        // At most CONNECTIONS_MAX are in use, of a thousand million.
        loop {
            let host = self.next_host_port;
            // u32::MAX is VMADDR_PORT_ANY.
            self.next_host_port = if host >= u32::MAX - 1 { HOST_PORT_FIRST } else { host + 1 };
            if !self.by_ports.contains_key(&Ports { guest: guest_port, host }) {
                return host;
            }
        }
    }

    /// Adds a connection of a host program. Its ports must be free. An owed packet is put in line.
    pub(super) fn insert(&mut self, id: u64, connection: Connection, stream: UnixStream) {
        self.insert_link(id, connection, Some(stream));
    }

    /// Adds a connection of the guest. Its ports must be free. The host must [`accept`](Self::accept) it by
    /// its id.
    pub(super) fn insert_awaited(&mut self, id: u64, connection: Connection, now: Instant) {
        self.awaited.insert(id, now + ACCEPT_WITHIN);
        self.insert_link(id, connection, None);
    }

    fn insert_link(&mut self, id: u64, connection: Connection, stream: Option<UnixStream>) {
        debug_assert!(!self.is_full(), "the caller asks first");
        self.by_ports.insert(connection.ports(), id);
        if connection.is_dialled_by_guest() {
            *self.dialled_by_guest.entry(connection.ports().host).or_default() += 1;
        }
        // Bytes may have come before the stream was watched.
        let link = Link {
            connection,
            stream,
            readable: true,
            watches_room: false,
            in_control: false,
            in_data: false,
        };
        self.links.insert(id, link);
        self.settle(id);
    }

    /// Returns true if the host has not accepted the connection yet.
    pub(super) fn is_awaited(&self, id: u64) -> bool {
        self.awaited.contains_key(&id)
    }

    /// Gives an awaited connection its stream, and the kept bytes to the stream. The caller must settle it.
    pub(super) fn accept(&mut self, id: u64, mut stream: UnixStream) {
        self.awaited.remove(&id);
        if let Some(link) = self.links.get_mut(&id) {
            link.connection.flush(&mut stream);
            link.stream = Some(stream);
        }
    }

    /// Returns true if the host has not accepted some connection yet.
    pub(super) fn awaits(&self) -> bool {
        !self.awaited.is_empty()
    }

    /// Returns the time until the next timeout of an awaited connection.
    pub(super) fn awaits_for(&self, now: Instant) -> Option<Duration> {
        self.awaited.values().next().map(|late| late.saturating_duration_since(now))
    }

    /// Resets awaited connections after their timeout.
    pub(super) fn give_up_awaited(&mut self, now: Instant) {
        while let Some(first) = self.awaited.first_entry().filter(|first| *first.get() <= now) {
            let (id, _) = first.remove_entry();
            if let Some(link) = self.links.get_mut(&id) {
                link.connection.reset();
                link.connection.host_gone();
            }
            self.settle(id);
        }
    }

    /// Returns the connection with these ports.
    pub(super) fn find(&self, ports: Ports) -> Option<u64> {
        self.by_ports.get(&ports).copied()
    }

    /// Returns a connection by id.
    pub(super) fn get_mut(&mut self, id: u64) -> Option<&mut Link> {
        self.links.get_mut(&id)
    }

    /// Must follow any change: shuts ended halves, removes a finished connection and puts the rest in line.
    pub(super) fn settle(&mut self, id: u64) {
        let Some(link) = self.links.get_mut(&id) else { return };
        link.close_ended_halves();
        if link.connection.left_by_host() {
            self.awaited.remove(&id);
        }
        if link.connection.left_by_guest() {
            // The ports may belong to a newer connection already.
            if self.by_ports.get(&link.connection.ports()) == Some(&id) {
                self.by_ports.remove(&link.connection.ports());
            }
            if link.stream.is_none() && !self.awaited.contains_key(&id) {
                return self.remove(id);
            }
        }
        // First, because it may find that credit must be requested.
        if link.may_send() && !link.in_data {
            link.in_data = true;
            self.data.push_back(id);
        }
        if link.connection.owes() && !link.in_control {
            link.in_control = true;
            self.control.push_back(id);
        }
    }

    /// Removes a connection and its places in line. Otherwise the lines could become longer than the table,
    /// if a guest opens and resets without end and gives no rx buffer.
    fn remove(&mut self, id: u64) {
        let Some(link) = self.links.remove(&id) else { return };
        if link.connection.is_dialled_by_guest()
            && let Some(count) = self.dialled_by_guest.get_mut(&link.connection.ports().host)
        {
            *count -= 1;
        }
        if link.in_control {
            self.control.retain(|&other| other != id);
        }
        if link.in_data {
            self.data.retain(|&other| other != id);
        }
    }

    /// Returns the connection of the next control packet, and takes it out of the line.
    pub(super) fn pop_control(&mut self) -> Option<u64> {
        let id = self.control.pop_front()?;
        if let Some(link) = self.links.get_mut(&id) {
            link.in_control = false;
        }
        Some(id)
    }

    /// Returns the next connection to send bytes, and takes it out of the line.
    pub(super) fn pop_data(&mut self) -> Option<u64> {
        let id = self.data.pop_front()?;
        if let Some(link) = self.links.get_mut(&id) {
            link.in_data = false;
        }
        Some(id)
    }

    /// Panics if there are more than `most` connections, if one keeps more than `bytes`, or if a line has
    /// more places than there are connections.
    pub(super) fn check(&self, most: usize, bytes: usize) {
        let count = self.links.len();
        assert!(count <= most, "{count} connections");
        assert!(self.by_ports.len() <= count && self.control.len() <= count && self.data.len() <= count);
        let kept = self.links.values().map(|link| link.connection.kept_bytes()).max();
        assert!(kept.is_none_or(|kept| kept <= bytes), "a connection keeps {kept:?} bytes");
    }

    /// Returns true if anything may be waiting for an rx buffer.
    pub(super) fn has_waiting(&self) -> bool {
        !self.control.is_empty() || !self.data.is_empty()
    }
}

impl Link {
    /// Returns true if a read from the host could be useful now.
    fn may_send(&mut self) -> bool {
        self.readable
            && self.stream.is_some()
            && self.connection.wants_host_bytes()
            && self.connection.credit() > 0
    }

    /// Shuts the ended halves of the stream, and closes it after both. If this fails, the host has already
    /// left the stream, and its event reports this.
    fn close_ended_halves(&mut self) {
        if self.connection.left_by_host() {
            self.stream = None;
            return;
        }
        let Some(stream) = &self.stream else { return };
        if self.connection.shuts_write_side() {
            let _left = stream.shutdown(std::net::Shutdown::Write);
        }
        if self.connection.shuts_read_side() {
            let _left = stream.shutdown(std::net::Shutdown::Read);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::virtio::vsock::packet::Op;

    fn add(table: &mut Table, id: u64, ports: Ports) -> UnixStream {
        let (ours, theirs) = UnixStream::pair().unwrap();
        table.insert(id, Connection::dialled_by_guest(ports), ours);
        theirs
    }

    #[test]
    fn host_ports_skip_those_in_use_and_begin_again() {
        let mut table = Table::new(u32::MAX - 1);
        let _host = add(&mut table, 1, Ports { guest: 5, host: HOST_PORT_FIRST });
        assert_eq!(table.take_host_port(5), u32::MAX - 1);
        assert_eq!(table.take_host_port(5), HOST_PORT_FIRST + 1);
        assert_eq!(Table::new(0).take_host_port(5), HOST_PORT_FIRST);
    }

    #[test]
    fn a_connection_that_is_over_leaves_no_place_in_line() {
        let mut table = Table::new(0);
        for id in 0..100 {
            let ports = Ports { guest: 5, host: 80 };
            let _host = add(&mut table, id, ports);
            assert!(table.has_waiting());
            table.get_mut(id).unwrap().connection.guest_reset();
            table.settle(id);
            assert!(!table.has_waiting() && table.find(ports).is_none() && table.links.is_empty());
            assert_eq!(table.dialled_by_guest(80), 0);
        }
    }

    #[test]
    fn a_stream_that_nobody_accepts_in_time_is_reset() {
        let mut table = Table::new(0);
        let (ports, start) = (Ports { guest: 5, host: 80 }, Instant::now());
        let late = start + ACCEPT_WITHIN;
        table.insert_awaited(1, Connection::dialled_by_guest(ports), start);
        table.get_mut(1).unwrap().connection.admit(4);
        table.get_mut(1).unwrap().connection.keep(b"word");
        table.insert_awaited(2, Connection::dialled_by_guest(ports), start + Duration::from_secs(1));
        assert_eq!(table.awaits_for(start), Some(ACCEPT_WITHIN));
        table.give_up_awaited(late);
        assert!(!table.is_awaited(1) && table.is_awaited(2));
        assert_eq!(table.get_mut(1).unwrap().connection.next_control(), Some((Op::Reset, 0)));
        table.settle(1);
        assert!(table.get_mut(1).is_none());
        assert_eq!((table.dialled_by_guest(80), table.awaits_for(late)), (1, Some(Duration::from_secs(1))));
    }

    #[test]
    fn a_connection_keeps_its_ports_until_the_guest_has_its_reset() {
        let mut table = Table::new(0);
        let ports = Ports { guest: 5, host: 80 };
        let _host = add(&mut table, 1, ports);
        table.get_mut(1).unwrap().connection.reset();
        table.settle(1);
        assert_eq!(table.find(ports), Some(1));
        assert_eq!(table.pop_control(), Some(1));
        assert_eq!(table.get_mut(1).unwrap().connection.next_control(), Some((Op::Reset, 0)));
        table.settle(1);
        assert_eq!(table.find(ports), None);
    }
}
