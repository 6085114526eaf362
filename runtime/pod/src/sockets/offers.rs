//! The sockets available to a pod's containers, by their tokens, and the connector of each container. A
//! connector is started with the first connection and ends with the container.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use runtime_connector::ConnectError;
use runtime_spec::SocketToken;
use tokio::net::UnixStream;

use crate::backend::{BackendError, Connector, ConnectorSpec, Sockets};

/// The offers of a pod.
#[derive(Debug, Default)]
pub(crate) struct Offers(Mutex<HashMap<SocketToken, Arc<Offer>>>);

/// A socket available to a container.
#[derive(Debug)]
pub(crate) struct Offer {
    /// The socket on the node.
    pub(crate) path: PathBuf,
    container: Arc<ContainerConnector>,
}

/// A container's connector.
#[derive(Debug)]
pub(crate) struct ContainerConnector {
    spec: ConnectorSpec,
    state: tokio::sync::Mutex<State>,
}

#[derive(Debug)]
enum State {
    /// The container runs, or will; with its connector, once there was a connection.
    Open(Option<Arc<dyn Connector>>),
    /// The container has ended.
    Closed,
}

/// Why a connection failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OfferError {
    #[error("the container has ended")]
    Ended,
    #[error("starting the container's connector")]
    Start(#[source] BackendError),
    #[error("taking the program's stream")]
    Stream(#[source] std::io::Error),
    #[error(transparent)]
    Connect(#[from] ConnectError),
}

impl Offers {
    /// Offers a container's sockets, by their tokens.
    pub(crate) fn add(&self, spec: ConnectorSpec, sockets: impl IntoIterator<Item = (SocketToken, PathBuf)>) {
        let state = tokio::sync::Mutex::new(State::Open(None));
        let container = Arc::new(ContainerConnector { spec, state });
        let offer = |(token, path)| (token, Arc::new(Offer { path, container: Arc::clone(&container) }));
        self.table().extend(sockets.into_iter().map(offer));
    }

    /// Returns the offer of a token.
    pub(crate) fn get(&self, token: &SocketToken) -> Option<Arc<Offer>> {
        self.table().get(token).cloned()
    }

    /// Removes a container's offers. Returns its connector, to be closed, if the container had offers.
    pub(crate) fn remove(&self, container_id: &str) -> Option<Arc<ContainerConnector>> {
        let mut table = self.table();
        let of_container = |offer: &Offer| offer.container.spec.container_id == container_id;
        let connector = table.values().find(|offer| of_container(offer)).map(|offer| offer.container.clone());
        table.retain(|_, offer| !of_container(offer));
        connector
    }

    /// Removes all offers. Returns the connectors, to be ended.
    pub(crate) fn remove_all(&self) -> Vec<Arc<ContainerConnector>> {
        std::mem::take(&mut *self.table()).into_values().map(|offer| Arc::clone(&offer.container)).collect()
    }

    fn table(&self) -> MutexGuard<'_, HashMap<SocketToken, Arc<Offer>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Offer {
    /// Connects a program's stream to the socket.
    pub(crate) async fn connect(&self, sockets: &dyn Sockets, stream: UnixStream) -> Result<(), OfferError> {
        let stream = OwnedFd::from(stream.into_std().map_err(OfferError::Stream)?);
        let again = stream.try_clone();
        let lost = match self.container.get(sockets).await?.connect(&self.path, stream).await {
            Err(lost @ ConnectError::Lost) => lost,
            outcome => return Ok(outcome?),
        };
        // The earlier one ended on its own, for lack of memory for example. The next one is new.
        let Ok(stream) = again else { return Err(lost.into()) };
        Ok(self.container.get(sockets).await?.connect(&self.path, stream).await?)
    }

    /// The container of the offer.
    pub(crate) fn container_id(&self) -> &str {
        &self.container.spec.container_id
    }
}

impl ContainerConnector {
    /// Returns the connector, and starts it if there is none.
    async fn get(&self, sockets: &dyn Sockets) -> Result<Arc<dyn Connector>, OfferError> {
        let mut state = self.state.lock().await;
        let State::Open(known) = &mut *state else { return Err(OfferError::Ended) };
        if let Some(connector) = known.as_ref().filter(|connector| !connector.is_lost()) {
            return Ok(Arc::clone(connector));
        }
        let started = sockets.start(&self.spec).await.map_err(OfferError::Start)?;
        *known = Some(Arc::clone(&started));
        Ok(started)
    }

    /// Ends the connector for good, and waits for one just being started. Returns whether there was one.
    pub(crate) async fn end(&self) -> bool {
        let before = std::mem::replace(&mut *self.state.lock().await, State::Closed);
        matches!(before, State::Open(Some(_)))
    }

    /// Ends the connector, and removes its cgroup.
    pub(crate) async fn close(&self, sockets: &dyn Sockets) {
        if self.end().await
            && let Err(error) = sockets.clear(&self.spec).await
        {
            let container = &self.spec.container_id;
            tracing::warn!(container, %error, "the cgroup of a container's connector stays until its pod is stopped");
        }
    }
}
