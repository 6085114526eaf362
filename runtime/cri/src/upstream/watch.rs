//! Looks at the upstream again and again, and takes its lists anew whenever it has come back. Runs as long as it is polled.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tonic::Request;

use super::Upstream;
use super::file_system;
use super::known::checked;
use super::link::reason;
use super::route::Listed;

/// Between two looks while the upstream is down, and while it is up. Calls notice an upstream that goes down earlier.
const DOWN: Duration = Duration::from_secs(1);
const UP: Duration = Duration::from_secs(10);

/// The lists that are asked for after the upstream has come back.
const LISTS: [(Listed, &str); 3] = [
    (Listed::Pods, "/runtime.v1.RuntimeService/ListPodSandbox"),
    (Listed::Containers, "/runtime.v1.RuntimeService/ListContainers"),
    (Listed::Images, "/runtime.v1.ImageService/ListImages"),
];

/// The question of a look while the upstream is up.
const VERSION: &str = "/runtime.v1.RuntimeService/Version";

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
        if self.link.is_up() {
            let version = self.link.fetch(VERSION, Request::new(Bytes::new())).await;
            return version.map(drop).map_err(|status| reason(&status));
        }
        file_system::compare(&self.link, &self.state_dir).await??;
        for (listed, _) in LISTS {
            self.refresh(listed).await?;
        }
        self.configure_again().await;
        Ok(())
    }

    /// Takes a list anew.
    ///
    /// # Errors
    /// The upstream does not answer, or with what is no list; for people.
    pub(super) async fn refresh(&self, listed: Listed) -> Result<(), String> {
        let Some((_, path)) = LISTS.iter().find(|(of, _)| *of == listed) else { return Ok(()) };
        let list = self.link.fetch(path, Request::new(Bytes::new())).await;
        let list = checked(listed, list.map_err(|status| reason(&status))?)?;
        self.known.remember(listed, &list);
        Ok(())
    }
}
