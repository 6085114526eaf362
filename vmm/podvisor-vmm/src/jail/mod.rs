//! The jails of the VMM and of the share's process. Before either listens to anyone, it gives up paths,
//! networks, IPC, its user or most of root's rights, privileges, and most system calls. Each layer stands
//! alone: a hole in one is not a way out.
//!
//! | | VMM | share |
//! |---|---|---|
//! | `namespaces` | an empty root | the pod's shared directory as root; no other process |
//! | `limits` | bounds on its resources | the same |
//! | `user`, `capabilities` | a user of its own, no capability | root with seven capabilities |
//! | `paths` (Landlock) | no path, no signal to others | paths below the root, no signal to others |
//! | `filter` (seccomp) | no files by path | nothing but files |
//!
//! A jail is entered once, while there is one thread. Both share one network and one IPC namespace, with
//! nothing in them.

mod capabilities;
mod error;
mod filter;
mod limits;
mod namespaces;
mod paths;
mod privileges;
mod user;

use std::fs::File;

use nix::unistd::{Uid, setsid};
use proto_vmm::VolumeCache;
use vmm_vm::Share;

pub(crate) use error::JailError;
use error::failed;
pub(crate) use filter::{Thread, filter_this_thread};
pub(crate) use namespaces::with_processes_of_its_own;

/// Leaves the daemon's session, and its network and IPC namespaces. Returns true if the process has the
/// privileges to start a share.
pub(crate) fn begin() -> Result<bool, JailError> {
    leave_session();
    // Checked first, because everyone looks like root in a user namespace.
    let privileged = Uid::effective().is_root();
    namespaces::begin(privileged)?;
    Ok(privileged)
}

/// Enters the VMM's jail but for the seccomp filter.
pub(crate) fn enter() -> Result<(), JailError> {
    limits::apply_to_vmm()?;
    namespaces::enter_empty()?;
    user::drop()?;
    privileges::forbid_new()?;
    paths::deny_all()
}

/// Enters the share's jail, including its filter. The guest caches the shared directory as `volume_cache`
/// says.
pub(crate) fn enter_as_share(volume_cache: VolumeCache) -> Result<Share, JailError> {
    leave_session();
    let shared = File::open(".").map_err(failed("open the shared directory"))?;
    let descriptors_max = limits::apply_to_share()?;
    let share = namespaces::enter_shared(descriptors_max, volume_cache)?;
    capabilities::keep_those_of_a_share()?;
    privileges::forbid_new()?;
    paths::allow_below(&shared)?;
    filter_this_thread(Thread::Share).map_err(failed("filter system calls"))?;
    Ok(share)
}

/// Starts a session of its own: signals to the daemon's terminal or process group do not reach a VM. The
/// call fails if the process leads a session already, and then nothing is needed.
fn leave_session() {
    let _ = setsid();
}
