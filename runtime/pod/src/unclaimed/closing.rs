//! The end of a task that makes VMs without a pod: the daemon stops, and none of them may be left. Nothing here ends a VM.

use tokio::sync::{Notify, watch};

/// Whether the daemon ends, and what waits for the task's end.
#[derive(Debug, Default)]
pub(crate) struct Closing {
    begun: watch::Sender<bool>,
    task_ended: Notify,
}

impl Closing {
    /// Notes that the daemon ends, and has no use for such VMs.
    pub(crate) fn begin(&self) {
        self.begun.send_replace(true);
    }

    /// Whether the daemon ends.
    pub(crate) fn has_begun(&self) -> bool {
        *self.begun.borrow()
    }

    /// Returns once the daemon ends.
    pub(crate) async fn begun(&self) {
        // The sender is here as long as this is.
        let _ = self.begun.subscribe().wait_for(|begun| *begun).await;
    }

    /// Wakes who waits for the end of the task, which does not work any more.
    pub(crate) fn note_task_ended(&self) {
        self.task_ended.notify_one();
    }

    /// Returns once the task does not work any more, and with it what it was making is gone.
    pub(crate) async fn task_ended(&self, works: impl Fn() -> bool) {
        while works() {
            self.task_ended.notified().await;
        }
    }
}
