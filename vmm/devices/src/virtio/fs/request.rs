//! One request of the driver: done with a file held by the VMM, or passed on to the share.
//!
//! | request | by |
//! |---|---|
//! | READ, WRITE, FLUSH, FSYNC of a file handed over | the VMM (`content`) |
//! | RELEASE of such a file, FORGET | the share, without waiting for it |
//! | all else | the share |

use std::io;

use fuse_backend_rs::abi::fuse_abi::{InHeader, Opcode, OutHeader, ReadIn, ReleaseIn};
use vm_memory::ByteValued;

use super::MESSAGE_BYTES_MAX;
use super::link::{Answer, Channel, DATA_BYTES_MAX, REQUEST_BYTES_MAX};
use super::message::{Opening, object, opening};
use super::opened::Opened;
use crate::virtio::chain::Chain;
use crate::virtio::iovec::Iovecs;

/// Bytes of an answer's header.
pub(super) const ANSWER_HEAD_BYTES: usize = size_of::<OutHeader>();

/// State of a thread between requests.
pub(super) struct Desk {
    pub(super) channel: Channel,
    pub(super) iovecs: Iovecs,
    /// The message to pass on.
    pub(super) message: Vec<u8>,
}

/// The result of a request.
pub(super) struct Done {
    /// Bytes written to guest memory. `None` if the request made no sense, or its answer had no place.
    pub(super) written: Option<u32>,
    /// A lock was released meanwhile.
    pub(super) freed: bool,
}

impl Done {
    const NONSENSE: Done = Done { written: None, freed: false };

    pub(super) fn of(written: Option<u32>) -> Done {
        Done { written, freed: false }
    }
}

impl Desk {
    pub(super) fn new(channel: Channel) -> Desk {
        Desk { channel, iovecs: Iovecs::default(), message: Vec::new() }
    }

    /// Carries out a request after its header was taken.
    pub(super) fn carry_out(&mut self, header: &InHeader, chain: &mut Chain) -> Done {
        match header.opcode {
            read if read == Opcode::Read as u32 => Done::of(self.read(header, chain)),
            write if write == Opcode::Write as u32 => Done::of(self.write(header, chain)),
            _ => match self.take_message(header, chain) {
                None => Done::NONSENSE,
                Some(()) => self.carry_out_message(header, chain),
            },
        }
    }

    fn carry_out_message(&mut self, header: &InHeader, chain: &Chain) -> Done {
        let opened = self.channel.link().opened();
        match header.opcode {
            flush if flush == Opcode::Flush as u32 => {
                if let Some(result) = self.flush(header) {
                    return Done::of(answer(chain, header, result));
                }
            }
            sync if sync == Opcode::Fsync as u32 => {
                if let Some(result) = self.sync(header) {
                    return Done::of(answer(chain, header, result));
                }
            }
            release if release == Opcode::Release as u32 => {
                let locks = opened.locks_used();
                let known =
                    self.body::<ReleaseIn>().is_some_and(|body| opened.remove(body.fh, header.nodeid));
                if known && !locks {
                    let result = self.channel.notice(&self.message);
                    return Done::of(answer(chain, header, result));
                }
            }
            forget if [Opcode::Forget as u32, Opcode::BatchForget as u32].contains(&forget) => {
                // There is no answer, and so no place for an error.
                let _ = self.channel.notice(&self.message);
                return Done::of(Some(0));
            }
            listing if listing == Opcode::Readdir as u32 => self.bound_listing(),
            lock if [Opcode::Setlk as u32, Opcode::Setlkw as u32].contains(&lock) => opened.note_lock(),
            _ => {}
        }
        self.pass_on(header, chain)
    }

