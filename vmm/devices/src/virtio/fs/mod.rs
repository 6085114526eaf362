//! virtio-fs: a directory of the host as a file system (virtio 1.2, section 5.11). The driver sends FUSE
//! requests (linux/fuse.h); `fuse-backend-rs` parses them and carries them out.
//!
//! The files are not in this process: a VMM that its guest has taken over has none of them. The device owns the queues between activation
//! and reset, and has a process of its own do what they ask, which has the pod's volumes and nothing else. Nothing here decides which files
//! may be touched: that process's root, credentials and filters do, which the VMM's jail sets before it serves.
//!
//! ```text
//!   guest ──queues──► device, up to 16 threads ══ link ══► share's process, a thread for each ──► files of the node
//!                          │                                                │
//!                          └──── reads and writes of opened files ◄─────────┘ their descriptors
//! ```
//!
//! Of the VMM: `device` is what the transport sees, `worker` takes requests off the queues, `request` passes them on, `content` reads and
//! writes the files in `opened`, `locks` has the requests that wait. Of the share: `share` says what is served and what is not, and
//! `locks` the owners of locks. `link` is between the two.

mod content;
pub mod credentials;
mod device;
mod link;
mod locks;
mod opened;
mod request;
mod share;
mod snapshot;
#[cfg(test)]
mod tests;
mod worker;

pub use device::Fs;
pub use link::{ShareLink, ShareServer};
pub use opened::OPENED_MAX;
pub use share::{Cache, Share};
pub use snapshot::FsSnapshot;

/// The device's name in errors, and the thread's.
const DEVICE: &str = "fs";

/// Bytes of a request or of its answer: the 1 MiB of data that FUSE may send at most, with headers.
pub(crate) const MESSAGE_BYTES_MAX: usize = (1 << 20) + (64 << 10);

/// Bytes of one answer to READDIR; a driver asks for a page or a few.
pub(crate) const LISTING_BYTES_MAX: u32 = link::DATA_BYTES_MAX as u32;
