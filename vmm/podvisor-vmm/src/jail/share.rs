//! The thread that serves the pod's shared directory, and what it alone may do. The guest says which user
//! asks, and may say anything, so that this thread can do to the files below its root what root can do;
//! below its root is only what the pod was given.

use caps::{CapSet, Capability, CapsHashSet};
use vmm_vm::{Share, ShareThread, credentials};

use super::filter::{Thread, filter_this_thread};
use super::{JailError, failed, paths};

/// To act on files as any user, and to make them theirs. Not CAP_MKNOD: a node would be the host's device.
const CAPABILITIES: [Capability; 7] = [
    Capability::CAP_CHOWN,
    Capability::CAP_DAC_OVERRIDE,
    Capability::CAP_DAC_READ_SEARCH,
    Capability::CAP_FOWNER,
    Capability::CAP_FSETID,
    Capability::CAP_SETGID,
    Capability::CAP_SETUID,
];

/// Starts it. To be called while the process is root still, and within its own root already.
pub(super) fn start(share: Share) -> Result<ShareThread, JailError> {
    let step = "start the share's thread";
    ShareThread::start(share, enter).map_err(failed(step))?
}

/// What the thread gives up before it serves anything.
fn enter() -> Result<(), JailError> {
    let step = "set the share's capabilities";
    credentials::keep_capabilities_as_other_users().map_err(failed(step))?;
    let kept = CapsHashSet::from(CAPABILITIES);
    for set in [CapSet::Effective, CapSet::Permitted] {
        caps::set(None, set, &kept).map_err(failed(step))?;
    }
    caps::clear(None, CapSet::Inheritable).map_err(failed(step))?;
    super::no_new_privileges()?;
    paths::allow_root()?;
    filter_this_thread(Thread::Share).map_err(failed("filter the share's system calls"))
}
