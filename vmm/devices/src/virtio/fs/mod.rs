//! virtio-fs: a directory of the host as a file system (virtio 1.2, section 5.11). The driver sends FUSE
//! requests (linux/fuse.h); `fuse-backend-rs` parses them and carries them out.
//!
//! The device owns the queues between activation and reset. Nothing here decides which files may be touched:
//! the serving thread's root, credentials and filters do, which the VMM's jail sets before it starts.
//!
//! ```text
//!   device ──a session: queues, stop──► ShareThread ("fs", as old as the process) ──► Share ──► host files
//!     ▲                                     │     └── up to 15 threads more ─────────────┘
//!     └───────the queues as they stand──────┘
//! ```
//!
//! `device` is what the transport sees, `worker` takes requests off the queues, `request` reads them, `thread` is where
//! that happens, `share` says what is served and what is not, `locks` has what the guest locks or waits for.

pub mod credentials;
mod device;
mod locks;
mod request;
mod share;
mod snapshot;
#[cfg(test)]
mod tests;
mod thread;
mod worker;

pub use device::Fs;
pub use share::{Cache, Share};
pub use snapshot::FsSnapshot;
pub use thread::ShareThread;

/// The device's name in errors, and the thread's.
const DEVICE: &str = "fs";

/// Bytes of a request or of its answer: the 1 MiB of data that FUSE may send at most, with headers.
pub(crate) const MESSAGE_BYTES_MAX: usize = (1 << 20) + (64 << 10);

/// Bytes of one answer to READDIR; a driver asks for a page or a few.
pub(crate) const LISTING_BYTES_MAX: u32 = 128 << 10;
