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

/// How long the daemon's end may wait for plugins to be closed.
const CLOSED_WITHIN: Duration = Duration::from_secs(2);

/// How long to wait after a connection could not be accepted.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// All plugins of the node. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Plugins(Arc<Set>);

/// Why no plugins are served.
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
    /// The directories of plugins that are started cannot be read.
    #[error("looking for NRI plugins to start")]
    Find(#[source] Box<dyn std::error::Error + Send + Sync>),
}

impl ServeError {
    /// Whether another process serves the socket.
    pub fn is_taken(&self) -> bool {
        matches!(self, ServeError::Listen { source, .. } if source.kind() == io::ErrorKind::AddrInUse)
    }
}

impl Plugins {
    /// No plugins yet, and none before [`Plugins::serve`].
    ///
    /// # Panics
    /// Outside of a Tokio runtime.
    pub fn new(config: NriConfig) -> Plugins {
        let (set, waiting) = Set::new(config);
        tokio::spawn(make_updates(Arc::downgrade(&set), waiting));
        Plugins(set)
    }

    /// Starts the plugins of the node's directory, and lets others connect. Returns when those that were started have what there is,
    /// or have failed, which is logged.
    ///
    /// # Errors
    /// Plugins cannot be found, or not be listened for.
    pub async fn serve(&self, runtime: Arc<dyn Runtime>) -> Result<(), ServeError> {
        let set = &self.0;
        // A second runtime is a fault of the caller, and changes nothing.
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

    /// Begins something that plugins are asked about.
    pub fn begin(&self) -> Flight {
        Flight::begin(&self.0)
    }

    /// Whether there is no plugin, so that nothing needs to be converted.
    pub fn is_alone(&self) -> bool {
        self.0.plugins().is_empty()
    }

    /// Lets all plugins hear of an event, and waits for nobody.
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

    /// Lets all plugins hear of an event, one after the other, and waits for them for as long as one may take to answer. Those that have
    /// not heard by then hear later.
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

    /// Lets all plugins hear that a container has ended, and waits for nobody. Their updates of other containers are made later.
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

/// Has a plugin join, and waits until it has what there is.
async fn join(
    set: Arc<Set>,
    stream: UnixStream,
    started: Option<Started>,
    place: OwnedSemaphorePermit,
    newcomers: mpsc::Sender<Newcomer>,
) {
    let what = started.as_ref().map_or_else(|| "that connected".to_owned(), |one| one.name.to_string());
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
                // Where it does not take what there is, that is logged there.
                let _ = is_ready.await;
            }
        }
        Err(error) => tracing::error!(plugin = what, %error, "an NRI plugin does not join"),
    }
}

/// Lets plugins connect until the daemon ends.
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
            // A socket file without a listener would make plugins try to connect to it.
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Makes the updates that nobody waits for, as long as there is a runtime.
async fn make_updates(set: std::sync::Weak<Set>, mut waiting: mpsc::Receiver<Vec<ContainerUpdate>>) {
    while let Some(updates) = waiting.recv().await {
        let Some(runtime) = set.upgrade().and_then(|set| set.runtime.get().cloned()) else { return };
        let failed = runtime.update(updates).await;
        if !failed.is_empty() {
            let ids: Vec<_> = failed.iter().map(|update| update.container_id.as_str()).collect();
            tracing::warn!(containers = ids.join(", "), "updates that NRI plugins asked for cannot be made");
        }
    }
}
