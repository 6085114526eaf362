//! Descriptors of kinds that tokio has no type for, watched by its reactor.

use std::os::fd::OwnedFd;

use tokio::io::unix::AsyncFd;

/// Watches a descriptor, which becomes non-blocking.
#[allow(
    deprecated,
    reason = "its successor is unsafe, for types whose descriptor may change; OwnedFd's cannot"
)]
pub(crate) fn watch(fd: OwnedFd) -> std::io::Result<AsyncFd<OwnedFd>> {
    rustix::io::ioctl_fionbio(&fd, true)?;
    AsyncFd::new(fd)
}
