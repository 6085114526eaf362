//! Tokio's reactor for kinds of descriptors without a type in Tokio.

use std::os::fd::OwnedFd;

use tokio::io::unix::AsyncFd;

/// Watches a descriptor and makes it non-blocking.
#[allow(
    deprecated,
    reason = "its successor is unsafe, for types whose descriptor may change; OwnedFd's cannot"
)]
pub(crate) fn watch(fd: OwnedFd) -> std::io::Result<AsyncFd<OwnedFd>> {
    rustix::io::ioctl_fionbio(&fd, true)?;
    AsyncFd::new(fd)
}
