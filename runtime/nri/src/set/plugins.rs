//! The handle to all plugins.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use proto_nri::nri::Event::STOP_CONTAINER;
use proto_nri::nri::{Container, ContainerUpdate, PodSandbox, StopContainerRequest};
use proto_nri::nri_ttrpc::PluginClient;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};

use super::flight::Flight;
use super::{Newcomer, PLUGINS_MAX, Set};
use crate::config::NriConfig;
use crate::deadline::Deadline;
use crate::join::{Joined, Started};
use crate::occurrence::Occurrence;
use crate::runtime::Runtime;
use crate::{socket, started};

/// Time limit for closing all plugins when the daemon ends.
const CLOSED_WITHIN: Duration = Duration::from_secs(2);

/// Pause after a failed accept.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// All plugins of the node. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Plugins(Arc<Set>);

/// Reason why no plugins are served.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The socket cannot be listened on.
    #[error("listening for NRI plugins on {path}")]
    Listen {
        /// The socket.
        path: PathBuf,
        /// The failure.
        source: io::Error,
    },
    /// The directories of plugins to start cannot be read.
    #[error("looking for NRI plugins to start")]
    Find(#[source] Box<dyn std::error::Error + Send + Sync>),
}

impl ServeError {
    /// Returns true if another process serves the socket.
    pub fn is_taken(&self) -> bool {
        matches!(self, ServeError::Listen { source, .. } if source.kind() == io::ErrorKind::AddrInUse)
    }
}

impl Plugins {
    /// Creates the handle without plugins. [`Plugins::serve`] adds them.
    ///
    /// # Panics
    /// Outside of a Tokio runtime.
    pub fn new(config: NriConfig) -> Plugins {
        let (set, waiting) = Set::new(config);
        tokio::spawn(make_updates(Arc::downgrade(&set), waiting));
        Plugins(set)
    }

    /// Starts the plugins of the node's directory, and lets others connect. Returns when each started plugin
    /// has the existing pods and containers, or has failed. Failures are logged.
    ///
    /// # Errors
    /// The plugin directories cannot be read, or the socket cannot be listened on.
    pub async fn serve(&self, runtime: Arc<dyn Runtime>) -> Result<(), ServeError> {
        let set = &self.0;
        // A second runtime is the caller's bug, and changes nothing.
        let _ = set.runtime.set(runtime);
        let (newcomers, mut coming) = mpsc::channel::<Newcomer>(PLUGINS_MAX);
        let admitting = set.clone();
        tokio::spawn(async move {
            while let Some(newcomer) = coming.recv().await {
                admitting.admit(newcomer).await;
            }
        });
        let found = started::find(&set.config).map_err(|error| ServeError::Find(error.into()))?;
        let starting = found.into_iter().map(|found| {
            let (set, newcomers, name) = (set.clone(), newcomers.clone(), found.name.clone());
            async move {
                let place = set.places.clone().try_acquire_owned();
                match (started::start(found), place) {
                    (Ok((stream, started)), Ok(place)) => {
                        join(set, stream, Some(started), place, newcomers).await;
                    }
                    (Err(error), _) => {
                        tracing::error!(plugin = %name, %error, "an NRI plugin cannot be started");
                    }
                    (_, Err(_)) => {
                        tracing::error!(plugin = %name, "there are {PLUGINS_MAX} NRI plugins already");
                    }
                }
            }
        });
        futures::future::join_all(starting).await;
        if let Some(path) = &set.config.socket {
            let listen_error = |source| ServeError::Listen { path: path.clone(), source };
            let listener = socket::listen(path).map_err(listen_error)?;
            tracing::info!(socket = %path.display(), "NRI plugins may connect");
            tokio::spawn(accept(set.clone(), listener, path.clone(), newcomers));
        }
        Ok(())
    }

    /// Closes the socket and all plugins.
    pub async fn close(&self) {
        self.0.closing.send_replace(true);
        let all = u32::try_from(PLUGINS_MAX).unwrap_or(u32::MAX);
        let closed = self.0.places.acquire_many(all);
        if tokio::time::timeout(CLOSED_WITHIN, closed).await.is_err() {
            tracing::debug!("some NRI plugins are left");
        }
    }

    /// Begins an operation that needs the plugins' answers.
    pub fn begin(&self) -> Flight {
        Flight::begin(&self.0)
    }

    /// Returns true without plugins. Then nothing has to be converted.
    pub fn is_alone(&self) -> bool {
        self.0.plugins().is_empty()
    }

