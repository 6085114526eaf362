//! The tap's filter, which follows the driver's wishes: frames that it drops wake neither the VMM nor the guest.
//!
//! The kernel sets a filter under a lock that it takes for every change of a network on the node. So the guest has an
//! allowance of changes. When that is used up the tap lets every frame pass, and each frame that comes is an occasion
//! to look whether there is a change left.

use std::os::fd::BorrowedFd;
use std::time::Instant;

use super::receive::Filter;
use super::tap::TapSettings;
use crate::virtio::allowance::Allowance;

/// Changes of the filter in a row; one more after each second. A guest whose interface comes up makes about five.
pub(super) const CHANGES_IN_A_ROW: u32 = 32;

/// A tap's filter, and what it should be.
#[derive(Debug)]
pub(super) struct TapFilter {
    /// The filter that the tap has.
    set: Option<Filter>,
    changes: Allowance,
    /// The tap has no filters, or could not be given one: it is not asked again.
    refused: bool,
    /// The tap lets every frame pass until a change is left.
    behind: bool,
}

impl TapFilter {
    /// For a tap that lets every frame pass.
    pub(super) fn new() -> TapFilter {
        TapFilter { set: None, changes: Allowance::new(CHANGES_IN_A_ROW), refused: false, behind: false }
    }

    /// Whether [`settle`](Self::settle) has something to do though no wish has changed.
    pub(super) fn is_behind(&self) -> bool {
        self.behind
    }

    /// Gives the tap the filter that the driver wants, or none where that cannot be. Waits while the kernel changes other networks of
    /// the node.
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
                // The filter before may be in force still, and drop what is wanted now.
                let _ = settings.filter(tap, None);
                self.set = None;
            }
        }
    }
}
