//! The jail: before the process listens to anyone it gives up paths, networks, IPC, its user, privileges and
//! most system calls. Each layer stands alone, so that a hole in one is not a way out.
//!
//! `namespaces` takes the paths away but the pod's shared directory, `limits` bounds what it may hold,
//! `share` starts the one thread that serves that directory, `user` gives all others a user of their own,
//! `paths` (Landlock) holds where namespaces would not, `filter` (seccomp) is per thread and last.
//! The jail is entered once, while there is one thread.

mod error;
mod filter;
mod limits;
mod namespaces;
mod paths;
mod privileges;
mod share;
mod user;

use nix::sys::prctl;
use nix::unistd::{Uid, setsid};
use proto_vmm::VolumeCache;
use vmm_vm::ShareThread;

pub(crate) use error::JailError;
use error::failed;
pub(crate) use filter::{Thread, filter_this_thread};

/// Enters the jail but for the seccomp filters. The guest keeps what `volume_cache` says of the shared directory. Returns the thread that serves the shared directory, where the
/// process has the privileges for that.
pub(crate) fn enter(volume_cache: VolumeCache) -> Result<Option<ShareThread>, JailError> {
    // A session of its own: no signal meant for the daemon's terminal or group reaches a VM. It fails
    // for a process that leads one already, which is as good.
    let _ = setsid();
    prctl::set_name(c"podvisor-vmm").map_err(failed("set the process name"))?;
    // In a user namespace everyone looks like root.
    let privileged = Uid::effective().is_root();
    let descriptors_max = limits::apply()?;
    let share = namespaces::enter(descriptors_max, volume_cache)?;
    let thread = if privileged { Some(share::start(share)?) } else { None };
    user::drop()?;
    privileges::forbid_new()?;
    paths::deny_all()?;
    Ok(thread)
}
