//! The kubelets of 1.8 and 1.9, generated from the interface files of their time. They answer a registration
//! at once, connect to the plugin after that, and know no options. Each accepts only its own version.

use std::collections::BTreeMap;

use super::kubelet::listen;
use super::node::{Node, soon};

/// A kubelet's side of one alpha version, in a module of its own.
macro_rules! old_kubelet {
    ($name:ident, $proto:ident, $version:literal) => {
        mod $name {
            use std::path::{Path, PathBuf};

            use proto_device_plugin::$proto::device_plugin_client::DevicePluginClient;
            use proto_device_plugin::$proto::registration_server::{Registration, RegistrationServer};
            use proto_device_plugin::$proto::{Empty, RegisterRequest};
            use tokio::sync::mpsc;
            use tokio_stream::wrappers::UnixListenerStream;
            use tonic::transport::{Channel, Server};
            use tonic::{Request, Response, Status};

            use crate::channel::connect;

            pub(super) type Plugin = DevicePluginClient<Channel>;
            pub(super) use proto_device_plugin::$proto::{AllocateRequest, AllocateResponse};

            struct Side(mpsc::UnboundedSender<PathBuf>, PathBuf);

            #[tonic::async_trait]
            impl Registration for Side {
                async fn register(
                    &self,
                    request: Request<RegisterRequest>,
                ) -> Result<Response<Empty>, Status> {
                    let request = request.into_inner();
                    if request.version != $version {
                        return Err(Status::unknown("Unsupported version"));
                    }
                    assert_eq!(request.resource_name, "podvisor.io/vm");
                    self.0.send(self.1.join(request.endpoint)).unwrap();
                    Ok(Response::new(Empty {}))
                }
            }

            /// Starts the kubelet. The channel receives the socket of each accepted plugin.
            pub(super) fn start(directory: &Path) -> mpsc::UnboundedReceiver<PathBuf> {
                let (sender, receiver) = mpsc::unbounded_channel();
                let incoming = UnixListenerStream::new(super::listen(directory));
                let service = RegistrationServer::new(Side(sender, directory.to_owned()));
                tokio::spawn(Server::builder().add_service(service).serve_with_incoming(incoming));
                receiver
            }

            /// Connects to a plugin.
            pub(super) async fn plugin(socket: &Path) -> Plugin {
                DevicePluginClient::new(connect(socket).await.unwrap())
            }

            /// Watches the list; each item is every device's health.
            pub(super) async fn watch(plugin: &mut Plugin) -> mpsc::UnboundedReceiver<Vec<(String, String)>> {
                let mut lists = plugin.list_and_watch(Empty {}).await.unwrap().into_inner();
                let (sender, receiver) = mpsc::unbounded_channel();
                tokio::spawn(async move {
                    while let Ok(Some(list)) = lists.message().await {
                        let devices = list.devices.into_iter();
                        let _ = sender.send(devices.map(|device| (device.id, device.health)).collect());
                    }
                });
                receiver
            }
        }
    };
}

old_kubelet!(kubelet_1_8, v0_1, "0.1");
old_kubelet!(kubelet_1_9, v1alpha2, "v1alpha2");

fn listed(health: &str) -> Vec<(String, String)> {
    (0..4).map(|number| (format!("vm-{number}"), health.to_owned())).collect()
}

fn ids(ids: &[&str]) -> Vec<String> {
    ids.iter().map(|id| (*id).to_owned()).collect()
}

#[tokio::test]
async fn a_kubelet_1_9_gets_the_plugin_its_list_and_its_allocations() {
    let node = Node::with_plugin();
    let mut kubelet = kubelet_1_9::start(&node.directory());
    let socket = soon(kubelet.recv()).await.unwrap();
    assert_eq!(socket, node.socket());
    let mut plugin = kubelet_1_9::plugin(&socket).await;
    let mut lists = kubelet_1_9::watch(&mut plugin).await;
    assert_eq!(soon(lists.recv()).await.unwrap(), listed("Healthy"));
    node.hardware.set_broken("no KVM");
    assert_eq!(soon(lists.recv()).await.unwrap(), listed("Unhealthy"));
    let request = kubelet_1_9::AllocateRequest { device_ids: ids(&["vm-3"]) };
    let answer = plugin.allocate(request).await.unwrap().into_inner();
    let nothing =
        kubelet_1_9::AllocateResponse { envs: BTreeMap::new(), mounts: Vec::new(), devices: Vec::new() };
    assert_eq!(answer, nothing);
    let request = kubelet_1_9::AllocateRequest { device_ids: ids(&["vm-4"]) };
    assert_eq!(plugin.allocate(request).await.unwrap_err().code(), tonic::Code::InvalidArgument);
}

#[tokio::test]
async fn a_kubelet_1_8_gets_the_plugin_its_list_and_its_allocations() {
    let node = Node::with_plugin();
    let mut kubelet = kubelet_1_8::start(&node.directory());
    let socket = soon(kubelet.recv()).await.unwrap();
    let mut plugin = kubelet_1_8::plugin(&socket).await;
    let mut lists = kubelet_1_8::watch(&mut plugin).await;
    assert_eq!(soon(lists.recv()).await.unwrap(), listed("Healthy"));
    let request = kubelet_1_8::AllocateRequest { device_ids: ids(&["vm-0", "vm-1"]) };
    let answer = plugin.allocate(request).await.unwrap().into_inner();
    assert_eq!(answer, kubelet_1_8::AllocateResponse { spec: Vec::new() });
    let request = kubelet_1_8::AllocateRequest { device_ids: ids(&["vm-00"]) };
    assert_eq!(plugin.allocate(request).await.unwrap_err().code(), tonic::Code::InvalidArgument);
}

#[tokio::test]
async fn a_node_that_is_upgraded_from_1_9_gets_the_plugin_by_the_newer_api() {
    use super::kubelet::{Kubelet, Manner};
    let node = Node::with_plugin();
    let mut old = kubelet_1_9::start(&node.directory());
    soon(old.recv()).await.unwrap();
    let mut new = Kubelet::start(&node.directory(), Manner::Takes);
    assert_eq!(new.registered().await.request.version, "v1beta1");
}
