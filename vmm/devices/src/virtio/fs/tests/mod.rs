//! A driver speaking FUSE, well and badly, to a share over a directory of the test's own.

mod at_once;
mod attributes;
mod cache;
mod content;
mod list;
mod locks;

use std::fs;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::sync::Arc;

use fuse_backend_rs::abi::fuse_abi::{ATTR_SUBMOUNT, FsOptions, Opcode};
use proptest::prelude::*;
use virtio_queue::QueueT as _;
use vmm_sys_util::eventfd::EventFd;

use super::*;
use crate::virtio::testing::{
    Driver, IMAGE, Line, WRITE, activation, entries, heads, image, image_content, memory,
};
use crate::virtio::{GuestMemory, VirtioDevice as _};

const REQUEST: u64 = 0x2_0000;
const REPLY: u64 = 0x8_0000;
const REPLY_BYTES: u32 = 0x1_0000;
const ROOT: u64 = 1;

/// Bytes of the headers of requests and replies (`fuse_in_header`, `fuse_out_header`).
const HEADER: usize = 40;
const REPLY_HEADER: usize = 16;
/// Offset of `fuse_attr` in `fuse_entry_out`, and of `ino`, `size`, `mode` and `flags` in the former.
const ATTR: usize = 40;
const INO: usize = ATTR;
const SIZE: usize = ATTR + 8;
const MODE: usize = ATTR + 60;
const FLAGS: usize = ATTR + 84;

struct Guest {
    device: Fs,
    memory: GuestMemory,
    drivers: [Driver; 2],
    line: Arc<Line>,
    kicks: Vec<EventFd>,
    dir: tempfile::TempDir,
    /// User and group of requests.
    caller: (u32, u32),
}

/// A link to a share over `root`, served by threads of this process until the link ends.
fn link(root: &Path, descriptors_max: i32) -> ShareLink {
    link_with(root, descriptors_max, Cache::Auto)
}

fn link_with(root: &Path, descriptors_max: i32, cache: Cache) -> ShareLink {
    let share = Share::open(root.to_str().unwrap(), descriptors_max, cache).unwrap();
    let (link, theirs) = ShareLink::pair().unwrap();
    std::thread::spawn(move || ShareServer::new(theirs).run(share).unwrap());
    link.wait_until_ready(10_000).unwrap();
    link
}

fn serve(root: &Path, descriptors_max: i32) -> Fs {
    Fs::new("tag", link(root, descriptors_max)).unwrap()
}

