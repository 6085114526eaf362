//! Resource limits that hold whatever the guest does.

use nix::sys::resource::{Resource, getrlimit, setrlimit};

use super::{JailError, failed};

/// Open descriptors: streams of the guest, two each at most, and some hundred for the machine itself.
const DESCRIPTORS: u64 = 4096;

pub(super) fn apply() -> Result<(), JailError> {
    let step = "set resource limits";
    // A core dump would hold the guest's memory.
    setrlimit(Resource::RLIMIT_CORE, 0, 0).map_err(failed(step))?;
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE).map_err(failed(step))?;
    let descriptors = DESCRIPTORS.min(most);
    setrlimit(Resource::RLIMIT_NOFILE, descriptors, descriptors).map_err(failed(step))
}
