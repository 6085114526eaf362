//! A guest with one vsock device: sends and receives whole packets, and keeps the count of nothing else.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use tempfile::TempDir;
use virtio_queue::Queue;
use vm_memory::{Bytes, GuestAddress, GuestRegionMmap};
use vmm_sys_util::eventfd::{EFD_NONBLOCK, EventFd};

use super::super::device::Vsock;
use super::super::dial_rules::HostPorts;
use super::super::packet::{HEADER_BYTES, HOST_CID, Header, Op, TYPE_STREAM};
use super::driver::{Descriptor, DriverQueue, NEXT, RING_BYTES, SIZE, WRITE};
use crate::virtio::{Activation, GuestMemory, Interrupt, VirtioDevice};

pub(super) const CID: u32 = 3;
pub(super) const CREDIT: u32 = 64 * 1024;

/// Ports open to the guest.
pub(super) const HOST_PORTS: [u32; 5] = [6, 79, 80, 1025, 9001];
/// The port for programs of containers.
pub(super) const PROGRAM_PORT: u32 = 1026;

const RX_BUFFERS: u64 = 0x10_0000;
pub(super) const RX_BUFFER_BYTES: u64 = 0x1000;
const EVENT_BUFFERS: u64 = 0x20_0000;
pub(super) const TX_BUFFERS: u64 = 0x40_0000;
const TX_BUFFER_BYTES: u64 = 0x1_1000;
const TX_SLOTS: u16 = SIZE / 2;
pub(super) const MEMORY_BYTES: usize = 0x100_0000;

/// Ends a test waiting in vain.
const PATIENCE: Duration = Duration::from_secs(20);

/// Counts interrupts, so a test can wait for one.
#[derive(Debug, Default)]
pub(super) struct Interrupts {
    count: Mutex<u64>,
    raised: Condvar,
}

impl Interrupt for Interrupts {
    fn used_buffer(&self) -> io::Result<()> {
        *self.count.lock().unwrap() += 1;
        self.raised.notify_all();
        Ok(())
    }

    fn config_changed(&self, _config: &[u8]) -> io::Result<()> {
        Ok(())
    }
}

/// See the module.
pub(super) struct Guest {
    pub(super) device: Vsock,
    pub(super) memory: GuestMemory,
    pub(super) queues: [DriverQueue; 3],
    pub(super) interrupts: Arc<Interrupts>,
    pub(super) kicks: [EventFd; 3],
    /// Ports and numbers of the guest's streams not yet accepted by the host. The guest may dial
    /// [`HOST_PORTS`], but those from 9000 on are refused in the end.
    pub(super) announced: Announced,
    features: u64,
    tx_free: Vec<u16>,
    directory: TempDir,
}

impl Guest {
    /// A guest before its driver's start.
    pub(super) fn asleep(features: u64) -> Guest {
        let ram = GuestRegionMmap::from_range(GuestAddress(0), MEMORY_BYTES, None).unwrap();
        let memory = GuestMemory::new(vec![ram]).unwrap();
        let directory = tempfile::tempdir().unwrap();
        let announced = Announced::default();
        let queues = [0, 1, 2].map(|number| DriverQueue::new(&memory, number * RING_BYTES));
        let guest = Guest {
            device: device(&directory, &announced),
            memory,
            queues,
            interrupts: Arc::default(),
            kicks: [0; 3].map(|_| EventFd::new(EFD_NONBLOCK).unwrap()),
            announced,
            features,
            tx_free: (0..TX_SLOTS).collect(),
            directory,
        };
        for index in 0..SIZE {
            let address = RX_BUFFERS + u64::from(index) * RX_BUFFER_BYTES;
            let length = RX_BUFFER_BYTES as u32;
            guest.queues[0].describe(index, Descriptor { address, length, flags: WRITE, next: 0 });
            let address = EVENT_BUFFERS + u64::from(index) * 4;
            guest.queues[2].describe(index, Descriptor { address, length: 4, flags: WRITE, next: 0 });
        }
        guest
    }

    /// A guest with a started driver, all its rx buffers given, and eight event buffers.
    pub(super) fn awake() -> Guest {
        let mut guest = Guest::asleep(1 << 29);
        guest.give_rx(0..SIZE);
        for index in 0..8 {
            guest.queues[2].offer(index);
        }
        guest.start();
        guest
    }

