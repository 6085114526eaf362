//! Messages between the VMM and the share's process. The VMM has the guest's memory and its queues, and the
//! share has the files. Neither trusts the other: a guest may have taken over its VMM, and requests the
//! share.
//!
//! ```text
//!   VMM                                                    the share's process
//!   ShareLink ──── control: a channel is wanted ─────────► ShareServer, its first thread
//!             ◄─── control: ready, a channel's other end, or the last words
//!   Channel ══════ one packet each way, one at a time ════ a thread of its own
//! ```
//!
//! Each thread of the device has a channel, a pair of sockets for packets (SOCK_SEQPACKET). The share has a
//! thread for each channel: a request kept waiting by the node keeps only its own channel. The kernel
//! copies packets: neither side can change them after the other has read them. A channel ends when either
//! side closes it, and everything ends with the control socket. Descriptors go from the share to the VMM
//! alone. The VMM's filter lets it send none, because the daemon would have to close what came.
//!
//! `packet` is the form of packets, `socket` sends and receives them, `caller` is the VMM's end, `channel`
//! the connection of a thread of the VMM, `server` the share's end, and `sheet` the library's memory for a
//! request.

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