impl Guest {
    /// A driver with a mounted directory and `file` in it.
    fn new() -> Guest {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("file"), "content").unwrap();
        fs::create_dir(dir.path().join("sub")).unwrap();
        let device = serve(dir.path(), i32::MAX);
        Guest::over(device, dir)
    }

    fn over(device: Fs, dir: tempfile::TempDir) -> Guest {
        let memory = memory();
        let drivers = [Driver::new(&memory, 0), Driver::new(&memory, 1)];
        let mut guest =
            Guest { device, memory, drivers, line: Line::new(), kicks: Vec::new(), dir, caller: (0, 0) };
        guest.activate(None);
        guest.mount();
        guest
    }

    fn activate(&mut self, queues: Option<Vec<virtio_queue::Queue>>) {
        let queues = queues.unwrap_or_else(|| self.drivers.iter().map(Driver::queue).collect());
        let (activation, kicks) = activation(&self.memory, queues, &self.line, 0);
        self.device.activate(activation).unwrap();
        self.kicks = kicks;
    }

    /// As a guest kernel at its next boot: the device reset, empty queues, the share mounted again.
    fn start_over(&mut self) {
        self.device.reset();
        for driver in &mut self.drivers {
            driver.forget();
        }
        self.drivers = [Driver::new(&self.memory, 0), Driver::new(&self.memory, 1)];
        self.activate(None);
        self.mount();
    }

    fn mount(&mut self) -> Vec<u8> {
        self.mount_offering(FsOptions::all().bits() as u32, 0)
    }

    /// Mounts with the lower and the upper half of the driver's offers. Returns the share's answer.
    fn mount_offering(&mut self, flags: u32, flags2: u32) -> Vec<u8> {
        let mut init = Vec::new();
        for word in [7u32, 38, 0x2_0000, flags, flags2] {
            init.extend(word.to_le_bytes());
        }
        init.resize(64, 0);
        self.ask(Opcode::Init, 0, &init).unwrap()
    }

    /// Mounts again. Returns the options of both the share and the driver.
    fn mount_options(&mut self) -> FsOptions {
        let answer = self.mount();
        FsOptions::from_bits_truncate(u64::from(le32(&answer, 12)))
    }

    /// Sends one request; gives the answer's body, or its error number.
    fn ask(&mut self, opcode: Opcode, node: u64, body: &[u8]) -> Result<Vec<u8>, i32> {
        let mut message = message(opcode as u32, node, body);
        message[24..28].copy_from_slice(&self.caller.0.to_le_bytes());
        message[28..32].copy_from_slice(&self.caller.1.to_le_bytes());
        let written = self.send(&message, &[(REPLY, REPLY_BYTES, WRITE)]) as usize;
        assert!(written >= REPLY_HEADER, "an answer to {}", opcode as u32);
        let header = self.drivers[1].read::<REPLY_HEADER>(REPLY);
        assert_eq!(le32(&header, 0) as usize, written);
        match le32(&header, 4) as i32 {
            0 => {
                let all = self.drivers[1].read::<0x2000>(REPLY);
                Ok(all[REPLY_HEADER..written.min(all.len())].to_vec())
            }
            error => Err(-error),
        }
    }

    /// Offers a message with places for the answer. Returns the bytes written.
    fn send(&mut self, message: &[u8], reply: &[(u64, u32, u16)]) -> u32 {
        self.drivers[1].write(REQUEST, message);
        let mut buffers = vec![(REQUEST, message.len() as u32, 0)];
        buffers.extend(reply);
        self.drivers[1].put(&buffers);
        self.kicks[1].write(1).unwrap();
        self.drivers[1].wait_used(&self.line, 1)[0].1
    }

    fn lookup(&mut self, parent: u64, name: &str) -> Result<Vec<u8>, i32> {
        self.ask(Opcode::Lookup, parent, format!("{name}\0").as_bytes())
    }

    fn node(&mut self, name: &str) -> u64 {
        le64(&self.lookup(ROOT, name).unwrap(), 0)
    }

    fn open(&mut self, node: u64, flags: i32) -> Result<u64, i32> {
        let opened = self.ask(Opcode::Open, node, &[flags.to_le_bytes(), [0; 4]].concat())?;
        Ok(le64(&opened, 0))
    }

    fn read(&mut self, node: u64, handle: u64, bytes: u32) -> Result<Vec<u8>, i32> {
        let mut body = [handle.to_le_bytes(), 0u64.to_le_bytes()].concat();
        body.extend(bytes.to_le_bytes());
        body.resize(40, 0);
        self.ask(Opcode::Read, node, &body)
    }
}

fn message(opcode: u32, node: u64, body: &[u8]) -> Vec<u8> {
    let mut message = Vec::with_capacity(HEADER + body.len());
    message.extend(((HEADER + body.len()) as u32).to_le_bytes());
    message.extend(opcode.to_le_bytes());
    message.extend(7u64.to_le_bytes());
    message.extend(node.to_le_bytes());
    message.resize(HEADER, 0);
    message.extend(body);
    message
}

fn le32(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
}

fn le64(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())
}

#[test]
fn the_driver_reads_the_tag_and_the_number_of_queues() {
    let guest = Guest::new();
    let mut config = [1; 44];
    guest.device.read_config(0, &mut config);
    assert_eq!(&config[..4], b"tag\0");
    assert_eq!((le32(&config, 36), le32(&config, 40)), (1, 0));
    let link = link(guest.dir.path(), i32::MAX);
    for tag in ["", "a\0b", &"x".repeat(37)] {
        assert!(Fs::new(tag, link.clone()).is_err(), "{tag:?}");
    }
}

