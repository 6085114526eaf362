//! Resource limits that hold whatever the guest does.

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use vmm_vm::OPENED_MAX;

use super::error::{JailError, failed};

/// Open descriptors of the VMM but for files of the share: streams of the guest, two each at most, and some hundred for the
/// VM itself.
const DESCRIPTORS: u64 = 4096;

/// Descriptors of the share: one for each file that is open in the guest, and one for each that the guest's
/// kernel remembers. The guest's memory bounds how many those are; a file costs the guest about 2 KiB, so that
/// this is a guest with a GiB full of them. The host pays some 300 bytes for each.
const SHARED: u64 = 500_000;

/// Descriptors of the share beside those: its sockets, and files that are open for the time of a request.
const SHARE_OWN: u64 = 256;

pub(super) fn apply_to_vmm() -> Result<(), JailError> {
    apply(DESCRIPTORS + OPENED_MAX as u64).map(drop)
}

/// Returns the lowest descriptor number that the share's requests are to leave alone.
pub(super) fn apply_to_share() -> Result<i32, JailError> {
    let given = apply(SHARED + SHARE_OWN)?;
    // Where there are few, requests get half.
    let shared = given.saturating_sub(SHARE_OWN).max(given / 2);
    Ok(i32::try_from(shared).unwrap_or(i32::MAX))
}

/// Sets the limits. Returns how many descriptors there may be, which are `wanted` where they can be had.
fn apply(wanted: u64) -> Result<u64, JailError> {
    let step = "set resource limits";
    // A core dump would hold the guest's memory, or content of its volumes.
    setrlimit(Resource::RLIMIT_CORE, 0, 0).map_err(failed(step))?;
    // Root may ask for more than it was given, up to fs.nr_open.
    if setrlimit(Resource::RLIMIT_NOFILE, wanted, wanted).is_ok() {
        return Ok(wanted);
    }
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE).map_err(failed(step))?;
    let less = most.min(wanted);
    setrlimit(Resource::RLIMIT_NOFILE, less, less).map_err(failed(step))?;
    Ok(less)
}