    /// Sends an event to all plugins, without waiting.
    pub fn notice(&self, occurrence: Occurrence) {
        let (event, occurrence) = (occurrence.event, Arc::new(occurrence));
        for plugin in self.0.plugins().iter() {
            let occurrence = occurrence.clone();
            let rpc = move |client, deadline: Deadline| async move {
                occurrence.send(&client, || deadline.context()).await
            };
            plugin.notice(event, rpc, |()| {});
        }
    }

    /// Sends an event to all plugins one after the other, and waits as long as one answer may take. The
    /// remaining plugins get it later.
    pub async fn notice_first(&self, occurrence: Occurrence) {
        let (event, occurrence) = (occurrence.event, Arc::new(occurrence));
        let plugins = self.0.plugins();
        let mut rest = plugins.iter();
        let asking = async {
            for plugin in &mut rest {
                let occurrence = occurrence.clone();
                let rpc = move |client, deadline: Deadline| async move {
                    occurrence.send(&client, || deadline.context()).await
                };
                if let Err(error) = plugin.call(event, rpc).await {
                    tracing::warn!(%error, "a plugin fails at an event");
                }
            }
        };
        let late = tokio::time::timeout(self.0.config.request_timeout, asking).await.is_err();
        for plugin in rest.filter(|_| late) {
            let occurrence = occurrence.clone();
            let rpc = move |client, deadline: Deadline| async move {
                occurrence.send(&client, || deadline.context()).await
            };
            plugin.notice(event, rpc, |()| {});
        }
    }

    /// Notifies all plugins of a container's end, without waiting. Their updates of other containers are
    /// applied later.
    pub fn container_stopped(&self, pod: PodSandbox, container: Container) {
        let (pod, container) = (Some(pod).into(), Some(container).into());
        let request = Arc::new(StopContainerRequest { pod, container, ..Default::default() });
        for plugin in self.0.plugins().iter() {
            let (request, set) = (request.clone(), self.0.clone());
            let rpc = move |client: PluginClient, deadline: Deadline| async move {
                client.stop_container(deadline.context(), &request).await
            };
            plugin.notice(STOP_CONTAINER, rpc, move |response| set.update_later(response.update));
        }
    }
}

/// Lets a plugin join, and waits until it has the existing pods and containers.
async fn join(
    set: Arc<Set>,
    stream: UnixStream,
    started: Option<Started>,
    place: OwnedSemaphorePermit,
    newcomers: mpsc::Sender<Newcomer>,
) {
    let what = started.as_ref().map_or_else(|| "connected on its own".to_owned(), |one| one.name.to_string());
    let Some(runtime) = set.runtime.get().cloned() else { return };
    let mut closing = set.closing.subscribe();
    let joined = tokio::select! {
        joined = Joined::join(stream, started, &set.config, runtime) => joined,
        _ = closing.wait_for(|closing| *closing) => return,
    };
    match joined {
        Ok(joined) => {
            let (ready, is_ready) = oneshot::channel();
            if newcomers.send(Newcomer { joined, place, ready }).await.is_ok() {
                // The task logs the plugin's refusal itself.
                let _ = is_ready.await;
            }
        }
        Err(error) => tracing::error!(plugin = what, %error, "an NRI plugin does not join"),
    }
}

/// Accepts plugins until the daemon ends.
async fn accept(set: Arc<Set>, listener: UnixListener, path: PathBuf, newcomers: mpsc::Sender<Newcomer>) {
    let mut closing = set.closing.subscribe();
    let accepting = async {
        loop {
            match listener.accept().await {
                Ok((stream, _)) => match set.places.clone().try_acquire_owned() {
                    Ok(place) => {
                        tokio::spawn(join(set.clone(), stream, None, place, newcomers.clone()));
                    }
                    Err(_) => {
                        tracing::error!(
                            "there are {PLUGINS_MAX} NRI plugins already; another is turned away"
                        );
                    }
                },
                Err(error) => {
                    tracing::warn!(%error, "an NRI plugin cannot be accepted");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    };
    tokio::select! {
        () = accepting => {}
        _ = closing.wait_for(|closing| *closing) => {
            // Plugins would try to connect to a socket file without a listener.
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Applies the updates without waiting callers, as long as there is a runtime.
async fn make_updates(set: std::sync::Weak<Set>, mut waiting: mpsc::Receiver<Vec<ContainerUpdate>>) {
    while let Some(updates) = waiting.recv().await {
        let Some(runtime) = set.upgrade().and_then(|set| set.runtime.get().cloned()) else { return };
        let failed = runtime.update(updates).await;
        if !failed.is_empty() {
            let ids: Vec<_> = failed.iter().map(|update| update.container_id.as_str()).collect();
            tracing::warn!(containers = ids.join(", "), "updates requested by NRI plugins failed");
        }
    }
}
