//! Changes of the node's mounts, for whoever follows one. The kernel wakes those that wait for `mountinfo` when something
//! is mounted, unmounted or mounted with other options (proc_pid_mountinfo(5)); it does not say what.

use std::fs::File;
use std::sync::Mutex;
use std::time::Duration;

use tokio::io::Interest;
use tokio::sync::watch;

use super::reactor;

/// Pause after a change: on a node that starts many pods there are many changes, and each makes its followers look.
const PAUSE: Duration = Duration::from_secs(1);

/// The changes. The file is watched from the first follower on, by one task for all that come, as long as the daemon serves.
#[derive(Debug, Default)]
pub(crate) struct MountChanges(Mutex<Option<watch::Receiver<()>>>);

impl MountChanges {
    /// A receiver that is notified after changes. Where the kernel does not say, it never is.
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
