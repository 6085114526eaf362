//! Landlock: no path may be opened, whatever the mount namespace holds, and by the share only what
//! lies below the root: a second barrier behind `namespaces`. A kernel without Landlock is logged.

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

/// Allows the share what lies below the root, mounts that come later included.
pub(super) fn allow_root() -> Result<(), JailError> {
    restrict(&["/"]).map_err(failed("deny all paths but the share"))?;
    Ok(())
}

/// A ruleset that handles everything and allows what lies below `roots`.
fn restrict(roots: &[&str]) -> Result<RulesetStatus, RulesetError> {
    let abi = ABI::V5;
    let rules = Ruleset::default()
        .handle_access(AccessFs::from_all(abi))?
        .handle_access(AccessNet::from_all(abi))?
        .create()?
        .add_rules(path_beneath_rules(roots, AccessFs::from_all(abi)))?;
    Ok(rules.restrict_self()?.ruleset)
}
