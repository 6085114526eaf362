//! The content of files. The VMM reads and writes the files it holds. The share serves the others in
//! pieces.

use std::io;
use std::os::fd::AsFd as _;

use fuse_backend_rs::abi::fuse_abi::{
    FlushIn, FsyncIn, InHeader, ReadIn, WRITE_KILL_PRIV, WriteIn, WriteOut,
};
use vm_memory::ByteValued;

use super::link::{ANSWER_BYTES_MAX, Answer, DATA_BYTES_MAX};
use super::message::object;
use super::opened::Opened;
use super::request::{ANSWER_HEAD_BYTES, Desk, answer, answer_header};
use crate::virtio::chain::Chain;

/// The flag of FSYNC for content without times (linux/fuse.h, FUSE_FSYNC_FDATASYNC).
const DATA_ONLY: u32 = 1;

impl Desk {
    pub(super) fn read(&mut self, header: &InHeader, chain: &mut Chain) -> Option<u32> {
        let mut asked = ReadIn::default();
        chain.readable.take_front(asked.as_mut_slice())?;
        let room = chain.writable.bytes().checked_sub(ANSWER_HEAD_BYTES as u64)?;
        let read = if u64::from(asked.size) > room {
            Err(io::Error::from_raw_os_error(libc::EINVAL))
        } else {
            match self.channel.link().opened().find(asked.fh, header.nodeid) {
                Some(opened) => self.read_here(&opened, &asked, chain),
                None => self.read_there(header, asked, chain),
            }
        };
        match read {
            Err(error) => answer(chain, header, Err(error)),
            Ok(count) => {
                let header = answer_header(header.unique, ANSWER_HEAD_BYTES + count, Ok(()));
                chain.writable.write_at(0, header.as_slice()).map(|()| header.len)
            }
        }
    }

    fn read_here(&mut self, opened: &Opened, asked: &ReadIn, chain: &Chain) -> io::Result<usize> {
        if !opened.may_be_read() {
            return Err(io::Error::from_raw_os_error(libc::EBADF));
        }
        opened.follow(asked.flags)?;
        let place = self.iovecs.over_part(&chain.writable, ANSWER_HEAD_BYTES as u64, asked.size);
        let place = place.map_err(|_| io::Error::from_raw_os_error(libc::EFAULT))?;
        place.read_some_at(opened.file().as_fd(), asked.offset)
    }

    /// Reads through the share, up to the end of the file.
    fn read_there(&mut self, header: &InHeader, asked: ReadIn, chain: &Chain) -> io::Result<usize> {
        let mut done = 0;
        while done < asked.size as usize {
            let size = (asked.size as usize - done).min(DATA_BYTES_MAX);
            let offset = asked.offset.saturating_add(done as u64);
            self.compose(header, &ReadIn { size: size as u32, offset, ..asked }, size_of::<ReadIn>());
            let Answer { message, .. } =
                self.channel.request(&self.message, ANSWER_BYTES_MAX as u64, false)?;
            let data = match message.map(|message| data(message, header)) {
                Some(Some(Ok(data))) if data.len() <= size => data,
                Some(Some(Err(error))) if done == 0 => return Err(error),
                Some(Some(Err(_))) => break,
                // The request makes sense, and so its answer does not.
                _ => return Err(self.channel.garbled()),
            };
            let placed = chain.writable.write_at((ANSWER_HEAD_BYTES + done) as u64, data);
            placed.ok_or_else(|| io::Error::from_raw_os_error(libc::EFAULT))?;
            done += data.len();
            if data.len() < size {
                break;
            }
        }
        Ok(done)
    }

    pub(super) fn write(&mut self, header: &InHeader, chain: &mut Chain) -> Option<u32> {
        let mut asked = WriteIn::default();
        chain.readable.take_front(asked.as_mut_slice())?;
        chain.readable.truncate(asked.size);
        asked.size = u32::try_from(chain.readable.bytes()).ok()?;
        let opened = self.channel.link().opened().find(asked.fh, header.nodeid);
        let written = match opened.map(|opened| self.write_here(&opened, &asked, chain)) {
            Some(Ok(Some(count))) => Ok(count),
            Some(Err(error)) => Err(error),
            Some(Ok(None)) | None => self.write_there(header, asked, chain),
        };
        match written {
            Err(error) => answer(chain, header, Err(error)),
            Ok(count) => {
                let bytes = ANSWER_HEAD_BYTES + size_of::<WriteOut>();
                let header = answer_header(header.unique, bytes, Ok(()));
                let body = WriteOut { size: count as u32, ..WriteOut::default() };
                let message = [header.as_slice(), body.as_slice()].concat();
                chain.writable.write_at(0, &message).map(|()| header.len)
            }
        }
    }

