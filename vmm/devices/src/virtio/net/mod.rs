//! virtio-net: an interface whose other end is a tap (virtio 1.2, section 5.1).
//!
//! The device owns the tap's descriptor and, between activation and reset, the queues. Never does it look
//! into a packet: tap and driver speak the same header, so frames and offload requests pass as they are.
//!
//! ```text
//!   queue 0, receive:   tap ──readv──> driver's buffers      queue 1, transmit:   driver's buffers ──writev──> tap
//!
//!   ┌───────┬──────────┬─────────┬──────────┬────────────┬─────────────┬─────────────┬───────────┐
//!   │ flags │ gso type │ hdr len │ gso size │ csum start │ csum offset │ num buffers │ frame ... │
//!   │  u8   │    u8    │   u16   │   u16    │    u16     │     u16     │     u16     │           │
//!   └───────┴──────────┴─────────┴──────────┴────────────┴─────────────┴─────────────┴───────────┘
//! ```
//!
//! The tap fills all of the header but `num buffers`: over how many of the driver's chains the packet
//! lies, which the device fills in. A packet that finds no room is dropped and counted, as on any wire.
//!
//! By queue 2, control, the driver says which frames it wants, and the tap drops the others before anybody wakes:
//!
//! ```text
//!   control ──command──> receive: the driver's wishes ──> filter ──TUNSETTXFILTER──> tap
//! ```
//!
//! `rx`, `tx` and `control` each serve a queue, `held` has the chains that `rx` took ahead, `worker` moves frames on one
//! thread, `commands` carries out commands on the vCPUs', `drops` counts lost frames, `tap` changes settings in the kernel.

mod commands;
mod control;
mod device;
mod drops;
mod filter;
mod held;
mod offloads;
mod receive;
mod rx;
mod snapshot;
mod tap;
#[cfg(test)]
mod tests;
mod tx;
mod worker;

pub use device::Net;
pub use receive::ReceiveMode;
pub use snapshot::NetSnapshot;

/// Bytes of the header before each frame, with VIRTIO_F_VERSION_1 (section 5.1.6.1).
pub(crate) const HEADER_BYTES: u32 = 12;

/// Where `num buffers` lies in the header.
pub(crate) const NUM_BUFFERS_OFFSET: u64 = 10;

/// Header and longest frame that can come when segments are merged on the way: what section 5.1.6.3.1
/// asks drivers to have room for.
pub(crate) const MERGED_BYTES_MAX: u64 = 65_562;

/// Bytes that a frame has beyond its MTU: Ethernet addresses, type and a VLAN tag.
pub(crate) const ETHERNET_BYTES: u64 = 18;
