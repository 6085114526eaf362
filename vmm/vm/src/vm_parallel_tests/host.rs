//! The host beside a parallel guest: the devices plugged by it, and its acts meanwhile.

use std::io::{Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use nix::sched::{CloneFlags, unshare};
use vmm_devices::virtio::fs::{Cache, Share, ShareLink, ShareServer};

use super::script::{Random, SECTORS, disorderly_slots, orderly_slot};
use super::*;

/// Streams of the host's programs at once.
const STREAMS_MAX: usize = 16;

/// Context id of all guests here.
const GUEST_CID: u32 = 3;

/// Bytes of a disk without order.
const DISK_BYTES: u64 = 32 * 512;

/// An act of the host.
#[derive(Clone, Copy, Debug)]
pub(super) enum Act {
    /// Pauses, gives the disorderly vCPUs something else to do, and resumes.
    Rescript,
    Pause,
    /// Takes the device out of a slot, or puts one in.
    Turn(Slot),
    Resize(u64),
    Dial(u32),
    UseStream(u64),
    Look,
}

/// See the module.
pub(super) struct Host {
    address: SocketAddr,
    listener: UnixListener,
    streams: Vec<UnixStream>,
    taken: Arc<Mutex<Vec<UnixStream>>>,
    directory: PathBuf,
    tap: Option<OwnedFd>,
}

/// The disk with a known content.
pub(super) fn orderly_disk() -> Device<OwnedFd> {
    let mut image = file(0);
    for sector in 0..SECTORS {
        image.write_all(&[sector + 1; 512]).unwrap();
    }
    Device::Blk { image: image.into(), read_only: true }
}

/// A tap in a network of its own. `None` where this process may not make one.
fn tap() -> Option<OwnedFd> {
    nix::ioctl_write_ptr_bad!(
        set_interface,
        nix::request_code_write!(b'T', 202, size_of::<libc::c_int>()),
        libc::ifreq
    );
    let made = std::thread::spawn(|| {
        unshare(CloneFlags::CLONE_NEWNET).ok()?;
        let tap = File::options().read(true).write(true).open("/dev/net/tun").ok()?;
        // SAFETY: an interface request is numbers and bytes, and all of them may be zero.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        request.ifr_ifru.ifru_flags = (libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_VNET_HDR) as i16;
        // SAFETY: the descriptor is open, and the request has the form for TUNSETIFF to read and write.
        unsafe { set_interface(tap.as_raw_fd(), &raw const request) }.ok()?;
        Some(OwnedFd::from(tap))
    });
    made.join().unwrap()
}

impl Host {
    pub(super) fn new(seed: u64) -> Host {
        let name = format!("podvisor-parallel-{}-{seed}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let directory = std::env::temp_dir().join(name);
        std::fs::create_dir(&directory).unwrap();
        std::fs::write(directory.join("file"), "content").unwrap();
        let tap = tap();
        if tap.is_none() {
            eprintln!("without an interface: this process may not make a tap");
        }
        let listener = UnixListener::bind_addr(&address).unwrap();
        Host { listener, address, streams: Vec::new(), taken: Arc::default(), directory, tap }
    }

    /// The parts of a VMM in reach of devices.
    pub(super) fn backends(&self) -> Backends {
        let (taken, address) = (self.taken.clone(), self.address.clone());
        let share = Share::open(self.directory.to_str().unwrap(), 4096, Cache::Auto).unwrap();
        let (link, theirs) = ShareLink::pair().unwrap();
        std::thread::spawn(move || ShareServer::new(theirs).run(share).unwrap());
        link.wait_until_ready(10_000).unwrap();
        Backends {
            guest_stream: Arc::new(move |_, number| {
                let mut taken = taken.lock().unwrap_or_else(PoisonError::into_inner);
                let room = taken.len() < STREAMS_MAX;
                if room && let Ok(mut stream) = UnixStream::connect_addr(&address) {
                    stream.write_all(format!("ACCEPT {number}\n").as_bytes()).unwrap();
                    taken.push(stream);
                }
                room
            }),
            share: Some(link),
            full_disks: FullDisks::new().unwrap(),
        }
    }

    /// A device for a slot. `None` where this process may not make one.
    pub(super) fn device(&self, slot: Slot) -> Option<Device<OwnedFd>> {
        Some(match slot {
            slot if slot == orderly_slot() => orderly_disk(),
            Slot::SCRATCH => Device::Blk { image: file(DISK_BYTES).into(), read_only: false },
            Slot::RNG => Device::Rng,
            Slot::BALLOON => Device::Balloon,
            Slot::FS => Device::Fs { tag: "podvisor".into() },
            Slot::ROOT => Device::Pmem { image: file(layout::LARGE_PAGE).into() },
            Slot::VSOCK => Device::Vsock {
                listener: self.listener.try_clone().unwrap().into(),
                guest_cid: GUEST_CID,
                host_ports: vec![1024],
                program_port: Some(1026),
            },
            _ => Device::Net {
                tap: self.tap.as_ref()?.try_clone().unwrap(),
                mac: [2, 0, 0, 0, 0, 1],
                mtu: 1500,
            },
        })
    }

    /// Fills all slots but that for memory.
    pub(super) fn plug_all(&self, vm: &mut Vm) {
        for (slot, _) in disorderly_slots() {
            if slot != Slot::MEM
                && let Some(device) = self.device(slot)
            {
                vm.plug(slot, device).unwrap();
            }
        }
    }

    /// Decides what comes next.
    pub(super) fn choose(&self, grows: bool, random: &mut Random) -> Act {
        let slots = disorderly_slots();
        let slot = [Slot::ROOT, slots[random.below(6) as usize].0][usize::from(random.below(8) > 0)];
        match random.below(10) {
            0 | 1 => Act::Rescript,
            2 => Act::Pause,
            3..6 => Act::Turn(slot),
            6 if grows => Act::Resize(crate::RAM_MIN + (random.below(17) << 21)),
            6 | 7 => Act::UseStream(random.next()),
            8 => Act::Dial(random.below(4) as u32),
            _ => Act::Look,
        }
    }

    /// Does it.
    pub(super) fn act(&mut self, act: Act, vm: &mut Vm) {
        match act {
            Act::Rescript => {}
            Act::Pause => {
                vm.pause().unwrap();
                vm.resume().unwrap();
            }
            Act::Turn(slot) => {
                if vm.unplug(slot).is_err()
                    && let Some(device) = self.device(slot)
                {
                    vm.plug(slot, device).unwrap();
                }
            }
            Act::Resize(bytes) => vm.resize(bytes).unwrap(),
            Act::Dial(port) => self.dial(port),
            Act::UseStream(choice) => self.use_stream(choice),
            Act::Look => {
                let stats = vm.device_stats();
                assert_eq!(stats.len(), vm.filled_slots().len());
            }
        }
    }

    fn dial(&mut self, port: u32) {
        if self.streams.len() < STREAMS_MAX
            && let Ok(mut stream) = UnixStream::connect_addr(&self.address)
        {
            let _ = stream.set_nonblocking(true);
            let _ = stream.write_all(format!("CONNECT {port}\n").as_bytes());
            self.streams.push(stream);
        }
    }

    fn use_stream(&mut self, choice: u64) {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let streams = if choice & 1 == 0 { &mut self.streams } else { &mut *taken };
        if streams.is_empty() {
            return;
        }
        let at = (choice >> 8) as usize % streams.len();
        let _ = streams[at].set_nonblocking(true);
        match choice >> 1 & 3 {
            0 => drop(streams[at].write(&[b'x'; 3000])),
            1 => drop(streams[at].read(&mut [0; 8192])),
            2 => drop(streams[at].shutdown(std::net::Shutdown::Write)),
            _ => drop(streams.swap_remove(at)),
        }
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}