    /// Has the share answer the message.
    fn pass_on(&mut self, header: &InHeader, chain: &Chain) -> Done {
        let opens = [Opcode::Open as u32, Opcode::Create as u32].contains(&header.opcode);
        let lend = opens && self.channel.link().opened().has_room();
        let (message, file, freed) = match self.channel.request(&self.message, chain.writable.bytes(), lend) {
            Err(error) => return Done::of(answer(chain, header, Err(error))),
            Ok(Answer { message: None, freed, .. }) => {
                self.note_end(header);
                return Done { written: None, freed };
            }
            Ok(Answer { message: Some(message), file, freed }) => (message, file, freed),
        };
        // A message of no bytes is no answer: the driver expects none.
        if message.is_empty() {
            self.note_end(header);
            return Done { written: Some(0), freed };
        }
        let Some(answered) = checked(message, header) else {
            let error = self.channel.garbled();
            return Done { written: answer(chain, header, Err(error)), freed };
        };
        let written = chain.writable.write_at(0, message).map(|()| answered.len);
        if answered.error == 0 {
            if let Some(file) = file
                && let Some(Opening { inode, flags, handle }) = opening(&self.message, message)
                && let Some(opened) = Opened::new(file, inode, flags)
            {
                self.channel.link().opened().add(handle, opened);
            }
            if header.opcode == Opcode::Init as u32 {
                self.channel.link().note_mounted();
            }
        }
        Done { written, freed }
    }

    /// Notes the end of a mount: the driver holds nothing any more.
    fn note_end(&self, header: &InHeader) {
        if header.opcode == Opcode::Destroy as u32 {
            self.channel.link().note_unmounted();
        }
    }

    /// Takes the rest of a request out of its chain, and puts it behind the header. Returns `None` if it is
    /// longer than any request except a write.
    pub(super) fn take_message(&mut self, header: &InHeader, chain: &mut Chain) -> Option<()> {
        let rest = usize::try_from(chain.readable.bytes()).ok()?;
        if rest > REQUEST_BYTES_MAX - size_of::<InHeader>() {
            return None;
        }
        self.message.clear();
        self.message.extend_from_slice(header.as_slice());
        self.message.resize(size_of::<InHeader>() + rest, 0);
        chain.readable.take_front(&mut self.message[size_of::<InHeader>()..])
    }

    /// The message's body, behind its header.
    pub(super) fn body<T: ByteValued + Default>(&self) -> Option<T> {
        object(&self.message, size_of::<InHeader>())
    }

    /// Limits a listing to the share's longest. The driver asks again for the rest.
    fn bound_listing(&mut self) {
        let Some(mut asked) = self.body::<ReadIn>() else { return };
        asked.size = asked.size.min(DATA_BYTES_MAX as u32);
        self.message[size_of::<InHeader>()..][..size_of::<ReadIn>()].copy_from_slice(asked.as_slice());
    }
}

/// Takes the header of a request. Returns `None` if there is none, or if the chain is longer than any
/// request or answer.
pub(super) fn take_header(chain: &mut Chain) -> Option<InHeader> {
    // Overlapping buffers may add up to more than all memory.
    let most = MESSAGE_BYTES_MAX as u64;
    if chain.readable.bytes() > most || chain.writable.bytes() > most {
        return None;
    }
    let mut header = InHeader::default();
    chain.readable.take_front(header.as_mut_slice())?;
    Some(header)
}

/// Returns the answer's header if it answers this request.
pub(super) fn checked(message: &[u8], request: &InHeader) -> Option<OutHeader> {
    let header: OutHeader = object(message, 0)?;
    let whole = header.len as usize == message.len() && header.unique == request.unique;
    (whole && (-4095..=0).contains(&header.error)).then_some(header)
}

/// Answers a request with a header alone. Returns the bytes written, or `None` if there is no place for it.
pub(super) fn answer(chain: &Chain, request: &InHeader, result: io::Result<()>) -> Option<u32> {
    let header = answer_header(request.unique, ANSWER_HEAD_BYTES, result);
    chain.writable.write_at(0, header.as_slice()).map(|()| header.len)
}

/// The header of an answer of so many bytes.
pub(super) fn answer_header(unique: u64, bytes: usize, result: io::Result<()>) -> OutHeader {
    let error = result.map_or_else(|error| -error.raw_os_error().unwrap_or(libc::EIO), |()| 0);
    OutHeader { len: bytes as u32, error, unique }
}
