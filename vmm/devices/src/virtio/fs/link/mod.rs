//! What the VMM and the share's process say to each other. The VMM has the guest's memory and its queues; the share has the
//! files. Neither trusts the other: a VMM may have been taken over by its guest, and a share by what it was asked.
//!
//! ```text
//!   VMM                                                    the share's process
//!   ShareLink ──── control: a channel's other end ───────► ShareServer, its first thread
//!             ◄─── control: ready, or the last words ─────
//!   Channel ══════ one packet each way, one at a time ════ a thread of its own
//! ```
//!
//! Each thread of the device has a channel, a pair of sockets that keep packets apart (SOCK_SEQPACKET), and the share has a thread for
//! each: a request that the node keeps waiting keeps its own channel. The kernel copies packets, so that neither side can change what the
//! other has read. A channel ends when either side closes it, and everything ends with the control socket.
//!
//! `packet` is the form of packets, `socket` sends and receives them, `caller` is the VMM's end, `channel` what a thread of the VMM has,
//! `server` the share's end, `sheet` the memory in which the library finds a request.

mod caller;
mod channel;
mod packet;
mod server;
mod sheet;
mod socket;
#[cfg(test)]
mod tests;

pub use caller::ShareLink;
pub(super) use channel::{Answer, Channel};
pub(super) use packet::{ANSWER_BYTES_MAX, DATA_BYTES_MAX, REQUEST_BYTES_MAX};
pub use server::ShareServer;
