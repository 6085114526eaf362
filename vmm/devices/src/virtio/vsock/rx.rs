//! Packets for the guest: their order, and their way into an rx buffer.
//!
//! The order is: resets for stray packets, then control packets, then bytes, connection by connection. Bytes
//! are read from the host's socket directly into the guest's buffer.

use std::io::ErrorKind;
use std::os::unix::net::UnixStream;

use vm_memory::{ReadVolatile, VolatileMemoryError};

use super::buffer::Buffer;
use super::connection::Ports;
use super::mux::Mux;
use super::packet::{HEADER_BYTES, HOST_CID, Header, Op, TYPE_STREAM};

/// Most bytes of a connection before the next one has its turn.
pub(super) const TURN_BYTES: usize = 64 * 1024;

/// Most payload in one packet, as in Linux (VIRTIO_VSOCK_MAX_PKT_BUF_SIZE).
const PAYLOAD_BYTES_MAX: usize = 64 * 1024;

/// The outcome of a read from the host.
enum HostRead {
    /// This many bytes, at least one.
    Bytes(usize),
    /// None for now. The next bytes raise an event.
    Empty,
    /// No more will come. A failed stream has ended too, because the other side left.
    Ended,
}

impl Mux {
    /// Writes the next packet into `buffer`. It must hold a header and at least one more byte. Returns the
    /// bytes written, or `None` if there is no packet.
    pub(super) fn fill(&mut self, buffer: Buffer) -> Option<u32> {
        loop {
            if let Some(header) = self.next_control() {
                buffer.write(&header.to_bytes());
                return Some(HEADER_BYTES as u32);
            }
            let (id, left) = self.next_turn()?;
            if let Some(sent) = self.fill_from(id, buffer, left) {
                return Some((HEADER_BYTES + sent) as u32);
            }
            // It had nothing to send. It may owe a control packet now.
        }
    }

    fn next_control(&mut self) -> Option<Header> {
        if let Some(reply) = self.replies.pop_front() {
            return Some(reply);
        }
        loop {
            let id = self.table.pop_control()?;
            let header = self.control_of(id);
            self.table.settle(id);
            if header.is_some() {
                return header;
            }
        }
    }

    fn control_of(&mut self, id: u64) -> Option<Header> {
        let guest_cid = self.guest_cid();
        let connection = &mut self.table.get_mut(id)?.connection;
        let (op, flags) = connection.next_control()?;
        let (buf_alloc, fwd_cnt) = connection.report_credit();
        Some(Header { flags, buf_alloc, fwd_cnt, ..header(guest_cid, connection.ports(), op) })
    }

    /// Returns the connection with a turn in progress, or else the next in line with a new turn.
    fn next_turn(&mut self) -> Option<(u64, usize)> {
        self.turn.take().or_else(|| self.table.pop_data().map(|id| (id, TURN_BYTES)))
    }

    /// Sends bytes of one connection, at most `left`. Returns the number of bytes.
    fn fill_from(&mut self, id: u64, buffer: Buffer, left: usize) -> Option<usize> {
        let guest_cid = self.guest_cid();
        let link = self.table.get_mut(id)?;
        let connection = &mut link.connection;
        let room = connection.credit() as usize;
        let limit = room.min(left).min(PAYLOAD_BYTES_MAX).min(buffer.bytes() - HEADER_BYTES);
        let mut sent = None;
        if let Some(stream) = &link.stream
            && limit > 0
            && connection.wants_host_bytes()
        {
            match read_into(stream, buffer, limit) {
                HostRead::Empty => link.readable = false,
                HostRead::Ended => connection.host_ended(),
                HostRead::Bytes(bytes) => {
                    connection.sent(bytes as u32);
                    let (buf_alloc, fwd_cnt) = connection.report_credit();
                    let header = Header {
                        len: bytes as u32,
                        buf_alloc,
                        fwd_cnt,
                        ..header(guest_cid, connection.ports(), Op::Data)
                    };
                    buffer.write(&header.to_bytes());
                    sent = Some(bytes);
                    if left > bytes {
                        self.turn = Some((id, left - bytes));
                        return sent;
                    }
                }
            }
        }
        // Back to the end of the line, if it still has something to send.
        self.table.settle(id);
        sent
    }
}

fn header(guest_cid: u64, ports: Ports, op: Op) -> Header {
    Header {
        src_cid: HOST_CID,
        dst_cid: guest_cid,
        src_port: ports.host,
        dst_port: ports.guest,
        kind: TYPE_STREAM,
        op: op.to_wire(),
        ..Header::default()
    }
}

/// Reads up to `limit` bytes (not 0) into the buffer after the header's place.
fn read_into(mut stream: &UnixStream, buffer: Buffer, limit: usize) -> HostRead {
    let mut total = 0;
    for mut slice in buffer.slices(HEADER_BYTES, limit) {
        let length = slice.len();
        let result = loop {
            match stream.read_volatile(&mut slice) {
                Err(VolatileMemoryError::IOError(error)) if error.kind() == ErrorKind::Interrupted => {}
                result => break result,
            }
        };
        match result {
            Ok(read) if read == length => total += read,
            Ok(read) if read > 0 => {
                total += read;
                break;
            }
            // Bytes first: the next read finds the same end again.
            _ if total > 0 => break,
            Err(VolatileMemoryError::IOError(error)) if error.kind() == ErrorKind::WouldBlock => {
                return HostRead::Empty;
            }
            Ok(_) | Err(_) => return HostRead::Ended,
        }
    }
    HostRead::Bytes(total)
}
