//! Joining of a plugin, from its stream to the first event: it registers, is configured and gets the existing
//! pods and containers.

use std::process::Stdio;
use std::sync::Arc;

use proto_nri::nri::{ConfigureRequest, ContainerUpdate, RegisterPluginRequest, SynchronizeRequest};
use proto_nri::nri_ttrpc::PluginClient;
use proto_nri::{MESSAGE_BYTES_MAX, NRI_VERSION};
use protobuf::Message;
use tokio::net::UnixStream;
use tokio::process::Child;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use ttrpc::asynchronous::Client;
use ttrpc::asynchronous::transport::Socket;

use crate::config::NriConfig;
use crate::deadline::{Broken, Deadline};
use crate::event::Events;
use crate::mux::{self, Connections, Trunk};
use crate::name::PluginName;

use crate::runtime::{Known, Runtime};
use crate::serve::{Service, UPDATES_MAX};

/// Most bytes of pods and containers in one message to a plugin. The rest of the message is for the call's
/// names. An old plugin takes only one message, so as much as possible goes into the first.
const PIECE_BYTES_MAX: u64 = (MESSAGE_BYTES_MAX - (64 << 10)) as u64;

/// Most bytes of the tag and the length of a pod or a container in a message.
const FIELD_BYTES: u64 = 6;

/// A started plugin with its configuration.
#[derive(Debug)]
pub(crate) struct Started {
    pub(crate) name: PluginName,
    pub(crate) config: String,
    pub(crate) process: Child,
}

