//! The privileges of the share's process. The guest names the user of each request and may name anyone. The
//! process can therefore do everything to files below its root, as root could. Only the pod's own files are
//! below its root.

use caps::{CapSet, Capability, CapsHashSet};
use vmm_vm::credentials;

use super::error::{JailError, failed};

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

/// Gives up all but these.
pub(super) fn keep_those_of_a_share() -> Result<(), JailError> {
    let step = "set the capabilities";
    credentials::keep_capabilities_as_other_users().map_err(failed(step))?;
    let kept = CapsHashSet::from(CAPABILITIES);
    for set in [CapSet::Effective, CapSet::Permitted] {
        caps::set(None, set, &kept).map_err(failed(step))?;
    }
    caps::clear(None, CapSet::Inheritable).map_err(failed(step))
}
