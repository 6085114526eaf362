//! The VMM's own user: no two VMMs share one, and the kernel takes all capabilities from a thread that
//! leaves root.

use nix::unistd::{Pid, Uid};
use vmm_vm::credentials;

use super::error::{JailError, failed};

/// User and group are this plus the process id, which no other living process has. Far above what
/// systems and container runtimes allot.
const FIRST: u32 = 0x7000_0000;

pub(super) fn drop() -> Result<(), JailError> {
    if !Uid::effective().is_root() {
        return Ok(());
    }
    let own = FIRST + Pid::this().as_raw().unsigned_abs();
    credentials::leave_root(own, own).map_err(failed("change to a user of its own"))
}
