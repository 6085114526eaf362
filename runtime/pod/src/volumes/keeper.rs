//! Keeps a pod's volumes in its guest as they are on the node: one task for each pod that has such volumes, beside the
//! driver, which never waits for it. Work on the node's files and calls to the guest are bounded; what fails is tried again,
//! ever more rarely.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use runtime_spec::VolumeLimits;
use tokio::sync::{mpsc, watch};
use tokio::task::AbortHandle;

use crate::blocking::within;
use crate::error::{PodError, PodErrorKind};
use crate::live::Live;
use crate::node::Node;
use crate::volumes;

/// How long the node's files may take to answer.
const LOOK_WITHIN: Duration = Duration::from_secs(30);

/// Pauses between tries of what failed: the first, and the longest.
const RETRY_FIRST: Duration = Duration::from_secs(1);
const RETRY_MOST: Duration = Duration::from_secs(60);

/// A pod's keeper. The task ends with the handle, or with the VM.
#[derive(Debug)]
pub(crate) struct Keeper {
    added: mpsc::UnboundedSender<PathBuf>,
    task: AbortHandle,
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Keeper {
    /// A keeper without volumes.
    pub(crate) fn start(node: Arc<Node>, live: Live, pod_id: String) -> Keeper {
        // As many as the pod has volumes, which are few.
        let (added, receiver) = mpsc::unbounded_channel();
        let changes = node.backends.volumes.changes();
        let keeping = Keeping { node, live: live.clone(), pod_id, memory: BTreeMap::new(), failing: false };
        let task = tokio::spawn(async move {
            tokio::select! {
                () = keeping.run(receiver, changes) => {}
                _ = live.vm.stopped() => {}
            }
        });
        Keeper { added, task: task.abort_handle() }
    }

    /// Has a volume in memory, which a container was made with, follow the bounds of the one in this directory.
    pub(crate) fn add_memory(&self, directory: PathBuf) {
        // A keeper whose VM has ended has nothing to keep.
        let _ = self.added.send(directory);
    }
}

#[derive(Debug)]
struct Keeping {
    node: Arc<Node>,
    live: Live,
    pod_id: String,
    /// Volumes in memory, with the bounds that the guest's have; `None` where those are not known.
    memory: BTreeMap<PathBuf, Option<VolumeLimits>>,
    /// Whether the last try failed, and the log has it.
    failing: bool,
}

impl Keeping {
    async fn run(mut self, mut added: mpsc::UnboundedReceiver<PathBuf>, mut changes: watch::Receiver<()>) {
        let mut pause = RETRY_FIRST;
        loop {
            let retry = match self.follow().await {
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
            tokio::select! {
                Some(directory) = added.recv() => { self.memory.insert(directory, None); }
                Ok(()) = changes.changed() => {}
                () = sleep_or_wait(retry) => {}
            }
        }
    }

    /// Gives the guest's volumes the bounds that the node's have, where those differ. The first failure is returned once all
    /// are tried.
    async fn follow(&mut self) -> Result<(), PodError> {
        const DOING: &str = "looking at the volumes in memory";
        if self.memory.is_empty() {
            return Ok(());
        }
        let directories: Vec<PathBuf> = self.memory.keys().cloned().collect();
        let looking = async {
            let found = self.node.backends.volumes.limits(directories).await;
            found.map_err(|error| error.during(DOING))
        };
        let found = within(LOOK_WITHIN, DOING, looking).await?;
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
                // The guest has no such volume: no container that mounts it was made.
                Err(error) if error.kind() == PodErrorKind::InvalidArgument => *known = Some(limits),
                Err(error) => outcome = outcome.and(Err(error)),
            }
        }
        outcome
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

async fn sleep_or_wait(pause: Option<Duration>) {
    match pause {
        Some(pause) => tokio::time::sleep(pause).await,
        None => std::future::pending().await,
    }
}
