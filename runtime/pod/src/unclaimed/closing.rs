//! The end of a task for VMs without a pod: the daemon stops, and none of them may be left. Nothing here ends
//! a VM.

use tokio::sync::{Notify, watch};

/// Whether the daemon ends, and the waiters for the task's end.
#[derive(Debug, Default)]
pub(crate) struct Closing {
    begun: watch::Sender<bool>,
    task_ended: Notify,
}

impl Closing {
    /// Notes the daemon's end: no more such VMs are needed.
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

    /// Wakes those waiting for the task's end. The task has stopped.
    pub(crate) fn note_task_ended(&self) {
        self.task_ended.notify_one();
    }

    /// Returns once the task has stopped, including its current work.
    pub(crate) async fn task_ended(&self, works: impl Fn() -> bool) {
        while works() {
            self.task_ended.notified().await;
        }
    }
}
