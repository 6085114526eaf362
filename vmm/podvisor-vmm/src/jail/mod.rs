//! What the process gives up before it listens to anyone: paths, networks, IPC, its user, privileges,
//! and most system calls. Each layer stands alone, so that a hole in one is not a way out.
//!
//! `namespaces` takes the paths away, `limits` bounds what it may hold, `user` gives it a user of its
//! own, `paths` (Landlock) holds where namespaces would not, `filter` (seccomp) is per thread and last.
//! Never called twice, and only while there is one thread.

mod filter;
mod limits;
mod namespaces;
mod paths;
mod user;

use nix::sys::prctl;
use nix::unistd::setsid;

pub(crate) use filter::{Thread, filter_this_thread};

/// The jail's door would not close.
#[derive(Debug, thiserror::Error)]
#[error("cannot enter the jail: {step}")]
pub(crate) struct JailError {
    step: &'static str,
    source: Box<dyn std::error::Error + Send + Sync>,
}

fn failed<E: std::error::Error + Send + Sync + 'static>(step: &'static str) -> impl FnOnce(E) -> JailError {
    move |source| JailError { step, source: Box::new(source) }
}

/// Enters all of it but the seccomp filters.
pub(crate) fn enter() -> Result<(), JailError> {
    // A session of its own: no signal meant for the daemon's terminal or group reaches a VM. It fails
    // for a process that leads one already, which is as good.
    let _ = setsid();
    prctl::set_name(c"podvisor-vmm").map_err(failed("set the process name"))?;
    limits::apply()?;
    namespaces::enter()?;
    user::drop()?;
    prctl::set_no_new_privs().map_err(failed("set no_new_privs"))?;
    paths::deny_all()
}
