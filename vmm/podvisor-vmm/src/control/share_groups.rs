//! ShareGroups: has the share act with the groups of the pod's programs.

use proto_vmm::{Response, SHARE_GROUPS_MAX};

use super::Control;
use super::answer::{Answer, refusal};

impl Control {
    /// Does not wait for the share's threads: they may be stuck in a hanging file system.
    pub(super) fn share_groups(&self, groups: &[u32]) -> Answer {
        if groups.len() > SHARE_GROUPS_MAX {
            return Err(refusal(format!("{} groups are more than {SHARE_GROUPS_MAX}", groups.len())));
        }
        if let Some(share) = &self.share {
            share.set_groups(groups);
        }
        Ok(Response::GroupsShared)
    }
}
