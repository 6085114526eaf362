//! The content of files, read and written by the VMM or by the share.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt as _, PermissionsExt as _};

use fuse_backend_rs::abi::fuse_abi::{Opcode, WRITE_KILL_PRIV};

use super::{Guest, REPLY, REPLY_BYTES, REPLY_HEADER, le32, le64, message};
use crate::virtio::testing::WRITE;

/// Where long messages lie, and the data of long answers.
const LONG: u64 = 0x10_0000;
/// More than one piece of the share's.
const LONG_BYTES: usize = 150_000;

impl Guest {
    /// Writes by one request. Returns the answer's count of written bytes.
    fn write(
        &mut self,
        (node, handle): (u64, u64),
        at: u64,
        data: &[u8],
        flags: (u32, i32),
    ) -> Result<u32, i32> {
        let mut body = [handle.to_le_bytes(), at.to_le_bytes()].concat();
        body.extend([data.len() as u32, flags.0].map(u32::to_le_bytes).concat());
        body.extend(0u64.to_le_bytes());
        body.extend([flags.1 as u32, 0].map(u32::to_le_bytes).concat());
        body.extend(data);
        let message = message(Opcode::Write as u32, node, &body);
        self.drivers[1].write(LONG, &message);
        self.drivers[1].put(&[(LONG, message.len() as u32, 0), (REPLY, REPLY_BYTES, WRITE)]);
        self.kicks[1].write(1).unwrap();
        self.drivers[1].wait_used(&self.line, 1);
        let answer = self.drivers[1].read::<24>(REPLY);
        match le32(&answer, 4) as i32 {
            0 => Ok(le32(&answer, REPLY_HEADER)),
            error => Err(-error),
        }
    }

    /// Reads a long piece by one request.
    fn read_long(&mut self, node: u64, handle: u64, flags: i32) -> Vec<u8> {
        let mut body = [handle.to_le_bytes(), 0u64.to_le_bytes()].concat();
        body.extend([LONG_BYTES as u32 + 100, 0, 0, 0, flags as u32, 0].map(u32::to_le_bytes).concat());
        let message = message(Opcode::Read as u32, node, &body);
        let data = (LONG, LONG_BYTES as u32 + 100, WRITE);
        let written = self.send(&message, &[(REPLY, REPLY_HEADER as u32, WRITE), data]) as usize;
        assert_eq!(le32(&self.drivers[1].read::<REPLY_HEADER>(REPLY), 4), 0);
        self.drivers[1].read::<{ LONG_BYTES + 100 }>(LONG)[..written - REPLY_HEADER].to_vec()
    }

    fn opened(&mut self, flags: i32) -> (u64, u64) {
        let node = self.node("file");
        (node, self.open(node, flags).unwrap())
    }

    fn held(&self, (node, handle): (u64, u64)) -> bool {
        self.device.link().opened().find(handle, node).is_some()
    }

    /// Has the VMM give up a file, as if the share had not lent it.
    fn give_up(&self, (node, handle): (u64, u64)) {
        assert!(self.device.link().opened().remove(handle, node));
    }
}

fn long_content() -> Vec<u8> {
    (0..LONG_BYTES).map(|at| (at % 253) as u8).collect()
}

#[test]
fn a_file_is_read_and_written_with_the_vmms_own_descriptor_and_by_the_share() {
    let mut guest = Guest::new();
    let path = guest.dir.path().join("file");
    for by_share in [false, true] {
        fs::write(&path, "").unwrap();
        let open = guest.opened(libc::O_RDWR);
        assert!(guest.held(open));
        if by_share {
            guest.give_up(open);
        }
        let written = guest.write(open, 3, &long_content(), (0, libc::O_RDWR));
        assert_eq!(written, Ok(LONG_BYTES as u32));
        assert_eq!(fs::read(&path).unwrap()[3..], long_content());
        assert_eq!(guest.read_long(open.0, open.1, libc::O_RDWR)[3..], long_content());
        let nothing = guest.write(open, 3, &[], (0, libc::O_RDWR));
        assert_eq!(nothing, Ok(0));
        assert_eq!(guest.held(open), !by_share);
    }
}

#[test]
fn what_a_file_was_not_opened_for_is_refused_by_both() {
    let mut guest = Guest::new();
    for by_share in [false, true] {
        let (reader, writer) = (guest.opened(libc::O_RDONLY), guest.opened(libc::O_WRONLY));
        if by_share {
            guest.give_up(reader);
            guest.give_up(writer);
        }
        assert_eq!(guest.write(reader, 0, b"x", (0, libc::O_RDONLY)), Err(libc::EBADF));
        let mut body = [writer.1.to_le_bytes(), [0; 8], 8u64.to_le_bytes(), [0; 8]].concat();
        body.extend([libc::O_WRONLY as u32, 0].map(u32::to_le_bytes).concat());
        assert_eq!(guest.ask(Opcode::Read, writer.0, &body).unwrap_err(), libc::EBADF);
    }
    // A number of another file.
    let (node, handle) = guest.opened(libc::O_RDWR);
    assert_eq!(guest.write((node + 1, handle), 0, b"x", (0, libc::O_RDWR)), Err(libc::EBADF));
}

