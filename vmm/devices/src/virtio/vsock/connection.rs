//! One connection between a guest port and a host port, and its phases.
//!
//! A connection owns the phase, both halves' ends, the credit of both directions and the bytes on their way to
//! the host. The code decides and counts; it never touches a queue, guest memory or a descriptor (the host's end is
//! any [`Write`]), so it is tested without them.
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
//!      Closed <────────────────────────────────────┘   owes RST unless the guest sent one; what is
//!        │ nothing owed, nothing buffered              buffered still goes to the host
//!        ▼
//!      over: its slot is free
//! ```
//!
//! A guest that has heard SHUTDOWN of both halves answers RST when it has read all; no timer runs for it.

use std::collections::VecDeque;
use std::io::{ErrorKind, Write};

use super::packet::{Op, SHUTDOWN_RECEIVE, SHUTDOWN_SEND};

/// Bytes from the guest that one connection keeps for a slow host program; the guest reads it as `buf_alloc`.
pub(super) const BUFFER_BYTES: u32 = 256 * 1024;

/// Bytes delivered to the host and not yet reported to the guest, from which on a CREDIT_UPDATE is owed. A quarter
/// of the buffer: the guest never waits with less than three quarters of its credit.
const UNREPORTED_BYTES: u32 = BUFFER_BYTES / 4;

/// Capacity that an empty buffer keeps; more is given back.
const KEPT_CAPACITY: usize = 4096;

/// The two ports that name a connection, since both context ids are fixed.
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

/// Control packets that wait for an rx buffer. Flags: each is owed at most once.
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
    /// Nobody will read it.
    Discard,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Connection {
    ports: Ports,
    by_guest: bool,
    phase: Phase,
    owed: Owed,
    /// The halves that are still open, as each side last said.
    guest_sends: bool,
    guest_receives: bool,
    host_sends: bool,
    host_receives: bool,
    /// SHUTDOWN flags that were sent to the guest.
    shutdown_sent: u32,
    /// Whether the stream's sides have been shut.
    write_shut: bool,
    read_shut: bool,
    /// Guest to host, modulo 2^32: bytes admitted, bytes that left our buffer, and the last reported of those.
    admitted: u32,
    forwarded: u32,
    forwarded_reported: u32,
    /// Host to guest, modulo 2^32: bytes sent, and the guest's last word on its buffer.
    sent: u32,
    guest_alloc: u32,
    guest_forwarded: u32,
    /// A CREDIT_REQUEST went out and the guest has not been heard since.
    credit_asked: bool,
    buffer: VecDeque<u8>,
}

impl Connection {
    /// A host program dialled: a REQUEST is owed.
    pub(super) fn dialled_by_host(ports: Ports) -> Connection {
        let mut connection = Connection::new(ports, false, Phase::Requested);
        connection.owed.request = true;
        connection
    }

    /// The guest dialled and was accepted: a RESPONSE is owed.
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

    /// Returns the connection's name.
    pub(super) fn ports(&self) -> Ports {
        self.ports
    }

    /// Whether the guest dialled.
    pub(super) fn is_dialled_by_guest(&self) -> bool {
        self.by_guest
    }

    /// The guest has nothing more to do with it, and is not owed anything: its ports are free.
    pub(super) fn left_by_guest(&self) -> bool {
        self.phase == Phase::Closed && !self.owes()
    }

    /// The host's end has no more use: no bytes will be written to it, none read from it.
    pub(super) fn left_by_host(&self) -> bool {
        let writes_done = self.buffer.is_empty() && (self.phase == Phase::Closed || !self.host_receives);
        writes_done && (self.phase == Phase::Closed || !self.host_sends)
    }

    /// Whether a control packet waits.
    pub(super) fn owes(&self) -> bool {
        self.owed != Owed::default()
    }

    /// Whether bytes are kept for the host.
    pub(super) fn is_buffering(&self) -> bool {
        !self.buffer.is_empty()
    }

    // --- what the guest says ---

    /// Takes on the credit that every packet of an open connection carries.
    pub(super) fn learn_credit(&mut self, buf_alloc: u32, fwd_cnt: u32) {
        self.guest_alloc = buf_alloc;
        self.guest_forwarded = fwd_cnt;
        self.credit_asked = false;
    }

    /// The guest accepts. False, and reset, if it was not asked.
    pub(super) fn accept(&mut self) -> bool {
        let asked = self.phase == Phase::Requested && !self.owed.request;
        if asked {
            self.phase = Phase::Open;
        } else {
            self.reset();
        }
        asked
    }

    /// Whether `len` bytes from the guest may come. A guest that oversteps its credit or its own end is reset.
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

    /// `len` admitted bytes reached the host without being kept.
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

    /// The guest asks for our credit.
    pub(super) fn credit_requested(&mut self) {
        self.owed.credit_update |= self.phase == Phase::Open;
    }

    /// The guest ends one half or both.
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

    /// The guest is gone from this connection.
    pub(super) fn guest_reset(&mut self) {
        self.phase = Phase::Closed;
        self.owed = Owed::default();
    }

    // --- what the host says ---

    /// The host's bytes have ended, and all of them are sent.
    pub(super) fn host_ended(&mut self) {
        self.host_sends = false;
        self.owe_shutdown();
    }

    /// Nobody will read what the guest sends: what is kept is thrown away.
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

    /// SHUTDOWN flags for the halves that the host has ended, as far as they concern the guest.
    fn shutdown_flags(&self) -> u32 {
        let send = if self.host_sends { 0 } else { SHUTDOWN_SEND };
        let receive = if self.host_receives || !self.guest_sends { 0 } else { SHUTDOWN_RECEIVE };
        send | receive
    }

    /// Both senders have ended: after the owed SHUTDOWN, RST says to the guest that all is done.
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

    /// Writes what is kept until all is written or `host` would block. Other failures end that half.
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

    /// True once, when the guest has ended its half and the host has all its bytes: shut the write side now.
    pub(super) fn shuts_write_side(&mut self) -> bool {
        let due = !self.guest_sends && self.buffer.is_empty() && !self.write_shut;
        self.write_shut |= due;
        due
    }

    /// True once, when the guest takes no more bytes: shut the read side now, so that the host hears of it.
    pub(super) fn shuts_read_side(&mut self) -> bool {
        let due = !self.guest_receives && !self.read_shut;
        self.read_shut |= due;
        due
    }

    // --- to the guest ---

    /// Whether bytes are to be read from the host, were there credit.
    pub(super) fn wants_host_bytes(&self) -> bool {
        self.phase == Phase::Open && self.host_sends && self.guest_receives && !self.owed.response
    }

    /// Bytes that the guest can take now. At zero a CREDIT_REQUEST is owed, once until the guest is heard.
    pub(super) fn credit(&mut self) -> u32 {
        let in_flight = self.sent.wrapping_sub(self.guest_forwarded);
        let credit = self.guest_alloc.saturating_sub(in_flight);
        if credit == 0 && !self.credit_asked && self.wants_host_bytes() {
            self.credit_asked = true;
            self.owed.credit_request = true;
        }
        credit
    }

    /// `len` bytes, within [`credit`](Self::credit), went to the guest.
    pub(super) fn sent(&mut self, len: u32) {
        self.sent = self.sent.wrapping_add(len);
    }

    /// `buf_alloc` and `fwd_cnt` for a packet that now goes to the guest.
    pub(super) fn report_credit(&mut self) -> (u32, u32) {
        self.forwarded_reported = self.forwarded;
        self.owed.credit_update = false;
        (BUFFER_BYTES, self.forwarded)
    }

    /// The next control packet and its flags, most urgent first; it counts as sent.
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
