//! The plugin's side of the API, the same for every version. [`v1beta1`] and [`alpha`] only convert.

mod alpha;
mod list;
mod v1beta1;

use std::pin::Pin;
use std::sync::Arc;

use futures::Stream;
use proto_device_plugin::v1alpha2::device_plugin_server::DevicePluginServer as AlphaServer;
use proto_device_plugin::v1beta1::device_plugin_server::DevicePluginServer as BetaServer;
use tokio::sync::watch;
use tonic::Status;
use tonic::transport::Server;
use tonic::transport::server::Router;

use crate::Config;
use crate::devices::{Devices, Usable, name};
use crate::preferred::{Choice, choose, numbers};

/// Longest request in bytes. A request for all devices has some 10 KiB for each container.
const REQUEST_BYTES_MAX: usize = 1 << 20;

/// Most watched lists at one time: one of the kubelet's, and those of earlier kubelets if their end is not
/// noticed yet.
const WATCHERS_MAX: usize = 8;

/// Most open calls of one client at one time on a connection.
const CALLS_MAX: u32 = 64;

/// Lists of devices, one after each change.
type Lists<L> = Pin<Box<dyn Stream<Item = Result<L, Status>> + Send>>;

/// The plugin's answers.
#[derive(Clone, Debug)]
pub(crate) struct Answers {
    pub(crate) config: Arc<Config>,
    pub(crate) usable: watch::Receiver<Usable>,
    /// Number of watched lists.
    pub(crate) watchers: watch::Sender<usize>,
    /// Set when the socket is removed. Lists end then.
    pub(crate) stopping: watch::Receiver<bool>,
}

impl Answers {
    /// Both versions' services, on one server. Their packages on the wire differ.
    pub(crate) fn services(self) -> Router {
        let alpha = AlphaServer::new(self.clone()).max_decoding_message_size(REQUEST_BYTES_MAX);
        let beta = BetaServer::new(self).max_decoding_message_size(REQUEST_BYTES_MAX);
        Server::builder().max_concurrent_streams(CALLS_MAX).add_service(beta).add_service(alpha)
    }

    fn devices(&self) -> Devices {
        Devices { count: self.config.vms }
    }

    /// Returns the devices of one container by their listed ids, in order.
    fn allocated(&self, ids: &[String]) -> Result<String, Status> {
        let numbers = numbers(self.devices(), ids).map_err(|error| self.refused(&error))?;
        Ok(numbers.into_iter().map(name).collect::<Vec<_>>().join(","))
    }

    fn preferred(&self, choice: Choice<'_>) -> Result<Vec<String>, Status> {
        choose(self.devices(), choice).map_err(|error| self.refused(&error))
    }

    fn refused(&self, error: &str) -> Status {
        Status::invalid_argument(format!("{}: {error}", self.config.resource))
    }

    /// The stream of lists: one at once, and one after each change, until the plugin stops.
    fn lists<L: Send + 'static>(&self, list: fn(Devices, &Usable) -> L) -> Result<Lists<L>, Status> {
        let watcher = list::Watcher::new(&self.watchers, WATCHERS_MAX)
            .ok_or_else(|| Status::resource_exhausted(format!("{WATCHERS_MAX} watch the devices already")))?;
        Ok(Box::pin(list::lists(self.devices(), self.usable.clone(), self.stopping.clone(), watcher, list)))
    }
}

/// Returns the kubelet's word for a device's health (`constants.go` of every version).
fn health(usable: bool) -> &'static str {
    if usable { "Healthy" } else { "Unhealthy" }
}
