//! Resource limits that hold whatever the guest does.

use nix::sys::resource::{Resource, getrlimit, setrlimit};

use super::error::{JailError, failed};

/// Open descriptors but the share's: streams of the guest, two each at most, and some hundred for the
/// VM itself.
const DESCRIPTORS: u64 = 4096;

/// Descriptors of the share: one for each file that is open in the guest, and one for each that the guest's
/// kernel remembers. The guest's memory bounds how many those are; a file costs the guest about 2 KiB, so that
/// this is a guest with a GiB full of them. The host pays some 300 bytes for each.
const SHARED: u64 = 500_000;

/// Sets the limits. Returns the lowest descriptor number that the share is to leave alone.
pub(super) fn apply() -> Result<i32, JailError> {
    let step = "set resource limits";
    // A core dump would hold the guest's memory.
    setrlimit(Resource::RLIMIT_CORE, 0, 0).map_err(failed(step))?;
    let wanted = DESCRIPTORS + SHARED;
    // Root may ask for more than it was given, up to fs.nr_open.
    let given = match setrlimit(Resource::RLIMIT_NOFILE, wanted, wanted) {
        Ok(()) => wanted,
        Err(_) => {
            let (_, most) = getrlimit(Resource::RLIMIT_NOFILE).map_err(failed(step))?;
            let less = most.min(wanted);
            setrlimit(Resource::RLIMIT_NOFILE, less, less).map_err(failed(step))?;
            less
        }
    };
    // Where there are few, the share gets half.
    let shared = given.saturating_sub(DESCRIPTORS).max(given / 2);
    Ok(i32::try_from(shared).unwrap_or(i32::MAX))
}
