//! `mount_setattr(2)`, an unsafe system call missing in nix and rustix. `tree.rs` chooses the attributes.

#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// `MOUNT_ATTR_RDONLY` (linux/mount.h).
pub(crate) const READ_ONLY: u64 = 0x1;

/// `MOUNT_ATTR_NOSUID` and `MOUNT_ATTR_NODEV` (linux/mount.h).
pub(crate) const NO_SET_USER: u64 = 0x2;
pub(crate) const NO_DEVICES: u64 = 0x4;

/// `MOUNT_ATTR_IDMAP` (linux/mount.h).
pub(crate) const MAPPED: u64 = 0x0010_0000;

/// Propagation types (mount(2)).
pub(crate) const PRIVATE: u64 = libc::MS_PRIVATE;
pub(crate) const SLAVE: u64 = libc::MS_SLAVE;

/// `struct mount_attr`, version 0 (linux/mount.h).
#[repr(C)]
#[derive(Debug, Default)]
pub(crate) struct Attributes {
    pub(crate) set: u64,
    pub(crate) clear: u64,
    pub(crate) propagation: u64,
    pub(crate) user_namespace: u64,
}

/// Changes the mount with root `tree`, and with `recursive` all mounts below it: all or none.
pub(crate) fn set(tree: BorrowedFd<'_>, recursive: bool, attributes: &Attributes) -> io::Result<()> {
    let flags = libc::AT_EMPTY_PATH | if recursive { libc::AT_RECURSIVE } else { 0 };
    // SAFETY: `tree` is open, the path is a `'static` empty string, and `attributes` is a whole `struct
    // mount_attr` of the given size. The kernel only reads it.
    let outcome = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            tree.as_raw_fd(),
            c"".as_ptr(),
            flags,
            std::ptr::from_ref(attributes),
            size_of::<Attributes>(),
        )
    };
    if outcome == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
