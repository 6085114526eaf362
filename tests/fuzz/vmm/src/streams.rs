//! A program of packets and of the host's acts at a vsock device's connections. It knows of each connection what its guest may
//! still send, and how many bytes it was given.

use std::collections::HashMap;
use std::io::{Read as _, Write as _};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use vmm_devices::virtio::vsock::HostPorts;
use vmm_devices::virtio::vsock::fuzz::Streams;

use crate::bytes::Bytes;
use crate::host::{GUEST_CID, HOST_PORTS};
use crate::{leftovers, requests};

/// Operations of one program.
const OPERATIONS_MAX: usize = 128;

/// Streams of the host's programs.
const DIALS_MAX: usize = 24;

/// The longest payload.
const PAYLOAD: usize = 0x1_0000;

/// Guest and host port.
type Ports = (u32, u32);

type Taken = Arc<Mutex<Vec<UnixStream>>>;

/// See the module.
struct Program {
    streams: Streams,
    address: SocketAddr,
    dialled: Vec<UnixStream>,
    taken: Taken,
    /// Bytes that the guest has room for, by its last word, and has been given.
    credit: HashMap<Ports, Credit>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Credit {
    room: u32,
    forwarded: u32,
    given: u32,
}

/// Runs the program that an input is, and fails where something does not hold.
pub fn run(input: &[u8]) {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let name = format!("podvisor-fuzz-mux-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
    let address = SocketAddr::from_abstract_name(name).expect("a short name");
    let listener = UnixListener::bind_addr(&address).expect("a listener");
    let taken = Taken::default();
    let takes = taken.clone();
    let of_host = address.clone();
    let guest_stream = move |port: u32, number: u64| {
        takes.lock().unwrap_or_else(PoisonError::into_inner).extend(accept(&of_host, number));
        port != HOST_PORTS[1]
    };
    let ports = HostPorts { agent: HOST_PORTS[..2].to_vec(), programs: Some(HOST_PORTS[2]) };
    let streams = Streams::new(GUEST_CID, listener, ports, Arc::new(guest_stream)).expect("descriptors");
    let mut program = Program { streams, address, dialled: Vec::new(), taken, credit: HashMap::new() };
    let mut input = Bytes::new(input);
    for _ in 0..OPERATIONS_MAX {
        if input.is_empty() {
            break;
        }
        program.operation(&mut input);
        program.streams.check();
    }
    drop(program);
    leftovers::check();
}

/// A dial for a stream of the guest's, which may be none.
pub fn accept(address: &SocketAddr, number: u64) -> Option<UnixStream> {
    let mut stream = UnixStream::connect_addr(address).ok()?;
    stream.write_all(format!("ACCEPT {number}\n").as_bytes()).ok()?;
    Some(stream)
}

impl Program {
    fn operation(&mut self, input: &mut Bytes<'_>) {
        match input.u8() % 16 {
            0..6 => self.receive(input),
            6..9 => self.send(input),
            9 | 10 => self.streams.proceed(),
            11 => self.dial(input),
            12 => self.flood(input),
            _ => self.use_stream(input),
        }
    }

    fn receive(&mut self, input: &mut Bytes<'_>) {
        let header = requests::packet_header(input);
        let word = |at: usize| u32::from_le_bytes(header[at..at + 4].try_into().expect("four bytes"));
        let length = (word(24) as usize).min(PAYLOAD);
        // Now and then the payload is shorter than the header says.
        let whole = input.u8() & 7 != 7;
        let packet = [&header[..], &vec![0x5a; if whole { length } else { length / 2 }]].concat();
        let is_known = (word(0), word(4), word(8), word(12), header[28]) == (GUEST_CID, 0, 2, 0, 1)
            && (header[29], header[31]) == (0, 0)
            && (1..8).contains(&header[30]);
        if self.streams.receive(&packet).is_some() && is_known {
            let ports = (word(16), word(20));
            // A new connection begins to count anew.
            if header[30] == 1 {
                self.credit.remove(&ports);
            }
            let credit = self.credit.entry(ports).or_default();
            (credit.room, credit.forwarded) = (word(36), word(40));
        }
    }

    fn send(&mut self, input: &mut Bytes<'_>) {
        let room = usize::from(input.u16());
        let Some(packet) = self.streams.send(room) else { return };
        let header = &packet[..44];
        let word = |at: usize| u32::from_le_bytes(header[at..at + 4].try_into().expect("four bytes"));
        // A reset goes back the way that a packet came, whoever it named.
        assert!(header[30] == 3 || (word(0), word(8)) == (2, GUEST_CID), "a packet of somebody else");
        assert_eq!(word(24) as usize, packet.len() - 44, "a length that is a lie");
        assert!((1..8).contains(&header[30]), "an operation that is none");
        let ports = (word(20), word(16));
        // REQUEST: the host's program has dialled.
        if header[30] == 1 {
            self.credit.remove(&ports);
        }
        if word(24) > 0 {
            let credit = self.credit.entry(ports).or_default();
            credit.given = credit.given.wrapping_add(word(24));
            let under_way = credit.given.wrapping_sub(credit.forwarded);
            assert!(under_way <= credit.room, "{under_way} bytes under way, and room for {}", credit.room);
        }
    }

    fn dial(&mut self, input: &mut Bytes<'_>) {
        let kind = input.u8();
        if self.dialled.len() >= DIALS_MAX {
            return;
        }
        let Ok(mut stream) = UnixStream::connect_addr(&self.address) else { return };
        let _ = stream.set_nonblocking(true);
        let line = format!("CONNECT {}\n", kind % 4);
        let _ = match kind {
            0..200 => stream.write(line.as_bytes()),
            200..220 => stream.write(format!("ACCEPT {}\n", kind % 32).as_bytes()),
            220..240 => stream.write(&line.as_bytes()[..5]),
            _ => stream.write(input.take(40)),
        };
        self.dialled.push(stream);
    }

    /// Many packets of data at one connection, which nobody reads.
    fn flood(&mut self, input: &mut Bytes<'_>) {
        let (ports, count) = (input.u8(), input.u8() % 24);
        let data = [0, ports, 5, 0xff, 0xff, 0];
        let header = requests::packet_header(&mut Bytes::new(&data));
        let packet = [&header[..], &vec![0x5a; 0xffff]].concat();
        for _ in 0..count {
            let _ = self.streams.receive(&packet);
            self.streams.check();
        }
    }

    fn use_stream(&mut self, input: &mut Bytes<'_>) {
        let (choice, what) = (input.below(2), input.u8());
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let streams = if choice == 0 { &mut self.dialled } else { &mut *taken };
        if streams.is_empty() {
            return;
        }
        let at = usize::from(what >> 3) % streams.len();
        let stream = &mut streams[at];
        let _ = stream.set_nonblocking(true);
        let mut bytes = vec![what; usize::from(input.u16())];
        match what % 8 {
            0..3 => drop(stream.write(&bytes)),
            3 | 4 => drop(stream.read(&mut bytes)),
            5 => drop(stream.shutdown(std::net::Shutdown::Write)),
            6 => drop(stream.shutdown(std::net::Shutdown::Read)),
            _ => drop(streams.swap_remove(at)),
        }
    }
}
