//! Landlock: no path may be opened, whatever the mount namespace holds. A second lock on the door that
//! `namespaces` closed; a kernel without Landlock is told of in the log.

use landlock::{ABI, Access, AccessFs, AccessNet, Ruleset, RulesetAttr, RulesetError, RulesetStatus};

use super::{JailError, failed};

pub(super) fn deny_all() -> Result<(), JailError> {
    let status = restrict().map_err(failed("deny all paths"))?;
    if status == RulesetStatus::NotEnforced {
        tracing::info!("this kernel has no Landlock: paths are denied by the mount namespace alone");
    }
    Ok(())
}

/// A ruleset that handles everything and allows nothing.
fn restrict() -> Result<RulesetStatus, RulesetError> {
    let abi = ABI::V5;
    let rules = Ruleset::default()
        .handle_access(AccessFs::from_all(abi))?
        .handle_access(AccessNet::from_all(abi))?
        .create()?;
    Ok(rules.restrict_self()?.ruleset)
}
