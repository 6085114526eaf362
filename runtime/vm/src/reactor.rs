//! Descriptors of kinds without a tokio type, watched by its reactor.

use std::os::fd::OwnedFd;

use tokio::io::unix::AsyncFd;

/// Watches a non-blocking descriptor.
#[allow(
    deprecated,
    reason = "its successor is unsafe, for types whose descriptor may change; OwnedFd's cannot"
)]
pub(crate) fn watch(fd: OwnedFd) -> std::io::Result<AsyncFd<OwnedFd>> {
    AsyncFd::new(fd)
}