    /// Writes to a file held by the VMM. Returns `None` if the share has to write instead: the file has
    /// set-user-id or set-group-id bits, and the driver does not ask to take them away. The VMM's write
    /// would.
    fn write_here(&mut self, opened: &Opened, asked: &WriteIn, chain: &Chain) -> io::Result<Option<usize>> {
        if !opened.may_be_written() {
            return Err(io::Error::from_raw_os_error(libc::EBADF));
        }
        if asked.fuse_flags & WRITE_KILL_PRIV == 0 && opened.has_set_id()? {
            return Ok(None);
        }
        opened.follow(asked.flags)?;
        let data = self.iovecs.over([&chain.readable]);
        let data = data.map_err(|_| io::Error::from_raw_os_error(libc::EFAULT))?;
        data.write_some_at(opened.file().as_fd(), asked.offset, opened.write_flags(asked.flags)).map(Some)
    }

    /// Writes through the share.
    fn write_there(&mut self, header: &InHeader, asked: WriteIn, chain: &mut Chain) -> io::Result<usize> {
        let mut done = 0;
        loop {
            let size = (asked.size as usize - done).min(DATA_BYTES_MAX);
            let offset = asked.offset.saturating_add(done as u64);
            let bytes = size_of::<WriteIn>() + size;
            self.compose(header, &WriteIn { size: size as u32, offset, ..asked }, bytes);
            let at = self.message.len();
            self.message.resize(at + size, 0);
            let taken = chain.readable.take_front(&mut self.message[at..]);
            taken.ok_or_else(|| io::Error::from_raw_os_error(libc::EFAULT))?;
            let Answer { message, .. } =
                self.channel.request(&self.message, ANSWER_BYTES_MAX as u64, false)?;
            let count = match message.map(|message| data(message, header)) {
                Some(Some(Ok(data))) => object::<WriteOut>(data, 0).map(|out| out.size as usize),
                Some(Some(Err(error))) if done == 0 => return Err(error),
                Some(Some(Err(_))) => return Ok(done),
                _ => None,
            };
            let count = count.filter(|count| *count <= size).ok_or_else(|| self.channel.garbled())?;
            done += count;
            if count < size || done >= asked.size as usize {
                return Ok(done);
            }
        }
    }

    /// Closes a copy of the file's descriptor, as a program of the node would. Some file systems write
    /// then, and report if they could. Returns `None` if the share has to do it, because locks end with the
    /// close.
    pub(super) fn flush(&mut self, header: &InHeader) -> Option<io::Result<()>> {
        let files = self.channel.link().opened();
        let asked: FlushIn = self.body()?;
        let opened = files.find(asked.fh, header.nodeid).filter(|_| !files.locks_used())?;
        let copied = opened.file().try_clone();
        Some(copied.and_then(|copy| nix::unistd::close(copy).map_err(io::Error::from)))
    }

    /// Writes the file's content to its disk. Returns `None` if the VMM does not hold the file.
    pub(super) fn sync(&mut self, header: &InHeader) -> Option<io::Result<()>> {
        let asked: FsyncIn = self.body()?;
        let opened = self.channel.link().opened().find(asked.fh, header.nodeid)?;
        let data_only = asked.fsync_flags & DATA_ONLY != 0;
        Some(if data_only { opened.file().sync_data() } else { opened.file().sync_all() })
    }

    /// Begins a message of the VMM's own with a header and `body`. `bytes` is the length behind the header.
    fn compose<T: ByteValued>(&mut self, header: &InHeader, body: &T, bytes: usize) {
        let header = InHeader { len: (size_of::<InHeader>() + bytes) as u32, ..*header };
        self.message.clear();
        self.message.extend_from_slice(header.as_slice());
        self.message.extend_from_slice(body.as_slice());
    }
}

/// Returns the data behind an answer's header, or its error. `None` if it does not answer the request.
fn data<'a>(message: &'a [u8], request: &InHeader) -> Option<io::Result<&'a [u8]>> {
    let header = super::request::checked(message, request)?;
    let data = &message[ANSWER_HEAD_BYTES..];
    Some(if header.error == 0 { Ok(data) } else { Err(io::Error::from_raw_os_error(-header.error)) })
}
