//! A network namespace of the pod's own, without a user namespace that owns it.

use std::fs::File;
use std::io;
use std::os::fd::BorrowedFd;

use nix::sched::CloneFlags;

use crate::network::error::NetworkError;

/// Makes a namespace that nobody is in. A thread makes it and ends, since this thread still has links to move there.
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

/// Moves this thread, and all threads and processes that it starts later, to the namespace.
pub(crate) fn enter_namespace(namespace: BorrowedFd<'_>) -> Result<(), NetworkError> {
    nix::sched::setns(namespace, CloneFlags::CLONE_NEWNET)
        .map_err(|errno| NetworkError::Namespace(errno.into()))
}