#[test]
fn a_program_that_appends_writes_at_the_end_as_soon_as_it_says_so() {
    let mut guest = Guest::new();
    let path = guest.dir.path().join("file");
    let open = guest.opened(libc::O_RDWR | libc::O_APPEND);
    File::options().append(true).open(&path).unwrap().write_at(b", more", 0).unwrap();
    guest.write(open, 0, b", and more", (0, libc::O_RDWR | libc::O_APPEND)).unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"content, more, and more");
    guest.write(open, 0, b"C", (0, libc::O_RDWR)).unwrap();
    guest.write(open, 0, b"!", (0, libc::O_RDWR | libc::O_APPEND)).unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"Content, more, and more!");
}

#[test]
fn set_id_bits_stay_with_a_write_that_does_not_ask_to_take_them_away() {
    let mut guest = Guest::new();
    let path = guest.dir.path().join("file");
    let open = guest.opened(libc::O_WRONLY);
    for mode in [0o4755, 0o2755, 0o6777] {
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        guest.write(open, 0, &long_content(), (0, libc::O_WRONLY)).unwrap();
        // Without the capability of the share's process, the kernel takes them away.
        let kept = if rustix::process::geteuid().is_root() { mode } else { 0o777 & mode };
        assert_eq!(guest.mode("file"), kept);
        assert_eq!(fs::read(&path).unwrap(), long_content());
    }
}

#[test]
fn a_released_file_is_closed_on_both_sides() {
    let mut guest = Guest::new();
    let open = guest.opened(libc::O_RDWR);
    let body = [open.1.to_le_bytes().to_vec(), vec![0; 16]].concat();
    assert_eq!(guest.ask(Opcode::Flush, open.0, &body).unwrap(), b"");
    let sync = [open.1.to_le_bytes().to_vec(), vec![0; 8]].concat();
    assert_eq!(guest.ask(Opcode::Fsync, open.0, &sync).unwrap(), b"");
    assert_eq!(guest.ask(Opcode::Release, open.0, &body).unwrap(), b"");
    assert!(!guest.held(open));
    assert_eq!(guest.read(open.0, open.1, 7).unwrap_err(), libc::EBADF);
    assert_eq!(guest.ask(Opcode::Fsync, open.0, &sync).unwrap_err(), libc::EBADF);
}

#[test]
fn directories_stay_with_the_share() {
    let mut guest = Guest::new();
    let node = guest.node("sub");
    let handle = guest.open(node, libc::O_RDONLY).unwrap();
    assert!(!guest.held((node, handle)));
    assert_eq!(guest.read(node, handle, 7).unwrap_err(), libc::EISDIR);
    let created = {
        let mut body = Vec::new();
        for word in [(libc::O_CREAT | libc::O_RDWR) as u32, libc::S_IFREG | 0o644, 0, 0] {
            body.extend(word.to_le_bytes());
        }
        body.extend(b"new\0");
        guest.ask(Opcode::Create, super::ROOT, &body).unwrap()
    };
    assert!(guest.held((le64(&created, 0), le64(&created, 128))));
}

#[test]
fn files_of_the_kernels_own_stay_with_the_share() {
    let device = super::serve(std::path::Path::new("/"), i32::MAX);
    let mut guest = Guest::over(device, tempfile::tempdir().unwrap());
    let proc = guest.node("proc");
    let node = le64(&guest.lookup(proc, "version").unwrap(), 0);
    let handle = guest.open(node, libc::O_RDONLY).unwrap();
    assert!(!guest.held((node, handle)));
    assert_eq!(guest.read(node, handle, 5).unwrap(), b"Linux");
}

#[test]
fn a_write_with_less_data_than_it_says_writes_what_there_is() {
    let mut guest = Guest::new();
    let (node, handle) = guest.opened(libc::O_RDWR);
    let mut body = [handle.to_le_bytes(), 0u64.to_le_bytes()].concat();
    body.extend([1000u32, WRITE_KILL_PRIV].map(u32::to_le_bytes).concat());
    body.resize(40, 0);
    body.extend(b"few");
    let written = guest.ask(Opcode::Write, node, &body).unwrap();
    assert_eq!(le32(&written, 0), 3);
    assert_eq!(fs::read(guest.dir.path().join("file")).unwrap(), b"fewtent");
}
