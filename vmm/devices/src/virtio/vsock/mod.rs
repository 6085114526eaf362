//! virtio-vsock in user space: byte streams between host programs and guest programs (virtio 1.2 section
//! 5.10).
//!
//! # The protocol in short
//!
//! There are three queues. The guest's packets come on *tx*, ours go into the guest's buffers on *rx*, and
//! *event* announces that all connections are gone. A packet is a 44-byte header and, for data, a payload.
//! The guest's port and the host's identify a connection, because the two context ids are always the same.
//!
//! ```text
//!   REQUEST ──>            asks for a connection
//!          <── RESPONSE    accepts it, or RST
//!        <─RW─>            bytes, in order, never lost
//!   SHUTDOWN ──>           "I send no more" (SEND), "I read no more" (RECEIVE), or both
//!          <── RST         the orderly end; or, at any time, the end at once
//! ```
//!
//! Each header has the size of its sender's buffer (`buf_alloc`) and the number of bytes gone from it
//! (`fwd_cnt`). The peer may have `buf_alloc - (bytes sent - fwd_cnt)` bytes more under way: its *credit*.
//! CREDIT_UPDATE is a packet for that alone, CREDIT_REQUEST asks for one.
//!
//! # The host side
//!
//! A host program dials the listener and writes `CONNECT <port>\n`. Once the guest accepts, it reads
//! `OK <host port>\n` and has its stream. When the guest opens a stream to the host (context id 2), and may
//! dial this port, a callback gets the stream's number. The stream is open for the guest at once, and its
//! bytes are kept. A host program accepts it by dialling the listener and writing `ACCEPT <number>\n`. So no
//! descriptor goes from this process to another one.
//!
//! # Modules
//!
//! ```text
//!   device.rs      front end: configuration, start, pause, save       snapshot.rs  the saved state
//!   worker.rs      the thread: epoll, turns, interrupts
//!   lane.rs        a queue, its direction and notifications           buffer.rs    a chain's bytes in memory
//!   tx.rs, rx.rs   chain → packet → host; host → packet → chain
//!   mux.rs         the meaning of packets, and their connections
//!   table.rs       connections, ports, places in line                 dial.rs      the diallers' requests
//!   dial_rules.rs  rules for the guest's dials: pure
//!   connection.rs  one connection's states, credit and buffer: pure   packet.rs    the header: pure
//! ```
//!
//! Bounds on a hostile guest: connections (`table::CONNECTIONS_MAX`), its ports, streams and rate of dials
//! (`dial_rules`), bytes kept per connection (`connection::BUFFER_BYTES`), waiting resets
//! (`mux::REPLIES_MAX`), and one log line.

mod buffer;
mod connection;
mod device;
mod dial;
mod dial_rules;
pub mod fuzz;
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
