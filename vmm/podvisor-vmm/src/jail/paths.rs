//! Landlock, a second barrier behind `namespaces`: no path may be opened, even if the mount namespace holds
//! some. The share may open paths below the shared directory, even if that is not its root. Signals and
//! abstract sockets stay within the process (Linux 6.12). A kernel without Landlock is logged.

use std::fs::File;

use landlock::{
    ABI, Access, AccessFs, AccessNet, PathBeneath, Ruleset, RulesetAttr, RulesetCreatedAttr, RulesetError,
    RulesetStatus, Scope,
};

use super::error::{JailError, failed};

pub(super) fn deny_all() -> Result<(), JailError> {
    let status = restrict(None).map_err(failed("deny all paths"))?;
    if status == RulesetStatus::NotEnforced {
        tracing::info!("this kernel has no Landlock: paths are denied by the mount namespace alone");
    }
    Ok(())
}

/// Allows the share its work on files below the shared directory, including later mounts. It runs no program,
/// and makes no block device.
pub(super) fn allow_below(shared: &File) -> Result<(), JailError> {
    restrict(Some(shared)).map_err(failed("deny all paths but the share"))?;
    Ok(())
}

/// Applies a ruleset. It handles every kind of access and allows only paths below `shared`. A kernel with an
/// earlier ABI enforces what it knows.
fn restrict(shared: Option<&File>) -> Result<RulesetStatus, RulesetError> {
    let abi = ABI::V6;
    let work = AccessFs::from_all(abi) & !(AccessFs::Execute | AccessFs::MakeBlock);
    let allowed = shared.map(|directory| Ok::<_, RulesetError>(PathBeneath::new(directory, work)));
    let rules = Ruleset::default()
        .handle_access(AccessFs::from_all(abi))?
        .handle_access(AccessNet::from_all(abi))?
        .scope(Scope::from_all(abi))?
        .create()?
        .add_rules(allowed)?;
    Ok(rules.restrict_self()?.ruleset)
}
