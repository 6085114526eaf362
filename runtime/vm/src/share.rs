//! Requests to the VMM about the pod's shared directory and the programs using it.

use std::collections::BTreeSet;

use proto_vmm::{LOCK_WAITS_VERSION, Request, Response, SHARE_GROUPS_MAX, SHARE_GROUPS_VERSION};
use runtime_fail_points::Point;

use crate::descriptors::Descriptors;
use crate::error::VmError;
use crate::vm::Vm;

impl Vm {
    /// Ends the waits of killed processes for file locks of volumes. An older VMM holds no locks, so it is
    /// not asked.
    ///
    /// # Errors
    /// As [`boot`](Self::boot).
    pub async fn interrupt_lock_waits(&self, pids: &[u32]) -> Result<(), VmError> {
        if self.0.version < LOCK_WAITS_VERSION {
            return Ok(());
        }
        let (name, request) = ("interrupt_lock_waits", Request::InterruptLockWaits { pids: pids.to_vec() });
        match self.ask(Point::VmmInterruptLockWaits, name, request, &Descriptors::default()).await? {
            Response::LockWaitsInterrupted => Ok(()),
            _ => Err(VmError::Confused { request: name }),
        }
    }

    /// Has the VMM use these supplementary groups, and no others, for files of the node: the lowest 256 of
    /// them. An older VMM uses none and is not asked.
    ///
    /// # Errors
    /// As [`boot`](Self::boot).
    pub async fn share_groups(&self, groups: &BTreeSet<u32>) -> Result<(), VmError> {
        if self.0.version < SHARE_GROUPS_VERSION {
            return Ok(());
        }
        let groups = groups.iter().copied().take(SHARE_GROUPS_MAX).collect();
        let (name, request) = ("share_groups", Request::ShareGroups { groups });
        match self.ask(Point::VmmShareGroups, name, request, &Descriptors::default()).await? {
            Response::GroupsShared => Ok(()),
            _ => Err(VmError::Confused { request: name }),
        }
    }
}