/// Why a plugin did not join.
#[derive(Debug, thiserror::Error)]
pub(crate) enum JoinError {
    #[error("it did not register within {0:?}")]
    NotRegistered(std::time::Duration),
    #[error("it ended before it registered")]
    Ended,
    #[error("{0}")]
    Name(String),
    #[error("it refused {0}: {1}")]
    Refused(&'static str, String),
    #[error("{0}: {1}")]
    Broken(&'static str, #[source] Broken),
    #[error("its events are not valid: {0}")]
    Events(String),
    #[error("{0}")]
    Synchronization(&'static str),
}

/// A registered and configured plugin. Dropping it closes its connection, and kills the plugin if Podvisor
/// started it.
pub(crate) struct Joined {
    pub(crate) name: PluginName,
    pub(crate) events: Events,
    pub(crate) client: PluginClient,
    trunk: Trunk,
    serving: JoinHandle<()>,
    _process: Option<Child>,
}

impl Joined {
    /// Waits until the plugin's stream has ended.
    pub(crate) async fn ended(&self) {
        self.trunk.closed().await;
    }

    /// Registers the plugin at the other end of the stream, and configures it.
    pub(crate) async fn join(
        stream: UnixStream,
        started: Option<Started>,
        config: &NriConfig,
        runtime: Arc<dyn Runtime>,
    ) -> Result<Joined, JoinError> {
        let Connections { plugin, runtime: calls, trunk } = mux::connect(stream);
        let (registered, registration) = oneshot::channel();
        let serving = AbortOnDrop(Some(tokio::spawn(Service::new(runtime, registered).serve(calls))));
        let client = PluginClient::new(Client::new(Socket::new(plugin)));
        let registration = async {
            tokio::select! {
                registration = registration => registration.map_err(|_| JoinError::Ended),
                () = trunk.closed() => Err(JoinError::Ended),
            }
        };
        let registration = match tokio::time::timeout(config.registration_timeout, registration).await {
            Ok(registration) => registration?,
            Err(_) => return Err(JoinError::NotRegistered(config.registration_timeout)),
        };
        let RegisterPluginRequest { plugin_name, plugin_idx, .. } = registration;
        let (name, plugin_config, process) = match started {
            Some(Started { name, config, process }) => (name, config, Some(process)),
            None => {
                let name = PluginName::new(&plugin_idx, &plugin_name).map_err(JoinError::Name)?;
                (name, String::new(), None)
            }
        };
        let events = configure(&client, config, plugin_config).await?;
        Ok(Joined { name, events, client, trunk, serving: serving.keep(), _process: process })
    }

    /// Sends all pods and containers, and returns the updates requested by the plugin. If they do not fit
    /// into one message, they go in several.
    pub(crate) async fn synchronize(
        &self,
        config: &NriConfig,
        known: Known,
    ) -> Result<Vec<ContainerUpdate>, JoinError> {
        let deadline = Deadline(config.registration_timeout);
        let all = async {
            for request in pieces(known) {
                let response = self.client.synchronize(deadline.context(), &request).await?;
                if !request.more {
                    return Ok(Ok(response.update));
                }
                if !response.more || !response.update.is_empty() {
                    return Ok(Err(JoinError::Synchronization(
                        "it does not take pods and containers in pieces",
                    )));
                }
            }
            Ok(Ok(Vec::new()))
        };
        let updates = match deadline.call(all).await {
            Ok(Ok(updates)) => updates?,
            Ok(Err(message)) => return Err(JoinError::Refused("Synchronize", message)),
            Err(broken) => return Err(JoinError::Broken("Synchronize", broken)),
        };
        if updates.len() > UPDATES_MAX {
            return Err(JoinError::Synchronization("it asks for too many updates"));
        }
        Ok(updates)
    }
}

impl Drop for Joined {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// A task that is aborted when its owner drops it, unless the owner keeps it.
struct AbortOnDrop(Option<JoinHandle<()>>);

impl AbortOnDrop {
    fn keep(mut self) -> JoinHandle<()> {
        self.0.take().unwrap_or_else(|| tokio::spawn(async {}))
    }
}

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        if let Some(task) = &self.0 {
            task.abort();
        }
    }
}

async fn configure(
    client: &PluginClient,
    config: &NriConfig,
    plugin_config: String,
) -> Result<Events, JoinError> {
    let milliseconds =
        |duration: std::time::Duration| i64::try_from(duration.as_millis()).unwrap_or(i64::MAX);
    let request = ConfigureRequest {
        config: plugin_config,
        runtime_name: config.runtime_name.clone(),
        runtime_version: config.runtime_version.clone(),
        registration_timeout: milliseconds(config.registration_timeout),
        request_timeout: milliseconds(config.request_timeout),
        NRI_version: NRI_VERSION.to_owned(),
        ..Default::default()
    };
    let deadline = Deadline(config.request_timeout);
    match deadline.call(client.configure(deadline.context(), &request)).await {
        Ok(Ok(response)) => Events::from_bits(response.events).map_err(JoinError::Events),
        Ok(Err(message)) => Err(JoinError::Refused("Configure", message)),
        Err(broken) => Err(JoinError::Broken("Configure", broken)),
    }
}

/// All pods, then all containers, in messages of bounded size.
fn pieces(known: Known) -> Vec<SynchronizeRequest> {
    let mut all = vec![SynchronizeRequest::new()];
    let mut bytes = 0;
    let mut place = |size: u64, all: &mut Vec<SynchronizeRequest>| {
        let size = size + FIELD_BYTES;
        if bytes > 0 && bytes + size > PIECE_BYTES_MAX {
            all.push(SynchronizeRequest::new());
            bytes = 0;
        }
        bytes += size;
    };
    for pod in known.pods {
        place(pod.compute_size(), &mut all);
        all.last_mut().expect("there is always one").pods.push(pod);
    }
    for container in known.containers {
        place(container.compute_size(), &mut all);
        all.last_mut().expect("there is always one").containers.push(container);
    }
    let last = all.len() - 1;
    all[..last].iter_mut().for_each(|request| request.more = true);
    all
}

/// The other end of a started plugin's stream, for use as its standard input.
pub(crate) fn as_stdin(stream: std::os::unix::net::UnixStream) -> Stdio {
    Stdio::from(std::os::fd::OwnedFd::from(stream))
}

#[cfg(test)]
mod tests {
    use proto_nri::nri::{Container, PodSandbox};

    use super::*;

    #[test]
    fn pods_and_containers_go_in_as_many_pieces_as_they_need() {
        let pod = |bytes: usize| PodSandbox { id: "x".repeat(bytes), ..Default::default() };
        let container = |bytes: usize| Container { id: "y".repeat(bytes), ..Default::default() };
        let empty = pieces(Known::default());
        assert_eq!((empty.len(), empty[0].more), (1, false));
        let half = 2 << 20;
        let known = Known {
            pods: vec![pod(half), pod(half), pod(half)],
            containers: vec![container(10), container(half)],
        };
        let sent = pieces(known);
        let counts: Vec<_> =
            sent.iter().map(|one| (one.pods.len(), one.containers.len(), one.more)).collect();
        assert_eq!(counts, [(1, 0, true), (1, 0, true), (1, 1, true), (0, 1, false)]);
        assert!(sent.iter().all(|one| one.compute_size() < MESSAGE_BYTES_MAX as u64));
    }

    #[test]
    fn what_fits_into_one_message_is_not_cut_for_old_plugins() {
        let container =
            |number: usize| Container { id: number.to_string().repeat(100), ..Default::default() };
        let containers: Vec<_> = (1_000_000..1_005_000).map(container).collect();
        let known = Known { containers, ..Default::default() };
        let sent = pieces(known);
        assert_eq!((sent.len(), sent[0].more), (1, false));
        assert!((3 << 20..MESSAGE_BYTES_MAX as u64).contains(&sent[0].compute_size()));
    }
}
