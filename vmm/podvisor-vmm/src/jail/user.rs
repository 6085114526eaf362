//! A user of its own: no two VMMs share one, and the kernel takes all capabilities from a process that
//! leaves root.

use nix::unistd::{Gid, Pid, Uid, setgroups, setresgid, setresuid};

use super::{JailError, failed};

/// User and group are this plus the process id, which no other living process has. Far above what
/// systems and container runtimes allot.
const FIRST: u32 = 0x7000_0000;

pub(super) fn drop() -> Result<(), JailError> {
    if !Uid::effective().is_root() {
        return Ok(());
    }
    let step = "change to a user of its own";
    let own = FIRST + Pid::this().as_raw().unsigned_abs();
    let (uid, gid) = (Uid::from_raw(own), Gid::from_raw(own));
    setgroups(&[]).map_err(failed(step))?;
    setresgid(gid, gid, gid).map_err(failed(step))?;
    setresuid(uid, uid, uid).map_err(failed(step))
}
