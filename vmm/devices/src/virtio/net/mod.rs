//! virtio-net: an interface with a tap as its other end (virtio 1.2, section 5.1).
//!
//! The device owns the tap's descriptor and, between activation and reset, the queues. It never looks into a
//! packet: tap and driver use the same header, so frames and offload requests pass unchanged.
//!
//! ```text
//!   queue 0, receive: tap ──readv──> driver's buffers   queue 1, transmit: driver's buffers ──writev──> tap
//!
//!   ┌───────┬──────────┬─────────┬──────────┬────────────┬─────────────┬─────────────┬───────────┐
//!   │ flags │ gso type │ hdr len │ gso size │ csum start │ csum offset │ num buffers │ frame ... │
//!   │  u8   │    u8    │   u16   │   u16    │    u16     │     u16     │     u16     │           │
//!   └───────┴──────────┴─────────┴──────────┴────────────┴─────────────┴─────────────┴───────────┘
//! ```
//!
//! The tap fills the header except for `num buffers`, the number of the driver's chains with parts of the
//! packet. The device fills it in. A packet without room is dropped and counted, as on any wire.
//!
//! With queue 2, control, the driver selects the frames it wants, and the tap drops the others before any
//! thread wakes:
//!
//! ```text
//!   control ──command──> receive: the driver's wishes ──> filter ──TUNSETTXFILTER──> tap
//! ```
//!
//! `rx`, `tx` and `control` each serve a queue, `held` has the chains taken in advance by `rx`, `worker`
//! moves frames on one thread, `commands` carries out commands on the vCPUs' threads, `drops` counts lost
//! frames, `tap` changes settings in the kernel.

mod commands;
mod control;
mod device;
mod drops;
mod filter;
pub mod fuzz;
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

/// Offset of `num buffers` in the header.
pub(crate) const NUM_BUFFERS_OFFSET: u64 = 10;

/// Header and longest possible frame with segments merged on the way: drivers must have room for it (section
/// 5.1.6.3.1).
pub(crate) const MERGED_BYTES_MAX: u64 = 65_562;

/// Bytes of a frame beyond its MTU: Ethernet addresses, type and a VLAN tag.
pub(crate) const ETHERNET_BYTES: u64 = 18;
