//! virtio-mem: memory taken and given back by the guest in blocks (virtio 1.2, section 5.15).
//!
//! The device owns the record of its region's plugged blocks, and gives unplugged ones back to the host. It
//! never plugs more than requested, and never touches memory outside its region.
//!
//! ```text
//!   driver → device, 24 bytes                           device → driver, 10 bytes
//!   ┌────────────────────────────────────────────┐      ┌─────────────────────────────────────────┐
//!   │ type u16: PLUG, UNPLUG, UNPLUG_ALL, STATE  │      │ type u16: ACK, NACK, BUSY, ERROR        │
//!   │ (6 bytes) addr u64, blocks u16, (6 bytes)  │      │ (6 bytes) state u16: PLUGGED, …, MIXED  │
//!   └────────────────────────────────────────────┘      └─────────────────────────────────────────┘
//! ```
//!
//! The VM requests another size through a [`MemHandle`]. The driver sees it in the configuration space and
//! plugs or unplugs in its own time. Requests are served on the vCPU's thread: there are few, and each is at
//! most one system call on the host.

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

/// Bytes plugged or unplugged at once: a large page, and Linux's smallest unit (`pageblock_order`).
pub const BLOCK_BYTES: u64 = 2 << 20;
