//! Changes of the node's mounts, for their followers. The kernel wakes readers of `mountinfo` when something
//! is mounted, unmounted or remounted with other options (proc_pid_mountinfo(5)). It does not report the
//! change itself.

use std::fs::File;
use std::sync::Mutex;
use std::time::Duration;

use tokio::io::Interest;
use tokio::sync::watch;

use super::reactor;

/// Pause after a change. A node that starts many pods has many changes, and each makes its followers check.
const PAUSE: Duration = Duration::from_secs(1);

/// The changes. One task watches the file for all followers, from the first follower on, as long as the
/// daemon serves.
#[derive(Debug, Default)]
pub(crate) struct MountChanges(Mutex<Option<watch::Receiver<()>>>);

impl MountChanges {
    /// A receiver for notifications of changes. If the kernel does not report them, there are none.
    pub(crate) fn follow(&self) -> watch::Receiver<()> {
        let mut known = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let follower = known.get_or_insert_with(|| {
            let sender = watch::Sender::new(());
            let receiver = sender.subscribe();
            tokio::spawn(async move {
                if let Err(error) = watch(&sender).await {
                    tracing::warn!(%error, "changes of the node's mounts are not followed");
                    // Followers wait for something else.
                    std::future::pending::<()>().await;
                }
            });
            receiver
        });
        follower.clone()
    }
}

async fn watch(sender: &watch::Sender<()>) -> std::io::Result<()> {
    let table = reactor::watch(File::open("/proc/self/mountinfo")?.into(), Interest::PRIORITY)?;
    loop {
        table.ready(Interest::PRIORITY).await?.clear_ready();
        sender.send_replace(());
        tokio::time::sleep(PAUSE).await;
    }
}
