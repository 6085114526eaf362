//! The tap's filter. It follows the driver's settings: the frames it drops wake neither the VMM nor the
//! guest.
//!
//! The kernel sets a filter under a lock taken for every network change on the node. So the guest has an
//! allowance of changes. When it is used up, the tap lets every frame pass, and each arriving frame is an
//! occasion to check for a new change in the allowance.

use std::os::fd::BorrowedFd;
use std::time::Instant;

use super::receive::Filter;
use super::tap::TapSettings;
use crate::virtio::allowance::Allowance;

/// Changes of the filter in a row; one more after each second. A starting interface makes about five.
pub(super) const CHANGES_IN_A_ROW: u32 = 32;

/// A tap's present and wanted filter.
#[derive(Debug)]
pub(super) struct TapFilter {
    /// The tap's present filter.
    set: Option<Filter>,
    changes: Allowance,
    /// The tap has no filters, or refused one. It is not asked again.
    refused: bool,
    /// The tap lets every frame pass until another change is allowed.
    behind: bool,
}

impl TapFilter {
    /// For a tap without a filter: it lets every frame pass.
    pub(super) fn new() -> TapFilter {
        TapFilter { set: None, changes: Allowance::new(CHANGES_IN_A_ROW), refused: false, behind: false }
    }

    /// Returns true if [`settle`](Self::settle) has work although no setting has changed.
    pub(super) fn is_behind(&self) -> bool {
        self.behind
    }

    /// Gives the tap the filter wanted by the driver, or none if this is impossible. Waits while the kernel
    /// changes other networks of the node.
    pub(super) fn settle(
        &mut self,
        wanted: Option<Filter>,
        settings: &dyn TapSettings,
        tap: BorrowedFd<'_>,
        now: Instant,
    ) {
        let wanted = wanted.filter(|_| !self.refused);
        self.behind = false;
        if wanted == self.set {
            return;
        }
        self.behind = wanted.is_some() && !self.changes.take(now);
        let next = wanted.filter(|_| !self.behind);
        if next == self.set {
            return;
        }
        match settings.filter(tap, next.as_ref()) {
            Ok(()) => self.set = next,
            Err(error) => {
                tracing::warn!(%error, "a tap takes no filter: its guest wakes for every frame of the network");
                self.refused = true;
                // The old filter may still be in force, and drop frames wanted now.
                let _ = settings.filter(tap, None);
                self.set = None;
            }
        }
    }
}
