//! What fuzz targets of the VMM's devices have in common: guest memory whose surroundings are watched, a driver's side of slots and
//! queues, the host's side of each device, and programs of operations that the fuzzer's input is read as.
//!
//! Start at [`program`], which has the operations. `memory`, `leftovers` and `queue` say what must hold.

pub mod bytes;
pub mod files;
pub mod fuse;
pub mod host;
pub mod leftovers;
pub mod memory;
pub mod program;
pub mod queue;
pub mod requests;
pub mod share;
pub mod slot;
pub mod streams;

/// Prepares the process, as Rust programs are that begin with a `main`: who hangs up does not end it.
pub fn begin() {
    // SAFETY: no handler of this process' own is replaced or set.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
}
