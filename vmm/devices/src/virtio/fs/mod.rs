//! virtio-fs: a directory of the host as a file system (virtio 1.2, section 5.11). The driver sends FUSE
//! requests (linux/fuse.h). `fuse-backend-rs` parses them and carries them out.
//!
//! The files are not in this process: an attacker in the VMM has none of them. The device owns the queues
//! between activation and reset. It passes requests to the share, a process with the pod's volumes and
//! nothing else. Nothing here decides about access to files. The share's root, credentials and filters do,
//! and its jail sets them before it serves.
//!
//! ```text
//!   guest ──queues──► device, up to 16 threads ══ link ══► share's process, a thread each ──► node's files
//!                          │                                                │
//!                          └──── reads and writes of opened files ◄─────────┘ their descriptors
//! ```
//!
//! In the VMM, `device` is the transport's view, `worker` takes requests off the queues, `request` passes
//! them on, `content` reads and writes the files in `opened`, and `locks` has the waiting requests. In the
//! share, `share` defines the service, and `locks` has the owners of locks. `link` is between the two, and
//! `message` reads the objects in messages for both.

mod content;
pub mod credentials;
mod device;
mod link;
mod locks;
mod message;
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

/// Most bytes of a request or of its answer: 1 MiB of data, the maximum of FUSE, with headers.
pub(crate) const MESSAGE_BYTES_MAX: usize = (1 << 20) + (64 << 10);

/// Most bytes of one answer to READDIR. A driver asks for a page or a few.
pub(crate) const LISTING_BYTES_MAX: u32 = link::DATA_BYTES_MAX as u32;
