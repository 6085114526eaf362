//! One connection between a guest port and a host port, and its phases.
//!
//! A connection owns the phase, both halves' ends, the credit of both directions and the bytes on their way
//! to the host. The code decides and counts. It never touches a queue, guest memory or a descriptor (the
//! host's end is any [`Write`]), so it is tested without them.
//!
//! ```text
//!   dialled by the host                       dialled by the guest
//!    owes REQUEST                              owes RESPONSE
//!        │                                         │
//!    Requested ───────────RESPONSE──────────────> Open    each half ends by itself:
//!        │                                         │        guest SHUTDOWN(SEND): buffer delivered, then
//!        │                                         │          the stream's write side is shut
//!        │ RST, or the                             │        host end of file: owes SHUTDOWN(SEND)
//!        │ dialler left                            │        host reads no more: owes SHUTDOWN(RECEIVE)
//!        │              RST, SHUTDOWN of both, both halves ended, broken rules
//!        ▼                                         │
//!      Closed <────────────────────────────────────┘   owes RST unless the guest sent one; buffered
//!        │ nothing owed, nothing buffered              bytes still go to the host
//!        ▼
//!      over: its slot is free
//! ```
//!
//! After SHUTDOWN of both halves, the guest answers RST when it has read all bytes. There is no timer for
//! this.

use std::collections::VecDeque;
use std::io::{ErrorKind, Write};

use super::packet::{Op, SHUTDOWN_RECEIVE, SHUTDOWN_SEND};

/// Bytes from the guest kept by one connection for a slow host program. The guest reads it as `buf_alloc`.
pub(super) const BUFFER_BYTES: u32 = 256 * 1024;

/// A CREDIT_UPDATE is owed from this many delivered but unreported bytes on. A quarter of the buffer: the
/// guest never waits with less than three quarters of its credit.
const UNREPORTED_BYTES: u32 = BUFFER_BYTES / 4;

/// Capacity kept by an empty buffer; more is given back.
const KEPT_CAPACITY: usize = 4096;

/// The two ports of a connection. They identify it, because both context ids are fixed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Ports {
    /// The guest's.
    pub(super) guest: u32,
    /// The host's.
    pub(super) host: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Requested,
    Open,
    Closed,
}

/// Control packets waiting for an rx buffer. Flags: each is owed at most once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Owed {
    request: bool,
    response: bool,
    credit_update: bool,
    credit_request: bool,
    shutdown: bool,
    reset: bool,
}

/// The next step for a payload from the guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Admission {
    /// Deliver or keep all of it.
    Take,
    /// Discard it: there is no reader.
    Discard,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Connection {
    ports: Ports,
    by_guest: bool,
    phase: Phase,
    owed: Owed,
    /// The halves still open, as last reported by each side.
    guest_sends: bool,
    guest_receives: bool,
    host_sends: bool,
    host_receives: bool,
    /// SHUTDOWN flags sent to the guest.
    shutdown_sent: u32,
    /// True if the stream's sides have been shut.
    write_shut: bool,
    read_shut: bool,
    /// Guest to host, modulo 2^32: admitted bytes, bytes gone from our buffer, and the last reported number
    /// of the latter.
    admitted: u32,
    forwarded: u32,
    forwarded_reported: u32,
    /// Host to guest, modulo 2^32: sent bytes, and the guest's last report on its buffer.
    sent: u32,
    guest_alloc: u32,
    guest_forwarded: u32,
    /// A CREDIT_REQUEST was sent, and no packet came from the guest since.
    credit_asked: bool,
    buffer: VecDeque<u8>,
}

impl Connection {
    /// Called when a host program dialled: a REQUEST is owed.
    pub(super) fn dialled_by_host(ports: Ports) -> Connection {
        let mut connection = Connection::new(ports, false, Phase::Requested);
        connection.owed.request = true;
        connection
    }

    /// Called when the guest dialled and was accepted: a RESPONSE is owed.
    pub(super) fn dialled_by_guest(ports: Ports) -> Connection {
        let mut connection = Connection::new(ports, true, Phase::Open);
        connection.owed.response = true;
        connection
    }

    fn new(ports: Ports, by_guest: bool, phase: Phase) -> Connection {
        Connection {
            ports,
            by_guest,
            phase,
            owed: Owed::default(),
            guest_sends: true,
            guest_receives: true,
            host_sends: true,
            host_receives: true,
            shutdown_sent: 0,
            write_shut: false,
            read_shut: false,
            admitted: 0,
            forwarded: 0,
            forwarded_reported: 0,
            sent: 0,
            guest_alloc: 0,
            guest_forwarded: 0,
            credit_asked: false,
            buffer: VecDeque::new(),
        }
    }