    pub(super) fn start(&mut self) {
        let queues = self.queues.each_ref().map(DriverQueue::device_side).into();
        self.activate(queues);
    }

    pub(super) fn activate(&mut self, queues: Vec<Queue>) {
        let activation = Activation {
            memory: self.memory.clone(),
            queues,
            queue_events: self.kicks.each_ref().map(|kick| kick.try_clone().unwrap()).into(),
            interrupt: self.interrupts.clone(),
            features: self.features,
        };
        self.device.activate(activation).unwrap();
    }

    /// Puts another device in the place of this one, as a restored VM would have it.
    pub(super) fn replace_device(&mut self) {
        self.directory = tempfile::tempdir().unwrap();
        self.device = device(&self.directory, &self.announced);
    }

    pub(super) fn give_rx(&mut self, indices: std::ops::Range<u16>) {
        for index in indices {
            self.queues[0].offer(index);
        }
        self.kick(0);
    }

    pub(super) fn kick(&self, queue: usize) {
        self.kicks[queue].write(1).unwrap();
    }

    /// Waits until `done` gives something, looking again after each interrupt.
    pub(super) fn wait_for<T>(&mut self, what: &str, mut done: impl FnMut(&mut Guest) -> Option<T>) -> T {
        let interrupts = self.interrupts.clone();
        loop {
            let before = *interrupts.count.lock().unwrap();
            if let Some(value) = done(self) {
                return value;
            }
            let count = interrupts.count.lock().unwrap();
            let waited = interrupts.raised.wait_timeout_while(count, PATIENCE, |count| *count == before);
            assert!(!waited.unwrap().1.timed_out(), "waited for {what}");
        }
    }

    /// Returns a tx slot and the address of its header; its descriptors are `2 * slot` and the next.
    pub(super) fn tx_slot(&mut self) -> (u16, u64) {
        let slot = self.wait_for("a tx slot", |guest| {
            while let Some((head, _)) = guest.queues[1].take_used() {
                guest.tx_free.push(head / 2);
            }
            guest.tx_free.pop()
        });
        (slot, TX_BUFFERS + u64::from(slot % 128) * TX_BUFFER_BYTES % 0xc0_0000)
    }

    /// Sends a packet: header and payload in a buffer each, as Linux does.
    pub(super) fn send(&mut self, header: Header, payload: &[u8]) {
        let (slot, address) = self.tx_slot();
        self.memory.writable().write_slice(&header.to_bytes(), GuestAddress(address)).unwrap();
        self.memory.writable().write_slice(payload, GuestAddress(address + 64)).unwrap();
        let flags = if payload.is_empty() { 0 } else { NEXT };
        let head = Descriptor { address, length: HEADER_BYTES as u32, flags, next: slot * 2 + 1 };
        self.queues[1].describe(slot * 2, head);
        let body = Descriptor { address: address + 64, length: payload.len() as u32, flags: 0, next: 0 };
        self.queues[1].describe(slot * 2 + 1, body);
        self.queues[1].offer(slot * 2);
        self.kick(1);
    }

    /// Returns the packet in the next used rx buffer, if there is one. The buffer goes back at once.
    pub(super) fn try_receive(&mut self) -> Option<(Header, Vec<u8>)> {
        let packet = self.peek_receive()?;
        self.give_rx(packet.2..packet.2 + 1);
        Some((packet.0, packet.1))
    }

    /// Returns the packet in the next used rx buffer, and the buffer's index. The buffer stays with the
    /// guest.
    pub(super) fn peek_receive(&mut self) -> Option<(Header, Vec<u8>, u16)> {
        let (index, length) = self.queues[0].take_used()?;
        let mut bytes = vec![0; length as usize];
        let address = RX_BUFFERS + u64::from(index) * RX_BUFFER_BYTES;
        self.memory.writable().read_slice(&mut bytes, GuestAddress(address)).unwrap();
        let header = Header::parse(bytes[..HEADER_BYTES].try_into().unwrap());
        assert_eq!(header.len as usize, length as usize - HEADER_BYTES, "{header:?}");
        Some((header, bytes.split_off(HEADER_BYTES), index))
    }

    pub(super) fn receive(&mut self) -> (Header, Vec<u8>) {
        self.wait_for("a packet", Guest::try_receive)
    }

