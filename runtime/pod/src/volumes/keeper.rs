//! Keeps a pod's volumes in its guest in step with the node's: one task for each pod with such volumes,
//! beside the driver. Only this task sends versions of volumes to the guest, so they come one after another.
//! Work on the node's files and calls to the guest are bounded. Failures are retried with growing backoff.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use runtime_guest::PublishedVersion;
use runtime_spec::VolumeLimits;
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::task::AbortHandle;

use super::directory_changes::Watch;
use super::published::Snapshot;
use crate::backend::BackendError;
use crate::blocking::within;
use crate::error::{PodError, PodErrorKind};
use crate::live::Live;
use crate::node::Node;
use crate::volumes;

/// How long the node's files may take to answer.
const LOOK_WITHIN: Duration = Duration::from_secs(30);

/// How long sending all versions for a new container may take, including earlier transfers.
const SENT_WITHIN: Duration = Duration::from_secs(60);

/// Pauses between retries after a failure: the first, and the longest.
const RETRY_FIRST: Duration = Duration::from_secs(1);
const RETRY_MOST: Duration = Duration::from_secs(60);

/// A pod's keeper. The task ends with the handle, or with the VM.
#[derive(Debug)]
pub(crate) struct Keeper {
    asked: mpsc::UnboundedSender<Asked>,
    task: AbortHandle,
}

/// A volume for the keeper.
#[derive(Debug)]
enum Asked {
    /// Keep a memory volume's limits equal to those of the volume in this directory.
    Memory(PathBuf),
    /// A volume is to have this version, and later ones if it is a volume of the pod.
    Publish {
        version: PublishedVersion,
        directory: Option<PathBuf>,
        sent: oneshot::Sender<Result<(), PodError>>,
    },
    /// Follow a volume already in the guest, and send its later versions.
    Follow(PathBuf),
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Keeper {
    /// A keeper without volumes.
    pub(crate) fn start(node: Arc<Node>, live: Live, pod_id: String) -> Keeper {
        // At most as many as the pod's containers have volumes, a small number; the driver creates one
        // container at a time.
        let (asked, receiver) = mpsc::unbounded_channel();
        let keeping = Keeping {
            changes: node.backends.volumes.changes(),
            node,
            live: live.clone(),
            pod_id,
            memory: BTreeMap::new(),
            published: BTreeMap::new(),
            renamed: Arc::default(),
            failing: false,
        };
        let task = tokio::spawn(async move {
            tokio::select! {
                () = keeping.run(receiver) => {}
                _ = live.vm.stopped() => {}
            }
        });
        Keeper { asked, task: task.abort_handle() }
    }

    /// Makes a container's memory volume follow the limits of the volume in this directory.
    pub(crate) fn add_memory(&self, directory: PathBuf) {
        // A keeper whose VM has ended has nothing to keep.
        let _ = self.asked.send(Asked::Memory(directory));
    }

    /// Makes a published volume, already in the guest, follow the one in this directory.
    pub(crate) fn add_published(&self, directory: PathBuf) {
        let _ = self.asked.send(Asked::Follow(directory));
    }

    /// Sends a version, and makes the volume follow the one in `directory`, if there is one. Returns when the
    /// guest has the version.
    pub(crate) async fn publish(
        &self,
        version: PublishedVersion,
        directory: Option<PathBuf>,
    ) -> Result<(), PodError> {
        const DOING: &str = "mounts: sending a volume to the guest";
        let (sent, outcome) = oneshot::channel();
        let _ = self.asked.send(Asked::Publish { version, directory, sent });
        let waiting = async {
            let gone =
                || PodError::new(PodErrorKind::Unavailable, format!("{DOING}: the pod's VM has ended"));
            outcome.await.unwrap_or_else(|_| Err(gone()))
        };
        within(SENT_WITHIN, DOING, waiting).await
    }
}

#[derive(Debug)]
struct Keeping {
    node: Arc<Node>,
    live: Live,
    pod_id: String,
    changes: watch::Receiver<()>,
    /// Memory volumes, with the limits of the guest's copies; `None` if unknown.
    memory: BTreeMap<PathBuf, Option<VolumeLimits>>,
    /// Published volumes of the pod, by their directories.
    published: BTreeMap<PathBuf, Published>,
    /// Notified when a published volume may have a new version.
    renamed: Arc<Notify>,
    /// Whether the last attempt failed and was logged.
    failing: bool,
}

/// A published volume as the guest has it.
#[derive(Debug, Default)]
struct Published {
    /// The version, if known.
    version: Option<String>,
    /// Notifies of changes; absent if the watch could not be made yet.
    watch: Option<Watch>,
}

impl Keeping {
    async fn run(mut self, mut asked: mpsc::UnboundedReceiver<Asked>) {
        let mut pause = RETRY_FIRST;
        let mut retry = None;
        loop {
            let renamed = self.renamed.clone();
            tokio::select! {
                biased;
                // First: a call waits for it.
                Some(asked) = asked.recv() => {
                    self.take(asked).await;
                    renamed.notify_one();
                    continue;
                }
                () = renamed.notified() => {}
                Ok(()) = self.changes.changed() => {}
                () = sleep_or_wait(retry) => {}
            }
            retry = match self.follow().await {
                Ok(()) => {
                    self.failing = false;
                    pause = RETRY_FIRST;
                    None
                }
                Err(error) => {
                    self.note(&error);
                    let now = pause;
                    pause = (pause * 2).min(RETRY_MOST);
                    Some(now)
                }
            };
        }
    }

