//! Checks the upstream periodically, and takes its lists again whenever it has come back. Runs as long as it
//! is polled.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tonic::{Code, Request, Status};
use tracing::warn;

use super::Upstream;
use super::file_system;
use super::known::checked;
use super::link::{is_broken, reason};
use super::route::Listed;

/// Intervals between two checks while the upstream is down, and while it is up. Calls notice a failing
/// upstream earlier.
const DOWN: Duration = Duration::from_secs(1);
const UP: Duration = Duration::from_secs(10);

/// The lists requested after the upstream has come back.
const LISTS: [(Listed, &str); 5] = [
    (Listed::Pods, "/runtime.v1.RuntimeService/ListPodSandbox"),
    (Listed::Containers, "/runtime.v1.RuntimeService/ListContainers"),
    (Listed::Images, "/runtime.v1.ImageService/ListImages"),
    (Listed::Descriptors, "/runtime.v1.RuntimeService/ListMetricDescriptors"),
    (Listed::RuntimeConfig, "/runtime.v1.RuntimeService/RuntimeConfig"),
];

/// The request of a check.
const VERSION: &str = "/runtime.v1.RuntimeService/Version";

impl Upstream {
    /// Keeps the link's state up to date, and the known lists on disk.
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

    /// Waits until the next check. The wait ends early if the upstream seems down.
    async fn wait(&self) {
        let mut state = self.link.state();
        if self.link.is_up() {
            let sooner = async {
                tokio::select! {
                    _ = state.wait_for(Result::is_err) => {}
                    () = self.link.doubted() => {}
                }
            };
            let _ = tokio::time::timeout(UP, sooner).await;
        }
        if !self.link.is_up() {
            tokio::time::sleep(DOWN).await;
        }
    }

    /// # Errors
    /// The upstream does not return its version, or is unusable. The text is for people.
    async fn look(&self) -> Result<(), String> {
        let version = self.link.fetch(VERSION, Request::new(Bytes::new())).await;
        version.map_err(|status| reason(&status))?;
        if self.link.is_up() {
            return Ok(());
        }
        match file_system::compare(&self.link, &self.state_dir).await {
            Ok(compared) => compared?,
            Err(status) => goes_on("its file system", &status)?,
        }
        match self.driver.compare(&self.link).await {
            Ok(compared) => compared?,
            Err(status) => goes_on("its cgroup driver", &status)?,
        }
        for (listed, path) in LISTS {
            match self.refresh(listed).await {
                // An older one without such a list.
                Err(status) if status.code() == Code::Unimplemented => {}
                Err(status) => goes_on(path, &status)?,
                Ok(()) => {}
            }
        }
        self.configure_again().await;
        Ok(())
    }

    /// Takes a list again.
    ///
    /// # Errors
    /// The upstream does not answer, or with an invalid list.
    pub(super) async fn refresh(&self, listed: Listed) -> Result<(), Status> {
        let Some((_, path)) = LISTS.iter().find(|(of, _)| *of == listed) else { return Ok(()) };
        let asked = Instant::now();
        let list = self.link.fetch(path, Request::new(Bytes::new())).await?;
        let list = checked(listed, list).map_err(Status::internal)?;
        self.known.remember(listed, &list, asked);
        Ok(())
    }
}

/// An upstream that returns its version is up even without this answer.
///
/// # Errors
/// The connection broke. The text is for people.
fn goes_on(what: &str, status: &Status) -> Result<(), String> {
    let why = reason(status);
    if is_broken(status) {
        return Err(why);
    }
    warn!(what, why, "the upstream runtime answers, but without a list; it is taken as last seen");
    Ok(())
}
