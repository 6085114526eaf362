//! Resource limits of both processes. They hold in spite of anything the guest does.

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use vmm_vm::OPENED_MAX;

use super::error::{JailError, failed};

/// Most open descriptors of the VMM, without files of the share: at most two for each stream of the guest,
/// and about a hundred for the VM itself.
const DESCRIPTORS: u64 = 4096;

/// Most descriptors of the share: one for each file open in the guest, and one for each file remembered by
/// the guest's kernel. The guest's memory bounds them. A file costs the guest about 2 KiB, and so this is a
/// guest with a GiB full of them. The host pays some 1.5 KiB for each: an inode and names that it cannot
/// reclaim. From half of them on, a guest forgets a file with its last user.
const SHARED: u64 = 500_000;

/// Descriptors of the share beside those: its sockets, and files opened for one request.
const SHARE_OWN: u64 = 256;

pub(super) fn apply_to_vmm() -> Result<(), JailError> {
    apply(DESCRIPTORS + OPENED_MAX as u64).map(drop)
}

/// Sets the share's limits. Returns the lowest descriptor number not available to its requests.
pub(super) fn apply_to_share() -> Result<i32, JailError> {
    let given = apply(SHARED + SHARE_OWN)?;
    // With a low limit, requests get half.
    let shared = given.saturating_sub(SHARE_OWN).max(given / 2);
    Ok(i32::try_from(shared).unwrap_or(i32::MAX))
}

/// Sets the limits. Returns the number of descriptors: `wanted`, or less if the system allows no more.
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
