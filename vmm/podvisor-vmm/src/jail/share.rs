//! The thread that serves the pod's shared directory, with the privileges that it alone has. The guest says which user
//! asks, and may say anything, so that this thread can do to the files below its root whatever root can;
//! below its root are only the files that the pod was given.

use caps::{CapSet, Capability, CapsHashSet};
use vmm_vm::{Share, ShareThread, credentials};

use super::error::{JailError, failed};
use super::filter::{Thread, filter_this_thread};
use super::{paths, privileges};

/// Capabilities to act on files as any user, and to give files to users. CAP_MKNOD is not among them: a node
/// would be the host's device.
const CAPABILITIES: [Capability; 7] = [
    Capability::CAP_CHOWN,
    Capability::CAP_DAC_OVERRIDE,
    Capability::CAP_DAC_READ_SEARCH,
    Capability::CAP_FOWNER,
    Capability::CAP_FSETID,
    Capability::CAP_SETGID,
    Capability::CAP_SETUID,
];

/// Starts the thread. The process is root still, and within its own root already.
pub(super) fn start(share: Share) -> Result<ShareThread, JailError> {
    let step = "start the share's thread";
    ShareThread::start(share, enter).map_err(failed(step))?
}

/// Gives up all but the thread's capabilities before it serves anything.
fn enter() -> Result<(), JailError> {
    let step = "set the share's capabilities";
    credentials::keep_capabilities_as_other_users().map_err(failed(step))?;
    let kept = CapsHashSet::from(CAPABILITIES);
    for set in [CapSet::Effective, CapSet::Permitted] {
        caps::set(None, set, &kept).map_err(failed(step))?;
    }
    caps::clear(None, CapSet::Inheritable).map_err(failed(step))?;
    privileges::forbid_new()?;
    paths::allow_root()?;
    filter_this_thread(Thread::Share).map_err(failed("filter the share's system calls"))
}
