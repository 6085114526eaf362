//! Looks at the upstream again and again, and takes its lists anew whenever it has come back. Runs as long as it is polled.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tonic::Request;

use super::Upstream;
use super::file_system;
use super::known::checked;
use super::link::reason;
use super::route::{Listed, v1_path};

/// Between two looks while the upstream is down, and while it is up. Calls notice an upstream that goes down earlier.
const DOWN: Duration = Duration::from_secs(1);
const UP: Duration = Duration::from_secs(10);

/// The lists that are asked for after the upstream has come back.
const LISTS: [(Listed, &str, &str); 3] = [
    (Listed::Pods, "RuntimeService", "ListPodSandbox"),
    (Listed::Containers, "RuntimeService", "ListContainers"),
    (Listed::Images, "ImageService", "ListImages"),
];

impl Upstream {
    /// Keeps the link's state true, and what is known on disk.
    pub(crate) async fn watch(self: Arc<Self>) {
        let writing = Arc::clone(&self.known).write_changes();
        let looking = async {
            loop {
                match self.look().await {
                    Ok(()) => self.link.up(),
                    Err(why) => self.link.down(why),
                }
                self.wait().await;
            }
        };
        tokio::join!(writing, looking);
    }

    /// Until the next look: less long once the upstream goes down.
    async fn wait(&self) {
        let mut state = self.link.state();
        if self.link.is_up() {
            let _ = tokio::time::timeout(UP, state.wait_for(Result::is_err)).await;
        }
        if !self.link.is_up() {
            tokio::time::sleep(DOWN).await;
        }
    }

    async fn look(&self) -> Result<(), String> {
        let ask = async |service, rpc| {
            let answer = self.link.fetch(&v1_path(service, rpc), Request::new(Bytes::new())).await;
            answer.map_err(|status| reason(&status))
        };
        if self.link.is_up() {
            return ask("RuntimeService", "Version").await.map(drop);
        }
        file_system::compare(&self.link, &self.state_dir).await??;
        for (listed, service, rpc) in LISTS {
            let list = checked(listed, ask(service, rpc).await?)?;
            self.known.remember(listed, &list);
        }
        self.configure_again().await;
        Ok(())
    }
}