    /// Returns the connection's ports. They identify it.
    pub(super) fn ports(&self) -> Ports {
        self.ports
    }

    /// Returns true if the guest dialled.
    pub(super) fn is_dialled_by_guest(&self) -> bool {
        self.by_guest
    }

    /// Returns true if the guest is done with the connection, and is not owed anything: its ports are free.
    pub(super) fn left_by_guest(&self) -> bool {
        self.phase == Phase::Closed && !self.owes()
    }

    /// Returns true if the host's end is no longer needed: no bytes will be written to it, none read from it.
    pub(super) fn left_by_host(&self) -> bool {
        let writes_done = self.buffer.is_empty() && (self.phase == Phase::Closed || !self.host_receives);
        writes_done && (self.phase == Phase::Closed || !self.host_sends)
    }

    /// Returns true if a control packet waits.
    pub(super) fn owes(&self) -> bool {
        self.owed != Owed::default()
    }

    /// Returns true if bytes are kept for the host.
    pub(super) fn is_buffering(&self) -> bool {
        !self.buffer.is_empty()
    }

    /// Bytes kept for the host.
    pub(super) fn kept_bytes(&self) -> usize {
        self.buffer.len()
    }

    // --- from the guest ---

    /// Records the credit in a packet. Every packet of an open connection carries it.
    pub(super) fn learn_credit(&mut self, buf_alloc: u32, fwd_cnt: u32) {
        self.guest_alloc = buf_alloc;
        self.guest_forwarded = fwd_cnt;
        self.credit_asked = false;
    }

    /// Handles the guest's acceptance. Returns false and resets if there was no request.
    pub(super) fn accept(&mut self) -> bool {
        let asked = self.phase == Phase::Requested && !self.owed.request;
        if asked {
            self.phase = Phase::Open;
        } else {
            self.reset();
        }
        asked
    }

    /// Decides whether `len` bytes from the guest are admitted. A guest exceeding its credit, or sending
    /// after its own end, is reset.
    pub(super) fn admit(&mut self, len: u32) -> Admission {
        if self.phase == Phase::Closed {
            return Admission::Discard;
        }
        let room = BUFFER_BYTES - self.admitted.wrapping_sub(self.forwarded);
        if self.phase == Phase::Requested || !self.guest_sends || len > room {
            self.reset();
            return Admission::Discard;
        }
        self.admitted = self.admitted.wrapping_add(len);
        if self.host_receives {
            return Admission::Take;
        }
        self.forward(len);
        Admission::Discard
    }

    /// Records `len` admitted bytes that reached the host without being kept.
    pub(super) fn forward(&mut self, len: u32) {
        self.forwarded = self.forwarded.wrapping_add(len);
        let open = self.phase == Phase::Open && self.guest_sends;
        if open && self.forwarded.wrapping_sub(self.forwarded_reported) >= UNREPORTED_BYTES {
            self.owed.credit_update = true;
        }
    }

    /// Keeps admitted bytes for later.
    pub(super) fn keep(&mut self, bytes: &[u8]) {
        self.buffer.extend(bytes);
        debug_assert!(self.buffer.len() <= BUFFER_BYTES as usize, "admission bounds the buffer");
    }

    /// Handles the guest's request for our credit.
    pub(super) fn credit_requested(&mut self) {
        self.owed.credit_update |= self.phase == Phase::Open;
    }

    /// Ends one or both of the guest's halves.
    pub(super) fn guest_shutdown(&mut self, flags: u32) {
        if self.phase == Phase::Requested {
            return self.reset();
        }
        self.guest_sends &= flags & SHUTDOWN_SEND == 0;
        self.guest_receives &= flags & SHUTDOWN_RECEIVE == 0;
        if !self.guest_receives {
            self.host_sends = false;
        }
        if !self.guest_sends && !self.guest_receives {
            self.reset();
        }
        self.close_if_ended();
    }

    /// Handles the guest's reset of this connection.
    pub(super) fn guest_reset(&mut self) {
        self.phase = Phase::Closed;
        self.owed = Owed::default();
    }

    // --- from the host ---

    /// Called when the host's bytes have ended, and all of them are sent.
    pub(super) fn host_ended(&mut self) {
        self.host_sends = false;
        self.owe_shutdown();
    }

    /// Called when the host will read no more of the guest's bytes: the kept ones are thrown away.
    pub(super) fn host_gone(&mut self) {
        if self.phase == Phase::Requested {
            return self.reset();
        }
        self.host_receives = false;
        self.guest_sent_to_nobody();
        self.owe_shutdown();
    }