#[test]
fn files_are_found_read_written_and_made() {
    let mut guest = Guest::new();
    let path = guest.dir.path().join("file");
    let found = guest.lookup(ROOT, "file").unwrap();
    assert_eq!(le64(&found, INO), fs::metadata(&path).unwrap().ino());
    assert_eq!((le64(&found, SIZE), le32(&found, MODE)), (7, fs::metadata(&path).unwrap().mode()));
    // Nothing may be taken for known: entry_valid, attr_valid, and their nanoseconds.
    assert_eq!((le64(&found, 16), le64(&found, 24), le64(&found, 32)), (0, 0, 0));
    let node = le64(&found, 0);
    let handle = guest.open(node, libc::O_RDWR).unwrap();
    assert_eq!(guest.read(node, handle, 100).unwrap(), b"content");
    let mut write = [handle.to_le_bytes(), 3u64.to_le_bytes()].concat();
    write.extend(5u32.to_le_bytes());
    write.resize(40, 0);
    write.extend(b"cept!");
    assert_eq!(le32(&guest.ask(Opcode::Write, node, &write).unwrap(), 0), 5);
    assert_eq!(fs::read(&path).unwrap(), b"concept!");
    let mut create = Vec::new();
    for word in [(libc::O_CREAT | libc::O_WRONLY) as u32, libc::S_IFREG | 0o4750, 0, 0] {
        create.extend(word.to_le_bytes());
    }
    create.extend(b"new\0");
    guest.ask(Opcode::Create, ROOT, &create).unwrap();
    assert_eq!(fs::metadata(guest.dir.path().join("new")).unwrap().permissions().mode() & 0o7777, 0o4750);
    assert_eq!(guest.lookup(ROOT, "none").unwrap_err(), libc::ENOENT);
    assert_eq!(guest.device.counts().faults, 0);
}

#[test]
fn bytes_are_written_from_an_image_and_none_read_into_one() {
    let mut guest = Guest::new();
    image(&guest.memory);
    let node = guest.node("file");
    let handle = guest.open(node, libc::O_RDWR).unwrap();
    let mut write = [handle.to_le_bytes(), 0u64.to_le_bytes()].concat();
    write.extend(3000u32.to_le_bytes());
    write.resize(40, 0);
    let mut request = message(Opcode::Write as u32, node, &write);
    request[..4].copy_from_slice(&(HEADER as u32 + 40 + 3000).to_le_bytes());
    assert!(guest.send(&request, &[(IMAGE + 5, 3000, 0), (REPLY, REPLY_BYTES, WRITE)]) > 0);
    assert_eq!(fs::read(guest.dir.path().join("file")).unwrap(), image_content()[5..3005]);
    let faults = guest.device.counts().faults;
    let stat = message(Opcode::Getattr as u32, ROOT, &[0; 16]);
    assert_eq!(guest.send(&stat, &[(IMAGE, 0x1000, WRITE)]), 0);
    assert_eq!(guest.device.counts().faults, faults + 1);
}

#[test]
fn names_do_not_lead_out_and_devices_are_not_made() {
    let mut guest = Guest::new();
    assert_eq!(le64(&guest.lookup(ROOT, "..").unwrap(), 0), ROOT);
    for name in ["sub/..", "/etc", "../file"] {
        assert_eq!(guest.lookup(ROOT, name).unwrap_err(), libc::EINVAL, "{name}");
    }
    assert_eq!(guest.ask(Opcode::Unlink, ROOT, b"..\0").unwrap_err(), libc::EINVAL);
    let mut mknod = |kind: u32, name: &str| {
        let words = [kind | 0o600, 0x103, 0, 0].map(u32::to_le_bytes).concat();
        guest.ask(Opcode::Mknod, ROOT, &[&words, name.as_bytes(), b"\0"].concat())
    };
    assert_eq!(mknod(libc::S_IFCHR, "null").unwrap_err(), libc::EPERM);
    assert_eq!(mknod(libc::S_IFBLK, "disk").unwrap_err(), libc::EPERM);
    mknod(libc::S_IFIFO, "pipe").unwrap();
    // All bits of a type. The umask leaves those of a block or a character device.
    for (name, device) in [("by-umask-block", libc::S_IFBLK), ("by-umask-char", libc::S_IFCHR)] {
        let words = [libc::S_IFMT | 0o600, 0x103, libc::S_IFMT & !device, 0].map(u32::to_le_bytes).concat();
        let made = guest.ask(Opcode::Mknod, ROOT, &[&words, name.as_bytes(), b"\0"].concat());
        assert_eq!(made.unwrap_err(), libc::EINVAL, "{name}");
        assert!(!guest.dir.path().join(name).exists());
    }
    assert!(fs::metadata(guest.dir.path().join("pipe")).unwrap().file_type().is_fifo());
    // Opening it could take for ever; only files and directories are opened on the host.
    let pipe = guest.node("pipe");
    assert_eq!(guest.open(pipe, libc::O_RDONLY).unwrap_err(), libc::EBADF);
}

