//! The host's side of each device: what lies behind it, what the host sends into it, and what may come out.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::fs::FileExt as _;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockType, recv, send, socketpair};
use vmm_devices::virtio::balloon::Balloon;
use vmm_devices::virtio::blk::{Blk, FullDisks};
use vmm_devices::virtio::mem::{BLOCK_BYTES, Mem, MemHandle};
use vmm_devices::virtio::pmem::Pmem;
use vmm_devices::virtio::rng::Rng;
use vmm_devices::virtio::vsock::{HostPorts, Vsock};
use vmm_devices::virtio::{GuestMemory, VirtioDevice};

use crate::bytes::Bytes;
use crate::memory::{IMAGE, Memory, ROOM};
use crate::share::Tree;

/// The kinds of devices, which are the numbers of slots too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Kind {
    Blk,
    Net,
    Vsock,
    Rng,
    Balloon,
    Fs,
    Pmem,
    Mem,
}

/// All kinds, in the order of their slots.
pub const KINDS: [Kind; 8] =
    [Kind::Blk, Kind::Net, Kind::Vsock, Kind::Rng, Kind::Balloon, Kind::Fs, Kind::Pmem, Kind::Mem];

/// Bytes of the disk that the guest may use, and of the file: the last part is no whole sector.
pub const DISK_BYTES: u64 = 32 * 512;
const DISK_FILE_BYTES: u64 = DISK_BYTES + 100;

/// The byte that a new disk is full of.
const DISK_BYTE: u8 = 0xa5;

/// Programs of the host that dial in one run.
const DIALS_MAX: usize = 16;

/// The guest's context id.
pub const GUEST_CID: u32 = 3;

/// Ports of the host that the guest may dial.
pub const HOST_PORTS: [u32; 3] = [1024, 1025, 1026];

/// See the module.
#[derive(Debug)]
pub struct Host {
    memory: GuestMemory,
    disk: File,
    read_only: bool,
    full_disks: FullDisks,
    wire: Option<OwnedFd>,
    listener: UnixListener,
    address: SocketAddr,
    dialled: Vec<UnixStream>,
    taken: Arc<Mutex<Vec<UnixStream>>>,
    tree: Option<Tree>,
    plug: Option<MemHandle>,
}

fn disk() -> File {
    let file = rustix::fs::memfd_create("disk", rustix::fs::MemfdFlags::CLOEXEC).expect("a file in memory");
    let file = File::from(file);
    file.write_all_at(&[DISK_BYTE; DISK_FILE_BYTES as usize], 0).expect("room for a disk");
    file
}

