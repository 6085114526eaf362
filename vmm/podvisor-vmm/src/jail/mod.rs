//! The jail: before the process listens to anyone it gives up paths, networks, IPC, its user, privileges and
//! most system calls. Each layer stands alone, so that a hole in one is not a way out.
//!
//! `namespaces` takes the paths away but the pod's shared directory, `limits` bounds what it may hold,
//! `share` starts the one thread that serves that directory, `user` gives all others a user of their own,
//! `paths` (Landlock) holds where namespaces would not, `filter` (seccomp) is per thread and last.
//! The jail is entered once, while there is one thread.

mod filter;
mod limits;
mod namespaces;
mod paths;
mod share;
mod user;

use nix::sys::prctl;
use nix::unistd::{Uid, setsid};
use vmm_vm::ShareThread;

pub(crate) use filter::{Thread, filter_this_thread};

/// The jail could not be entered.
#[derive(Debug, thiserror::Error)]
#[error("cannot enter the jail: {step}")]
pub(crate) struct JailError {
    step: &'static str,
    source: Box<dyn std::error::Error + Send + Sync>,
}

fn failed<E: std::error::Error + Send + Sync + 'static>(step: &'static str) -> impl FnOnce(E) -> JailError {
    move |source| JailError { step, source: Box::new(source) }
}

/// Enters the jail but for the seccomp filters. Returns the thread that serves the shared directory, where the
/// process has the privileges for that.
pub(crate) fn enter() -> Result<Option<ShareThread>, JailError> {
    // A session of its own: no signal meant for the daemon's terminal or group reaches a VM. It fails
    // for a process that leads one already, which is as good.
    let _ = setsid();
    prctl::set_name(c"podvisor-vmm").map_err(failed("set the process name"))?;
    // In a user namespace everyone looks like root.
    let privileged = Uid::effective().is_root();
    let descriptors_max = limits::apply()?;
    let share = namespaces::enter(descriptors_max)?;
    let thread = if privileged { Some(share::start(share)?) } else { None };
    user::drop()?;
    no_new_privileges()?;
    paths::deny_all()?;
    Ok(thread)
}

fn no_new_privileges() -> Result<(), JailError> {
    prctl::set_no_new_privs().map_err(failed("set no_new_privs"))
}
