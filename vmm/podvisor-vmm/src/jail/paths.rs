//! Landlock, a second barrier behind `namespaces`: no path may be opened, even if the mount namespace holds
//! some. The share may open paths below its root. A kernel without Landlock is logged.

use landlock::{
    ABI, Access, AccessFs, AccessNet, Ruleset, RulesetAttr, RulesetCreatedAttr, RulesetError, RulesetStatus,
    path_beneath_rules,
};

use super::error::{JailError, failed};

pub(super) fn deny_all() -> Result<(), JailError> {
    let status = restrict(&[]).map_err(failed("deny all paths"))?;
    if status == RulesetStatus::NotEnforced {
        tracing::info!("this kernel has no Landlock: paths are denied by the mount namespace alone");
    }
    Ok(())
}

/// Allows the share everything below the root, including later mounts.
pub(super) fn allow_root() -> Result<(), JailError> {
    restrict(&["/"]).map_err(failed("deny all paths but the share"))?;
    Ok(())
}

/// Applies a ruleset. It handles every kind of access and allows only paths below `roots`.
fn restrict(roots: &[&str]) -> Result<RulesetStatus, RulesetError> {
    let abi = ABI::V5;
    let rules = Ruleset::default()
        .handle_access(AccessFs::from_all(abi))?
        .handle_access(AccessNet::from_all(abi))?
        .create()?
        .add_rules(path_beneath_rules(roots, AccessFs::from_all(abi)))?;
    Ok(rules.restrict_self()?.ruleset)
}