impl Host {
    /// The host of a VM with `memory`.
    #[must_use]
    pub fn new(memory: &GuestMemory, read_only: bool) -> Host {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let name = format!("podvisor-fuzz-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let address = SocketAddr::from_abstract_name(name).expect("a short name");
        Host {
            memory: memory.clone(),
            disk: disk(),
            read_only,
            full_disks: FullDisks::new().expect("an event"),
            wire: None,
            listener: UnixListener::bind_addr(&address).expect("a listener"),
            address,
            dialled: Vec::new(),
            taken: Arc::default(),
            tree: None,
            plug: None,
        }
    }

    /// Makes a device. `None` if this process may not.
    pub fn make(&mut self, kind: Kind) -> Option<Box<dyn VirtioDevice>> {
        Some(match kind {
            Kind::Blk => {
                let disk = self.disk.try_clone().expect("a descriptor");
                Box::new(Blk::new(disk, self.read_only, &self.full_disks).expect("a disk"))
            }
            Kind::Net => {
                let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
                let (here, there) =
                    socketpair(AddressFamily::Unix, SockType::SeqPacket, None, flags).expect("a wire");
                self.wire = Some(here);
                Box::new(vmm_devices::virtio::net::fuzz::over_socket(there, [2, 0, 0, 0, 0, 1], 1500))
            }
            Kind::Vsock => {
                let listener = self.listener.try_clone().expect("a descriptor");
                let (taken, address) = (self.taken.clone(), self.address.clone());
                let guest_stream = move |_port, number| {
                    let stream = crate::streams::accept(&address, number);
                    taken.lock().unwrap_or_else(PoisonError::into_inner).extend(stream);
                    true
                };
                let ports = HostPorts { agent: HOST_PORTS[..2].to_vec(), programs: Some(HOST_PORTS[2]) };
                Box::new(
                    Vsock::new(GUEST_CID, listener, ports, Arc::new(guest_stream)).expect("a context id"),
                )
            }
            Kind::Rng => Box::new(Rng::new()),
            Kind::Balloon => Box::new(Balloon::new()),
            Kind::Fs => {
                if self.tree.is_none() {
                    self.tree = Some(Tree::new(Memory::get().mark())?);
                }
                Box::new(self.tree.as_ref()?.device())
            }
            Kind::Pmem => Box::new(Pmem::new(IMAGE.0, IMAGE.1 as u64)),
            Kind::Mem => {
                let settled =
                    EventFd::from_flags(EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC).expect("an event");
                let device = Mem::new(Memory::get().room(), self.memory.clone(), Arc::new(settled));
                self.plug = Some(device.handle());
                Box::new(device)
            }
        })
    }

    /// Asks for another amount of plugged memory.
    pub fn resize(&mut self, input: &mut Bytes<'_>) {
        let (requested, usable) = (u64::from(input.u8() % 5), u64::from(input.u8() % 5));
        if let Some(plug) = &self.plug {
            plug.request(requested * BLOCK_BYTES, usable * BLOCK_BYTES);
            assert!(plug.plugged_bytes() <= ROOM.1 as u64, "more is plugged than there is");
        }
    }

    /// Sends a frame, header first.
    pub fn send_frame(&mut self, input: &mut Bytes<'_>) {
        let mut frame = vec![0; usize::from(input.u16() % 2000)];
        let begin = input.take(32);
        let known = begin.len().min(frame.len());
        frame[..known].copy_from_slice(&begin[..known]);
        if let Some(wire) = &self.wire {
            let _ = send(wire.as_raw_fd(), &frame, MsgFlags::MSG_DONTWAIT);
        }
    }

    /// Dials a port of the guest, or writes something else.
    pub fn dial(&mut self, input: &mut Bytes<'_>) {
        let kind = input.u8();
        if self.dialled.len() >= DIALS_MAX {
            return;
        }
        let Ok(mut stream) = UnixStream::connect_addr(&self.address) else { return };
        let _ = stream.set_nonblocking(true);
        let line = match kind {
            0..240 => format!("CONNECT {}\n", kind % 4).into_bytes(),
            _ => input.take(40).to_vec(),
        };
        let _ = stream.write_all(&line);
        self.dialled.push(stream);
    }

    /// Does something with one stream: writes, reads, shuts a side, or hangs up.
    pub fn use_stream(&mut self, input: &mut Bytes<'_>) {
        let (choice, what) = (input.below(2), input.u8());
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let streams = if choice == 0 { &mut self.dialled } else { &mut *taken };
        if streams.is_empty() {
            return;
        }
        let at = usize::from(what >> 3) % streams.len();
        let stream = &mut streams[at];
        let _ = stream.set_nonblocking(true);
        match what % 8 {
            0..3 => drop(stream.write(&vec![what; usize::from(input.u16())])),
            3 | 4 => read_all(stream),
            5 => drop(stream.shutdown(std::net::Shutdown::Write)),
            6 => drop(stream.shutdown(std::net::Shutdown::Read)),
            _ => drop(streams.swap_remove(at)),
        }
    }

    /// Looks at all that came out, and at what no device may have changed. The devices are gone.
    pub fn check(mut self) {
        let memory = Memory::get();
        while let Some(wire) = &self.wire {
            let mut frame = vec![0; 0x1_2000];
            match recv(wire.as_raw_fd(), &mut frame, MsgFlags::MSG_DONTWAIT) {
                Ok(length) if length > 0 => memory.check_output(&frame[..length]),
                _ => break,
            }
        }
        let mut taken = std::mem::take(&mut *self.taken.lock().unwrap_or_else(PoisonError::into_inner));
        for stream in self.dialled.iter_mut().chain(&mut taken) {
            let _ = stream.set_nonblocking(true);
            read_all(stream);
        }
        self.check_disk();
        if let Some(tree) = &self.tree {
            tree.check();
        }
        assert_eq!(self.full_disks.count(), 0, "a disk waits for room that is gone");
    }

    fn check_disk(&self) {
        let mut content = vec![0; DISK_FILE_BYTES as usize + 1];
        let length = self.disk.read_at(&mut content, 0).expect("a file in memory");
        assert_eq!(length as u64, DISK_FILE_BYTES, "the disk has another length");
        content.truncate(length);
        Memory::get().check_output(&content);
        let kept = if self.read_only { 0 } else { DISK_BYTES as usize };
        assert!(
            content[kept..].iter().all(|byte| *byte == DISK_BYTE),
            "bytes were written that are no part of the disk"
        );
    }
}

fn read_all(stream: &mut UnixStream) {
    let mut bytes = vec![0; 0x4000];
    while let Ok(length) = stream.read(&mut bytes)
        && length > 0
    {
        Memory::get().check_output(&bytes[..length]);
    }
}
