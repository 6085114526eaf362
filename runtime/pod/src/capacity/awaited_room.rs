//! Room that a pod waits for: its VM would have more memory if the pod's cgroup on the node were larger.
//!
//! A kubelet reports a resize of a whole pod before it raises the pod's cgroup, and nothing says when that is
//! done. So the driver looks at the cgroup again a few times after the report, and then no more.

use std::time::Duration;

use tokio::time::Instant;

/// The looks, in seconds after the report. A kubelet writes the cgroup right after the answer; a busy one
/// takes some seconds.
const LOOKS_S: [u64; 6] = [1, 2, 4, 8, 16, 30];

/// The looks still ahead.
#[derive(Debug, Default)]
pub(crate) struct AwaitedRoom {
    reported: Option<Instant>,
    looks: usize,
}

impl AwaitedRoom {
    /// Begins the looks anew.
    pub(crate) fn begin(&mut self) {
        *self = AwaitedRoom { reported: Some(Instant::now()), looks: 0 };
    }

    /// Ends the looks.
    pub(crate) fn end(&mut self) {
        *self = AwaitedRoom::default();
    }

    /// Waits until the next look is due; for ever after the last one.
    pub(crate) async fn due(&self) {
        match self.reported.zip(LOOKS_S.get(self.looks)) {
            Some((reported, after_s)) => {
                tokio::time::sleep_until(reported + Duration::from_secs(*after_s)).await;
            }
            None => std::future::pending().await,
        }
    }

    /// Notes a look.
    pub(crate) fn note_look(&mut self) {
        self.looks += 1;
    }
}
