//! Opens directories writable by a guest, without following links. Nothing here reads or changes one.

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{Mode, OFlags, openat};

/// Opens the directory with this name in `parent`.
///
/// # Errors
/// The kernel's refusal; `NOTDIR` if the name is a link.
pub(crate) fn open_directory(parent: impl AsFd, name: impl rustix::path::Arg) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(parent, name, flags, Mode::empty())
}
