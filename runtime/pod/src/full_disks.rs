//! The number of a VM's disks that wait for free space on the node, heard at intervals.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use crate::live::Live;

/// The least time between two reports of a VMM that are heard. A hostile one may report without end, and each
/// report is a line in the log.
const INTERVAL: Duration = Duration::from_secs(5);

/// Number of a VM's disks that wait for free space on the node.
#[derive(Debug)]
pub(crate) struct FullDisks {
    disks: watch::Receiver<u32>,
    not_before: Instant,
}

impl FullDisks {
    /// Those of this VM. Without one the number stays 0. Another number counts as a change.
    pub(crate) fn of(live: Option<&Live>) -> FullDisks {
        let mut disks = live.map_or_else(|| watch::channel(0).1, |live| live.vm.full_disks());
        if *disks.borrow() > 0 {
            disks.mark_changed();
        }
        FullDisks { disks, not_before: Instant::now() }
    }

    /// The number as of now.
    pub(crate) fn count(&self) -> u32 {
        *self.disks.borrow()
    }

    /// Waits until the number has changed, and the last one heard is long enough ago.
    pub(crate) async fn changed(&mut self) {
        tokio::time::sleep_until(self.not_before).await;
        if self.disks.changed().await.is_err() {
            // There is no VM any more.
            std::future::pending::<()>().await;
        }
    }

    /// The number, after which the next one is heard later.
    pub(crate) fn hear(&mut self) -> u32 {
        self.not_before = Instant::now() + INTERVAL;
        *self.disks.borrow_and_update()
    }
}
