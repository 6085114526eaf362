//! virtio-vsock in user space: byte streams between host programs and guest programs (virtio 1.2 section 5.10).
//!
//! # The protocol in short
//!
//! Three queues: the guest's packets come on *tx*, ours go into buffers that it puts on *rx*, and *event* says
//! that all connections are gone. A packet is a 44-byte header and, for data, a payload. A connection is named by
//! the guest's port and the host's, since the context ids are always the same two.
//!
//! ```text
//!   REQUEST ──>            asks for a connection
//!          <── RESPONSE    accepts it, or RST
//!        <─RW─>            bytes, in order, never lost
//!   SHUTDOWN ──>           "I send no more" (SEND), "I read no more" (RECEIVE), or both
//!          <── RST         all is done; or, at any time, all is off
//! ```
//!
//! Each header says how much buffer its sender has (`buf_alloc`) and how many bytes have left it (`fwd_cnt`). The
//! peer may have `buf_alloc - (bytes sent - fwd_cnt)` bytes more under way: its *credit*. CREDIT_UPDATE is a
//! packet for that alone, CREDIT_REQUEST asks for one.
//!
//! # The host side
//!
//! A host program dials the listener and writes `CONNECT <port>\n`; once the guest accepts, it reads `OK <host port>\n`
//! and has its stream. A stream that the guest opens to the host (context id 2) has a number, which goes to a callback if the
//! guest may dial that port. It is open for the guest at once, and its bytes are kept. A host program accepts it by dialling the
//! listener and writing `ACCEPT <number>\n`: so no descriptor goes from this process to another one.
//!
//! # Who does what
//!
//! ```text
//!   device.rs      front end: configuration, start, pause, save         snapshot.rs what is saved
//!   worker.rs      the thread: epoll, turns, interrupts
//!   lane.rs        a queue, its direction and notifications         buffer.rs  a chain's bytes in guest memory
//!   tx.rs, rx.rs   chain → packet → host; host → packet → chain
//!   mux.rs         which packet means what, and to which connection
//!   table.rs       connections, ports, places in line                   dial.rs    what diallers want
//!   dial_rules.rs  what the guest may dial: pure
//!   connection.rs  one connection's states, credit and buffer: pure     packet.rs  the header: pure
//! ```
//!
//! Bounds on a hostile guest: connections (`table::CONNECTIONS_MAX`), the ports that it dials, how many at once and how
//! often (`dial_rules`), bytes kept per connection
//! (`connection::BUFFER_BYTES`), waiting resets (`mux::REPLIES_MAX`), and one log line.

mod buffer;
mod connection;
mod device;
mod dial;
mod dial_rules;
mod lane;
mod mux;
mod packet;
mod rx;
mod snapshot;
mod table;
mod tx;
mod worker;

#[cfg(test)]
mod tests;

pub use device::Vsock;
pub use dial_rules::HostPorts;
pub use mux::GuestStream;
