//! A separate network namespace for the pod, without a user namespace as its owner.

use std::fs::File;
use std::io;
use std::os::fd::BorrowedFd;

use nix::sched::CloneFlags;

use crate::network::error::NetworkError;

/// Makes an empty namespace. A short-lived thread makes it, because the calling thread still has to move
/// links there.
pub(crate) fn make_namespace() -> Result<File, NetworkError> {
    let make = || {
        nix::sched::unshare(CloneFlags::CLONE_NEWNET)?;
        File::open("/proc/thread-self/ns/net")
    };
    let thread = std::thread::Builder::new().name("network".into()).spawn(make);
    let made =
        thread.and_then(|thread| thread.join().map_err(|_| io::Error::other("its thread panicked"))?);
    made.map_err(NetworkError::Namespace)
}

/// Moves this thread, and all its later threads and processes, to the namespace.
pub(crate) fn enter_namespace(namespace: BorrowedFd<'_>) -> Result<(), NetworkError> {
    nix::sched::setns(namespace, CloneFlags::CLONE_NEWNET)
        .map_err(|errno| NetworkError::Namespace(errno.into()))
}
