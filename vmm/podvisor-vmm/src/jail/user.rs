//! The VMM's own user. No two VMMs share one. The kernel takes all capabilities from a thread when it
//! leaves root.

use nix::unistd::{Pid, Uid};
use vmm_vm::credentials;

use super::error::{JailError, failed};

/// Base of user and group ids: each VMM adds its process id, unique among living processes. It is far above
/// the ids allotted by systems and container runtimes.
const FIRST: u32 = 0x7000_0000;

pub(super) fn drop() -> Result<(), JailError> {
    if !Uid::effective().is_root() {
        return Ok(());
    }
    let own = FIRST + Pid::this().as_raw().unsigned_abs();
    credentials::leave_root(own, own).map_err(failed("change to a user of its own"))
}
