//! The process's descriptors as a whole.

use std::io;

/// Closes all descriptors but the standard ones in programs executed by the process, no matter who opened
/// them.
///
/// # Errors
/// The kernel is older than Linux 5.11. Descriptors opened by this program are closed then all the same.
pub fn close_on_exec() -> io::Result<()> {
    const FIRST: libc::c_uint = 3;
    // SAFETY: the call closes nothing here, and touches no memory.
    let marked =
        unsafe { libc::syscall(libc::SYS_close_range, FIRST, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC) };
    if marked == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