    fn guest_sent_to_nobody(&mut self) {
        let kept = u32::try_from(self.buffer.len()).unwrap_or(BUFFER_BYTES);
        self.buffer = VecDeque::new();
        self.forward(kept);
    }

    fn owe_shutdown(&mut self) {
        if self.phase == Phase::Open {
            self.owed.shutdown = self.shutdown_flags() & !self.shutdown_sent != 0;
            self.close_if_ended();
        }
    }

    /// Returns SHUTDOWN flags for the halves ended by the host, as far as they concern the guest.
    fn shutdown_flags(&self) -> u32 {
        let send = if self.host_sends { 0 } else { SHUTDOWN_SEND };
        let receive = if self.host_receives || !self.guest_sends { 0 } else { SHUTDOWN_RECEIVE };
        send | receive
    }

    /// If both senders have ended, RST after the owed SHUTDOWN completes the connection for the guest.
    fn close_if_ended(&mut self) {
        if self.phase == Phase::Open && !self.guest_sends && !self.host_sends {
            self.phase = Phase::Closed;
            self.owed = Owed { shutdown: self.owed.shutdown, reset: true, ..Owed::default() };
        }
    }

    /// Ends the connection from this side. Bytes already kept still go to the host.
    pub(super) fn reset(&mut self) {
        if self.phase != Phase::Closed {
            // A guest that never heard of the connection need not hear of its end.
            let unheard = self.phase == Phase::Requested && self.owed.request;
            self.phase = Phase::Closed;
            self.owed = Owed { reset: !unheard, ..Owed::default() };
        }
    }

    // --- to the host ---

    /// Writes the kept bytes until all are written or `host` would block. Other failures end that half.
    pub(super) fn flush(&mut self, host: &mut impl Write) {
        while !self.buffer.is_empty() {
            match host.write(self.buffer.as_slices().0) {
                Ok(0) => return self.host_gone(),
                Ok(written) => {
                    self.buffer.drain(..written);
                    self.forward(u32::try_from(written).unwrap_or(BUFFER_BYTES));
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(_) => return self.host_gone(),
            }
        }
        self.buffer.shrink_to(KEPT_CAPACITY);
    }

    /// Returns true once, when the guest has ended its half and the host has all its bytes: shut the write
    /// side now.
    pub(super) fn shuts_write_side(&mut self) -> bool {
        let due = !self.guest_sends && self.buffer.is_empty() && !self.write_shut;
        self.write_shut |= due;
        due
    }

    /// Returns true once, when the guest takes no more bytes: shut the read side now, to notify the host.
    pub(super) fn shuts_read_side(&mut self) -> bool {
        let due = !self.guest_receives && !self.read_shut;
        self.read_shut |= due;
        due
    }

    // --- to the guest ---

    /// Returns true if bytes should be read from the host, given credit.
    pub(super) fn wants_host_bytes(&self) -> bool {
        self.phase == Phase::Open && self.host_sends && self.guest_receives && !self.owed.response
    }

    /// Returns the bytes the guest can take now. At zero a CREDIT_REQUEST is owed, only once until the
    /// guest's next packet.
    pub(super) fn credit(&mut self) -> u32 {
        let in_flight = self.sent.wrapping_sub(self.guest_forwarded);
        let credit = self.guest_alloc.saturating_sub(in_flight);
        if credit == 0 && !self.credit_asked && self.wants_host_bytes() {
            self.credit_asked = true;
            self.owed.credit_request = true;
        }
        credit
    }

    /// Records `len` bytes sent to the guest, within [`credit`](Self::credit).
    pub(super) fn sent(&mut self, len: u32) {
        self.sent = self.sent.wrapping_add(len);
    }

    /// Returns `buf_alloc` and `fwd_cnt` for the next packet to the guest.
    pub(super) fn report_credit(&mut self) -> (u32, u32) {
        self.forwarded_reported = self.forwarded;
        self.owed.credit_update = false;
        (BUFFER_BYTES, self.forwarded)
    }

    /// Returns the next control packet and its flags, most urgent first. It counts as sent.
    pub(super) fn next_control(&mut self) -> Option<(Op, u32)> {
        let owed = &mut self.owed;
        let order = [
            (Op::Request, &mut owed.request),
            (Op::Response, &mut owed.response),
            (Op::CreditUpdate, &mut owed.credit_update),
            (Op::CreditRequest, &mut owed.credit_request),
            (Op::Shutdown, &mut owed.shutdown),
            (Op::Reset, &mut owed.reset),
        ];
        let (op, flag) = order.into_iter().find(|(_, flag)| **flag)?;
        *flag = false;
        if op != Op::Shutdown {
            return Some((op, 0));
        }
        self.shutdown_sent |= self.shutdown_flags();
        Some((op, self.shutdown_sent))
    }
}