    async fn take(&mut self, asked: Asked) {
        match asked {
            Asked::Memory(directory) => {
                self.memory.insert(directory, None);
            }
            Asked::Follow(directory) => {
                self.published.entry(directory).or_default();
            }
            Asked::Publish { version, directory, sent } => {
                let outcome = self.publish(version, directory).await;
                // If the caller gave up waiting, the container is being undone.
                let _ = sent.send(outcome);
            }
        }
    }

    /// Sends a version for a container being created.
    async fn publish(
        &mut self,
        version: PublishedVersion,
        directory: Option<PathBuf>,
    ) -> Result<(), PodError> {
        let has_one =
            |directory: &PathBuf| self.published.get(directory).is_some_and(|known| known.version.is_some());
        if let Some(directory) = directory.clone().filter(has_one) {
            // The older of two read versions may be sent last. The node's current one is newer than both.
            return self.catch_up(directory).await;
        }
        self.send(&version).await?;
        if let Some(directory) = directory {
            self.published.entry(directory).or_default().version = version.version;
        }
        Ok(())
    }

    /// Updates one volume in the guest to the node's current version.
    async fn catch_up(&mut self, directory: PathBuf) -> Result<(), PodError> {
        const DOING: &str = "looking at a published volume";
        let found = answered(DOING, self.node.backends.volumes.versions(vec![directory.clone()])).await?;
        let known = self.published.get(&directory).and_then(|known| known.version.as_ref());
        match found.first() {
            Some((_, version)) if known != Some(version) => self.renew(directory).await,
            _ => Ok(()),
        }
    }

    async fn send(&self, version: &PublishedVersion) -> Result<(), PodError> {
        self.live.call("sending a volume to the guest", self.live.agent.publish_volume(version)).await
    }

    /// Updates the guest's volumes to the node's current versions. The first failure is returned after all
    /// have been tried.
    async fn follow(&mut self) -> Result<(), PodError> {
        let memory = self.follow_memory().await;
        let published = self.follow_published().await;
        memory.and(published)
    }

    async fn follow_memory(&mut self) -> Result<(), PodError> {
        const DOING: &str = "looking at the volumes in memory";
        if self.memory.is_empty() {
            return Ok(());
        }
        let directories = self.memory.keys().cloned().collect();
        let found = answered(DOING, self.node.backends.volumes.limits(directories)).await?;
        let mut outcome = Ok(());
        for (directory, limits) in found {
            let Some(known) = self.memory.get_mut(&directory) else { continue };
            if *known == Some(limits) {
                continue;
            }
            let name = volumes::name(&directory);
            let resizing = self.live.agent.resize_volume(&name, limits);
            match self.live.call("changing the bounds of a volume in memory", resizing).await {
                Ok(()) => *known = Some(limits),
                // The guest has no such volume: the creation of its container failed.
                Err(error) if error.kind() == PodErrorKind::InvalidArgument => *known = Some(limits),
                Err(error) => outcome = outcome.and(Err(error)),
            }
        }
        outcome
    }

    async fn follow_published(&mut self) -> Result<(), PodError> {
        const DOING: &str = "looking at the published volumes";
        if self.published.is_empty() {
            return Ok(());
        }
        let mut outcome = self.watch().await;
        let directories = self.published.keys().cloned().collect();
        let found = answered(DOING, self.node.backends.volumes.versions(directories)).await?;
        for (directory, version) in found {
            let known = self.published.get(&directory).and_then(|known| known.version.as_ref());
            if known != Some(&version) {
                outcome = outcome.and(self.renew(directory).await);
            }
        }
        outcome
    }

    /// Adds missing watches of volumes: before a check, so no change is missed.
    async fn watch(&mut self) -> Result<(), PodError> {
        const DOING: &str = "watching the published volumes";
        let mut outcome = Ok(());
        for (directory, known) in self.published.iter_mut().filter(|(_, known)| known.watch.is_none()) {
            let watching = self.node.backends.volumes.watch(directory.clone(), self.renamed.clone());
            match answered(DOING, watching).await {
                Ok(watch) => known.watch = Some(watch),
                Err(error) => outcome = outcome.and(Err(error)),
            }
        }
        outcome
    }

    /// Sends the node's current version of a volume.
    async fn renew(&mut self, directory: PathBuf) -> Result<(), PodError> {
        const DOING: &str = "reading a published volume";
        let snapshot = answered(DOING, self.node.backends.volumes.read(directory.clone())).await?;
        let sent = snapshot.version.clone();
        self.send(&version_of(volumes::name(&directory), None, snapshot)).await?;
        if let Some(known) = self.published.get_mut(&directory) {
            known.version = sent;
        }
        Ok(())
    }

    /// Logs the first of several failures.
    fn note(&mut self, error: &PodError) {
        let (pod, error) = (&self.pod_id, error.chain());
        if std::mem::replace(&mut self.failing, true) {
            tracing::debug!(pod, error, "a pod's volumes still do not follow the node's");
        } else {
            tracing::warn!(pod, error, "a pod's volumes do not follow the node's; it is tried again");
        }
    }
}

/// The version of a volume, as the guest is sent it.
pub(crate) fn version_of(
    volume: String,
    container_id: Option<String>,
    snapshot: Snapshot,
) -> PublishedVersion {
    let Snapshot { version, root, top, files, .. } = snapshot;
    PublishedVersion { volume, container_id, version, root, top, files }
}

/// The answer of the node's files, within their bound.
async fn answered<T>(
    doing: &str,
    look: impl Future<Output = Result<T, BackendError>>,
) -> Result<T, PodError> {
    within(LOOK_WITHIN, doing, async { look.await.map_err(|error| error.during(doing)) }).await
}

async fn sleep_or_wait(pause: Option<Duration>) {
    match pause {
        Some(pause) => tokio::time::sleep(pause).await,
        None => std::future::pending().await,
    }
}
