//! Packets from the guest: from a descriptor chain to a header and its payload, and on to the host.
//!
//! Owns nothing. Payload goes from guest memory directly into the host's socket as far as there is room; only
//! the rest is copied. Guest memory may change underneath at any time, so a header is read once.

use std::io::ErrorKind;

use vm_memory::{VolatileMemoryError, WriteVolatile};

use super::buffer::Buffer;
use super::connection::Admission;
use super::packet::{HEADER_BYTES, Header};
use super::table::Link;

/// A packet with its payload still in guest memory.
#[derive(Debug)]
pub(super) struct Packet<'a> {
    /// The packet's header.
    pub(super) header: Header,
    /// The buffer holds all `header.len` bytes of payload.
    pub(super) whole: bool,
    buffer: Buffer<'a>,
}

impl<'a> Packet<'a> {
    /// Reads the header off a buffer. Returns `None` if the buffer is shorter than a header.
    pub(super) fn parse(buffer: Buffer<'a>) -> Option<Packet<'a>> {
        let mut bytes = [0; HEADER_BYTES];
        if buffer.read(0, &mut bytes) < HEADER_BYTES {
            return None;
        }
        let header = Header::parse(&bytes);
        let whole = header.len as usize <= buffer.bytes() - HEADER_BYTES;
        Some(Packet { header, whole, buffer })
    }

    /// Passes the payload to the connection. The part the host takes at once goes there, and the rest is
    /// kept. The packet must be `whole`.
    pub(super) fn deliver(&self, link: &mut Link) {
        if link.connection.admit(self.header.len) == Admission::Discard {
            return;
        }
        let length = self.header.len as usize;
        let written = match &link.stream {
            Some(stream) if !link.connection.is_buffering() => self.write_to(stream, length),
            _ => 0,
        };
        link.connection.forward(u32::try_from(written).unwrap_or(self.header.len));
        if written == length {
            return;
        }
        let mut rest = vec![0; length - written];
        self.buffer.read(HEADER_BYTES + written, &mut rest);
        link.connection.keep(&rest);
        // Only a failed attempt on a full socket arms the next writable event.
        if let Some(mut stream) = link.stream.as_ref() {
            link.connection.flush(&mut stream);
        }
    }

    /// Writes payload until it ends or the host takes no more. Returns the number of bytes written. A failure
    /// is left for the following flush to find again.
    fn write_to(&self, mut stream: &std::os::unix::net::UnixStream, length: usize) -> usize {
        let mut total = 0;
        for slice in self.buffer.slices(HEADER_BYTES, length) {
            let mut done = 0;
            while done < slice.len() {
                let Ok(rest) = slice.offset(done) else { return total };
                match stream.write_volatile(&rest) {
                    Ok(written) if written > 0 => {
                        done += written;
                        total += written;
                    }
                    Err(VolatileMemoryError::IOError(error)) if error.kind() == ErrorKind::Interrupted => {}
                    Ok(_) | Err(_) => return total,
                }
            }
        }
        total
    }
}
