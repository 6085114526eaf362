//! The connection of a thread of the device to the share.

use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, OwnedFd};

use rustix::net::RecvFlags;

use super::ShareLink;
use super::packet::{ANSWER_BYTES_MAX, Call, HEAD_BYTES, Outcome, Reply};
use super::socket::{Received, receive, write};

/// A connection to a thread of the share.
pub(in crate::virtio::fs) struct Channel {
    link: ShareLink,
    /// `None` once it is of no more use.
    socket: Option<OwnedFd>,
    /// Version of the groups in the share's thread.
    groups: u64,
    /// The share was given something without an answer.
    unsettled: bool,
    answer: Vec<u8>,
}

/// The share's answer to a request.
pub(in crate::virtio::fs) struct Answer<'a> {
    /// The FUSE answer. `None` if the request made no sense, or its answer had no place.
    pub(in crate::virtio::fs) message: Option<&'a [u8]>,
    /// The opened file.
    pub(in crate::virtio::fs) file: Option<OwnedFd>,
    /// A lock was released meanwhile.
    pub(in crate::virtio::fs) freed: bool,
}

impl Channel {
    /// Opens a channel. If that fails, the share is lost, and requests fail with EIO.
    pub(in crate::virtio::fs) fn open(link: &ShareLink) -> Channel {
        let socket =
            link.open_channel().map_err(|error| link.lose(&format!("no channel to it: {error}"))).ok();
        Channel { link: link.clone(), socket, groups: 0, unsettled: false, answer: vec![0; ANSWER_BYTES_MAX] }
    }

    pub(in crate::virtio::fs) fn link(&self) -> &ShareLink {
        &self.link
    }

    /// Has a FUSE request carried out, with room for so many bytes in its answer. If `lend` is set, an
    /// opened file may come along with the answer.
    ///
    /// # Errors
    /// The error to answer the driver with: the share is lost, or cannot have the groups.
    pub(in crate::virtio::fs) fn request(
        &mut self,
        message: &[u8],
        room: u64,
        lend: bool,
    ) -> io::Result<Answer<'_>> {
        self.join_groups()?;
        let room = room.min(ANSWER_BYTES_MAX as u64) as u32;
        let (reply, bytes, file) = self.call(Call::Request { room, lend }, message)?;
        let fits = bytes <= room as usize;
        match reply.outcome {
            Outcome::Answered if fits => {
                Ok(Answer { message: Some(&self.answer[..bytes]), file, freed: reply.freed })
            }
            Outcome::Nothing if bytes == 0 => Ok(Answer { message: None, file: None, freed: reply.freed }),
            _ => Err(self.garbled()),
        }
    }

    /// Has a FUSE request without an answer carried out.
    pub(in crate::virtio::fs) fn notice(&mut self, message: &[u8]) -> io::Result<()> {
        self.join_groups()?;
        self.unsettled = true;
        self.send(Call::Notice, message)
    }

    /// Has a lock taken or freed. Returns EAGAIN if another holds it. An owner keeps its description then
    /// if it `waits`. The second value is true if a lock was released.
    pub(in crate::virtio::fs) fn lock(&mut self, message: &[u8], waits: bool) -> (io::Result<()>, bool) {
        let asked = self.join_groups().and_then(|()| self.call(Call::Lock { waits }, message));
        match asked {
            Ok((Reply { outcome: Outcome::Done { error }, freed }, 0, _)) => (done(error), freed),
            Ok(_) => (Err(self.garbled()), false),
            Err(error) => (Err(error), false),
        }
    }

    /// Has the share release everything held by the driver.
    pub(in crate::virtio::fs) fn afresh(&mut self) {
        // A lost share has released everything.
        let _ = self.done(Call::Afresh, &[]);
    }

    /// Waits until the share is done with all earlier messages.
    pub(in crate::virtio::fs) fn settle(&mut self) {
        if std::mem::take(&mut self.unsettled) {
            // Any request will do: it answers in order.
            let (groups, _) = self.link.groups();
            let _ = self.done(Call::Groups, &bytes_of(&groups));
        }
    }

    /// Gives the share's thread the present groups, unless it has them.
    fn join_groups(&mut self) -> io::Result<()> {
        if self.groups == self.link.groups_version() {
            return Ok(());
        }
        let (groups, version) = self.link.groups();
        self.done(Call::Groups, &bytes_of(&groups))?;
        self.groups = version;
        Ok(())
    }

    fn done(&mut self, call: Call, message: &[u8]) -> io::Result<()> {
        match self.call(call, message)? {
            (Reply { outcome: Outcome::Done { error }, .. }, 0, _) => done(error),
            _ => Err(self.garbled()),
        }
    }

    /// Sends a packet and waits for its answer. Returns the bytes of the message in it.
    fn call(&mut self, call: Call, message: &[u8]) -> io::Result<(Reply, usize, Option<OwnedFd>)> {
        self.send(call, message)?;
        let Some(socket) = &self.socket else { return Err(lost()) };
        let mut head = [0; HEAD_BYTES];
        let mut parts = [IoSliceMut::new(&mut head), IoSliceMut::new(&mut self.answer)];
        let lend = matches!(call, Call::Request { lend: true, .. });
        match receive(socket.as_fd(), &mut parts, lend, RecvFlags::empty()) {
            Ok(Some(Received { bytes, file })) => {
                let reply = Reply::read(head).zip(bytes.checked_sub(HEAD_BYTES));
                reply.map(|(reply, bytes)| (reply, bytes, file)).ok_or_else(|| self.garbled())
            }
            Ok(None) => Err(self.lose("its process has ended")),
            Err(error) => Err(self.lose(&format!("nothing can be received from it: {error}"))),
        }
    }

    fn send(&mut self, call: Call, message: &[u8]) -> io::Result<()> {
        let Some(socket) = &self.socket else { return Err(lost()) };
        let head = call.head();
        match write(socket.as_fd(), &[IoSlice::new(&head), IoSlice::new(message)]) {
            Ok(()) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                Err(self.lose("its process has ended"))
            }
            Err(error) => Err(self.lose(&format!("nothing can be sent to it: {error}"))),
        }
    }

    /// Gives up the share after an answer without sense. It is not asked again. Returns the error for the
    /// driver.
    pub(in crate::virtio::fs) fn garbled(&mut self) -> io::Error {
        self.lose("it answered what makes no sense")
    }

    fn lose(&mut self, reason: &str) -> io::Error {
        self.socket = None;
        self.link.lose(reason);
        lost()
    }
}

fn lost() -> io::Error {
    io::Error::from_raw_os_error(libc::EIO)
}

fn done(error: i32) -> io::Result<()> {
    if error == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(error)) }
}

fn bytes_of(groups: &[u32]) -> Vec<u8> {
    groups.iter().flat_map(|group| group.to_le_bytes()).collect()
}
