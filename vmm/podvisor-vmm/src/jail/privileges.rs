//! No new privileges: a program run by a thread gains none. Landlock and seccomp ask for it.

use nix::sys::prctl;

use super::error::{JailError, failed};

pub(super) fn forbid_new() -> Result<(), JailError> {
    prctl::set_no_new_privs().map_err(failed("set no_new_privs"))
}
