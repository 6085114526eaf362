//! virtio-mem: memory that the guest takes and gives back in blocks (virtio 1.2, section 5.15).
//!
//! The device owns the record of which blocks of its region are plugged, and gives unplugged ones back to the
//! host. Never does it plug more than is requested, nor touch memory outside its region.
//!
//! ```text
//!   driver → device, 24 bytes                           device → driver, 10 bytes
//!   ┌────────────────────────────────────────────┐      ┌─────────────────────────────────────────┐
//!   │ type u16: PLUG, UNPLUG, UNPLUG_ALL, STATE  │      │ type u16: ACK, NACK, BUSY, ERROR        │
//!   │ (6 bytes) addr u64, blocks u16, (6 bytes)  │      │ (6 bytes) state u16: PLUGGED, …, MIXED  │
//!   └────────────────────────────────────────────┘      └─────────────────────────────────────────┘
//! ```
//!
//! The VM asks for another size through a [`MemHandle`]; the driver learns of it by a change of the
//! configuration space and plugs or unplugs in its own time. Requests are served on the vCPU's thread:
//! there are few, and each is one call of the host's at most.

mod blocks;
mod device;
mod region;
mod request;
mod snapshot;
#[cfg(test)]
mod tests;

pub use blocks::Blocks;
pub use device::Mem;
pub use region::MemHandle;
pub use snapshot::MemSnapshot;

/// Bytes that are plugged or unplugged at once: a large page, and what Linux gives and takes at least
/// (`pageblock_order`).
pub const BLOCK_BYTES: u64 = 2 << 20;
