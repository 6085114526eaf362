//! Descriptors of kinds that tokio has no type for, watched by its reactor.

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