    /// Receives the next packet. It must be this control packet.
    pub(super) fn receive_op(&mut self, op: Op) -> Header {
        let (header, payload) = self.receive();
        assert_eq!(Op::from_wire(header.op), Some(op), "{header:?}");
        assert!(payload.is_empty());
        header
    }

    /// Data packets until `count` bytes have come; other packets are not expected.
    pub(super) fn receive_bytes(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        while bytes.len() < count {
            let (header, payload) = self.receive();
            assert_eq!(Op::from_wire(header.op), Some(Op::Data), "{header:?}");
            bytes.extend(payload);
        }
        bytes
    }

    /// A host program that has dialled and asked for `port`.
    pub(super) fn dial(&self, port: u32) -> UnixStream {
        self.dial_with(&format!("CONNECT {port}"))
    }

    fn dial_with(&self, line: &str) -> UnixStream {
        let mut stream = UnixStream::connect(self.directory.path().join("vsock")).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        writeln!(stream, "{line}").unwrap();
        stream
    }

    /// An open connection: the host program's stream, and a header for the guest's packets.
    pub(super) fn connect(&mut self, port: u32) -> (UnixStream, Header) {
        let mut stream = self.dial(port);
        let request = self.receive_op(Op::Request);
        assert_eq!((request.dst_cid, request.dst_port), (u64::from(CID), port));
        let answer = packet(Op::Response, port, request.src_port);
        self.send(answer, &[]);
        assert_eq!(read_line(&mut stream), format!("OK {}\n", request.src_port));
        (stream, answer)
    }

    /// A connection opened by the guest: its number, and a header for the guest's packets.
    pub(super) fn open_from_guest(&mut self, guest_port: u32, host_port: u32) -> (u64, Header) {
        let request = packet(Op::Request, guest_port, host_port);
        self.send(request, &[]);
        self.receive_op(Op::Response);
        let (port, number) = self.announced.lock().unwrap().pop_front().unwrap();
        assert_eq!(port, host_port);
        (number, request)
    }

    /// A connection opened by the guest and accepted by the host.
    pub(super) fn connect_from_guest(&mut self, guest_port: u32, host_port: u32) -> (UnixStream, Header) {
        let (number, request) = self.open_from_guest(guest_port, host_port);
        (self.accept(number), request)
    }

    /// A host program that has asked for the stream with this number.
    pub(super) fn accept(&self, number: u64) -> UnixStream {
        self.dial_with(&format!("ACCEPT {number}"))
    }
}

/// Ports and numbers.
type Announced = Arc<Mutex<VecDeque<(u32, u64)>>>;

fn device(directory: &TempDir, announced: &Announced) -> Vsock {
    let listener = UnixListener::bind(directory.path().join("vsock")).unwrap();
    let announced = announced.clone();
    let take = move |port, number| {
        let wanted = port < 9000;
        if wanted {
            announced.lock().unwrap().push_back((port, number));
        }
        wanted
    };
    let host_ports = HostPorts { agent: HOST_PORTS.into(), programs: Some(PROGRAM_PORT) };
    Vsock::new(CID, listener, host_ports, Arc::new(take)).unwrap()
}

/// A packet from the guest, with room for [`CREDIT`] bytes.
pub(super) fn packet(op: Op, guest_port: u32, host_port: u32) -> Header {
    Header {
        src_cid: u64::from(CID),
        dst_cid: HOST_CID,
        src_port: guest_port,
        dst_port: host_port,
        kind: TYPE_STREAM,
        op: op.to_wire(),
        buf_alloc: CREDIT,
        ..Header::default()
    }
}

/// `header` as another packet of the same connection.
pub(super) fn with_op(header: Header, op: Op) -> Header {
    Header { op: op.to_wire(), ..header }
}

/// Returns `header` as a packet with `length` bytes.
pub(super) fn data(header: Header, length: usize) -> Header {
    Header { len: length as u32, ..with_op(header, Op::Data) }
}

pub(super) fn read_line(stream: &mut UnixStream) -> String {
    let mut line = Vec::new();
    while line.last() != Some(&b'\n') {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        line.push(byte[0]);
    }
    String::from_utf8(line).unwrap()
}

/// Bytes differing from place to place, to detect a gap or a swap.
pub(super) fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at % 251) as u8 ^ (at / 251) as u8).collect()
}
