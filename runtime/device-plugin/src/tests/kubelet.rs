//! A kubelet's side of v1beta1, in the order of Kubernetes' own (pkg/kubelet/cm/devicemanager). It removes
//! existing sockets. Within a registration it connects to the plugin and asks for its options. Then it
//! watches the list.

use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use proto_device_plugin::v1beta1::device_plugin_client::DevicePluginClient;
use proto_device_plugin::v1beta1::registration_server::{Registration, RegistrationServer};
use proto_device_plugin::v1beta1::{Device, DevicePluginOptions, Empty, RegisterRequest};
use tokio::net::UnixListener;
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinHandle};
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::{Channel, Server};
use tonic::{Request, Response, Status};

use super::node::soon;
use crate::channel::connect;

/// A kubelet's way with a registration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Manner {
    Takes,
    /// Answers, and never watches the list.
    TakesBlindly,
    Refuses,
    Hangs,
}

/// A registration, with the plugin's options.
#[derive(Debug)]
pub(super) struct Registered {
    pub(super) request: RegisterRequest,
    pub(super) options: Option<DevicePluginOptions>,
}

/// A running kubelet.
pub(super) struct Kubelet {
    directory: PathBuf,
    server: JoinHandle<()>,
    side: Side,
    registered: mpsc::UnboundedReceiver<Registered>,
    lists: mpsc::UnboundedReceiver<Option<Vec<Device>>>,
}

#[derive(Clone)]
struct Side {
    directory: PathBuf,
    manner: Arc<Mutex<Manner>>,
    registered: mpsc::UnboundedSender<Registered>,
    lists: mpsc::UnboundedSender<Option<Vec<Device>>>,
    watching: Arc<Mutex<Vec<AbortHandle>>>,
}

#[tonic::async_trait]
impl Registration for Side {
    async fn register(&self, request: Request<RegisterRequest>) -> Result<Response<Empty>, Status> {
        let manner = *self.manner.lock().unwrap();
        let request = request.into_inner();
        let socket = self.directory.join(&request.endpoint);
        if matches!(manner, Manner::Refuses | Manner::Hangs) {
            let _ = self.registered.send(Registered { request: request.clone(), options: None });
        }
        match manner {
            Manner::Refuses => return Err(Status::unknown("the ResourceName \"vm\" is invalid")),
            Manner::Hangs => return std::future::pending().await,
            Manner::Takes | Manner::TakesBlindly => {}
        }
        let channel = connect(&socket).await.map_err(|error| Status::unknown(error.to_string()))?;
        let mut plugin = DevicePluginClient::new(channel);
        let options = plugin.get_device_plugin_options(Empty {}).await?.into_inner();
        if manner == Manner::Takes {
            let watching = tokio::spawn(watch(plugin, self.lists.clone()));
            self.watching.lock().unwrap().push(watching.abort_handle());
        }
        let _ = self.registered.send(Registered { request, options: Some(options) });
        Ok(Response::new(Empty {}))
    }
}

/// Watches the list to its end, sent as `None`.
async fn watch(mut plugin: DevicePluginClient<Channel>, lists: mpsc::UnboundedSender<Option<Vec<Device>>>) {
    if let Ok(stream) = plugin.list_and_watch(Empty {}).await {
        let mut stream = stream.into_inner();
        while let Ok(Some(list)) = stream.message().await {
            let _ = lists.send(Some(list.devices));
        }
    }
    let _ = lists.send(None);
}

impl Kubelet {
    /// Starts in this directory, and creates it if it is missing.
    pub(super) fn start(directory: &Path, manner: Manner) -> Kubelet {
        let listener = listen(directory);
        let (registered_to, registered) = mpsc::unbounded_channel();
        let (lists_to, lists) = mpsc::unbounded_channel();
        let side = Side {
            directory: directory.to_owned(),
            manner: Arc::new(Mutex::new(manner)),
            registered: registered_to,
            lists: lists_to,
            watching: Arc::default(),
        };
        let service = RegistrationServer::new(side.clone());
        let server = tokio::spawn(async move {
            let incoming = UnixListenerStream::new(listener);
            Server::builder().add_service(service).serve_with_incoming(incoming).await.unwrap();
        });
        Kubelet { directory: directory.to_owned(), server, side, registered, lists }
    }

    /// Ends as SIGKILL ends it: its socket stays, and its connections break.
    pub(super) async fn kill(self) {
        self.server.abort();
        let _ = self.server.await;
        for watching in self.side.watching.lock().unwrap().drain(..) {
            watching.abort();
        }
    }

    /// Changes the handling of later registrations.
    pub(super) fn set_manner(&self, manner: Manner) {
        *self.side.manner.lock().unwrap() = manner;
    }

    /// Stops watching, like a broken connection.
    pub(super) fn look_away(&self) {
        for watching in self.side.watching.lock().unwrap().drain(..) {
            watching.abort();
        }
    }

    /// Waits for the next registration.
    pub(super) async fn registered(&mut self) -> Registered {
        soon(self.registered.recv()).await.expect("the kubelet runs")
    }

    /// Waits for the next list, and returns each device's health; `None` when the plugin ended the list.
    pub(super) async fn list(&mut self) -> Option<Vec<(String, String)>> {
        let list = soon(self.lists.recv()).await.expect("the kubelet runs")?;
        Some(list.into_iter().map(|device| (device.id, device.health)).collect())
    }

    /// Waits for a list with these devices healthy, and all others not.
    pub(super) async fn list_with_healthy(&mut self, healthy: &[&str]) {
        loop {
            let list = self.list().await.expect("the plugin goes on");
            let found: Vec<_> =
                list.iter().filter(|(_, health)| health == "Healthy").map(|(id, _)| id.as_str()).collect();
            if found == healthy {
                return;
            }
        }
    }

    /// A client of the plugin, as the kubelet has one.
    pub(super) async fn plugin(&self) -> DevicePluginClient<Channel> {
        let socket = self.directory.join(crate::socket::NAME);
        DevicePluginClient::new(connect(&socket).await.unwrap())
    }
}

/// Removes every socket in the directory, and listens.
pub(super) fn listen(directory: &Path) -> UnixListener {
    fs::create_dir_all(directory).unwrap();
    for entry in fs::read_dir(directory).unwrap() {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_socket() {
            // Two kubelets of a test never start at one time.
            fs::remove_file(entry.path()).unwrap();
        }
    }
    UnixListener::bind(directory.join("kubelet.sock")).unwrap()
}