#[test]
fn the_root_of_another_file_system_is_marked() {
    let device = serve(Path::new("/"), i32::MAX);
    let mut guest = Guest::over(device, tempfile::tempdir().unwrap());
    assert_eq!(le32(&guest.lookup(ROOT, "proc").unwrap(), FLAGS), ATTR_SUBMOUNT);
    assert_eq!(le32(&guest.lookup(ROOT, ".").unwrap(), FLAGS), 0);
    let mut own = Guest::new();
    assert_eq!(le32(&own.lookup(ROOT, "sub").unwrap(), FLAGS), 0);
}

#[test]
fn descriptors_that_others_need_are_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("file"), "").unwrap();
    let device = serve(dir.path(), 0);
    let mut guest = Guest::over(device, dir);
    assert_eq!(guest.lookup(ROOT, "file").unwrap_err(), libc::ENFILE);
    assert_eq!(guest.open(ROOT, libc::O_DIRECTORY).unwrap_err(), libc::ENFILE);
}

#[test]
fn what_is_open_outlives_a_pause_and_not_a_reset() {
    let mut guest = Guest::new();
    let node = guest.node("file");
    let handle = guest.open(node, libc::O_RDONLY).unwrap();
    let queues = guest.device.pause().unwrap();
    assert_eq!(queues[1].next_avail(), 3);
    assert!(guest.device.pause().is_none());
    guest.activate(Some(queues));
    assert_eq!(guest.read(node, handle, 7).unwrap(), b"content");
    guest.start_over();
    assert_eq!(guest.read(node, handle, 7).unwrap_err(), libc::EBADF);
}

#[test]
fn a_mounted_share_is_not_restored_and_an_unmounted_one_is() {
    let mut guest = Guest::new();
    guest.device.pause().unwrap();
    let mounted = guest.device.save();
    let mut other = serve(guest.dir.path(), i32::MAX);
    let fresh = other.save();
    assert!(other.restore(&mounted).unwrap_err().message.contains("mounted: true"));
    other.restore(&fresh).unwrap();
    assert!(other.restore(&serde_json::json!({ "tag": "other", "mounted": false })).is_err());
}

#[test]
fn a_message_beyond_the_limit_or_without_room_for_an_answer_is_given_back() {
    let mut guest = Guest::new();
    let stat = message(Opcode::Getattr as u32, ROOT, &[0; 16]);
    // The same memory many times over.
    let many = [(REPLY, 0x10_0000, WRITE); 3];
    assert_eq!(guest.send(&stat, &many), 0);
    assert_eq!(guest.send(&stat, &[(REPLY, 8, WRITE)]), 0);
    assert_eq!(guest.send(&stat[..20], &[(REPLY, REPLY_BYTES, WRITE)]), 0);
    assert_eq!(guest.device.counts().faults, 3);
    guest.node("file");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn no_request_stops_the_share(
        requests in proptest::collection::vec(
            (0u32..60, prop_oneof![3 => 0u64..4, 1 => any::<u64>()], any::<u32>(),
             proptest::collection::vec(any::<u8>(), 0..200)), 1..40)
    ) {
        let mut guest = Guest::new();
        let file = guest.node("file");
        guest.open(file, libc::O_RDWR).unwrap();
        for (opcode, node, length, body) in requests {
            let mut message = message(opcode, node, &body);
            if length % 4 == 0 {
                message[..4].copy_from_slice(&length.to_le_bytes());
            }
            guest.send(&message, &[(REPLY, REPLY_BYTES, WRITE)]);
        }
        guest.mount();
        fs::write(guest.dir.path().join("after"), "x").unwrap();
        prop_assert!(guest.lookup(ROOT, "after").is_ok());
    }

    #[test]
    fn no_ring_stops_the_share(table in entries(), heads in proptest::collection::vec(heads(), 1..30)) {
        let mut guest = Guest::new();
        for driver in &mut guest.drivers {
            for (index, entry) in (0u16..).zip(&table) {
                driver.descriptor(driver.table(), index, *entry);
            }
            for head in &heads {
                driver.offer(*head);
            }
        }
        for kick in &guest.kicks {
            kick.write(1).unwrap();
        }
        guest.start_over();
        guest.node("file");
    }
}
