//! Tokio's reactor for kinds of descriptors without a type in Tokio.

use std::os::fd::OwnedFd;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Watches a descriptor for readiness of this kind.
#[allow(
    deprecated,
    reason = "its successor is unsafe, for types whose descriptor may change; OwnedFd's cannot"
)]
pub(super) fn watch(fd: OwnedFd, interest: Interest) -> std::io::Result<AsyncFd<OwnedFd>> {
    AsyncFd::with_interest(fd, interest)
}
