//! `tests-device-plugin DIRECTORY MOUNT`: a device plugin as small as one can be. The program registers once
//! with the kubelet of DIRECTORY, lists two devices of `podvisor.test/fuse`, and allots to a container its
//! device's id in a variable, MOUNT, `/dev/fuse` and an annotation, until it is killed.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Parser;
use hyper_util::rt::TokioIo;
use proto_device_plugin::v1beta1::device_plugin_server::{DevicePlugin, DevicePluginServer};
use proto_device_plugin::v1beta1::registration_client::RegistrationClient;
use proto_device_plugin::v1beta1::{
    AllocateRequest, AllocateResponse, ContainerAllocateRequest, ContainerAllocateResponse, Device,
    DevicePluginOptions, DeviceSpec, Empty, ListAndWatchResponse, Mount, PreStartContainerRequest,
    PreStartContainerResponse, PreferredAllocationRequest, PreferredAllocationResponse, RegisterRequest,
};
use tokio::net::{UnixListener, UnixStream};
use tokio_stream::wrappers::{ReceiverStream, UnixListenerStream};
use tonic::transport::{Endpoint, Server, Uri};
use tonic::{Request, Response, Status};

const RESOURCE: &str = "podvisor.test/fuse";
const SOCKET: &str = "podvisor-test.sock";
const DEVICES: [&str; 2] = ["fuse-0", "fuse-1"];

/// How long a kubelet may take to listen.
const DEADLINE: Duration = Duration::from_mins(5);

#[derive(Parser)]
#[command(
    about = "Allots /dev/fuse, a mount, a variable and an annotation to containers of podvisor.test/fuse"
)]
struct Options {
    /// The kubelet's directory of plugins, with its `kubelet.sock`.
    directory: PathBuf,
    /// Directory of the node, mounted read-only in a container as `/allotted`.
    mount: PathBuf,
}

#[tokio::main]
async fn main() -> Result<()> {
    let options = Options::parse();
    // A starting kubelet removes every socket of its directory.
    let kubelet = options.directory.join("kubelet.sock");
    tokio::time::timeout(DEADLINE, reachable(&kubelet)).await.context("there is no kubelet")?;
    let socket = options.directory.join(SOCKET);
    // A killed plugin leaves its socket.
    let _ = std::fs::remove_file(&socket);
    let listener =
        UnixListener::bind(&socket).with_context(|| format!("listening on {}", socket.display()))?;
    let plugin = DevicePluginServer::new(Plugin { mount: options.mount });
    let serving = tokio::spawn(
        Server::builder().add_service(plugin).serve_with_incoming(UnixListenerStream::new(listener)),
    );
    register(kubelet).await.context("registering with the kubelet")?;
    Ok(serving.await??)
}

/// Returns as soon as a server listens on the socket.
async fn reachable(socket: &Path) {
    while UnixStream::connect(socket).await.is_err() {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

async fn register(kubelet: PathBuf) -> Result<()> {
    let dial = tower::service_fn(move |_: Uri| {
        let kubelet = kubelet.clone();
        async move { UnixStream::connect(kubelet).await.map(TokioIo::new) }
    });
    let channel = Endpoint::from_static("http://localhost").connect_with_connector(dial).await?;
    let request = RegisterRequest {
        version: "v1beta1".to_owned(),
        endpoint: SOCKET.to_owned(),
        resource_name: RESOURCE.to_owned(),
        options: None,
    };
    RegistrationClient::new(channel).register(request).await?;
    Ok(())
}

struct Plugin {
    mount: PathBuf,
}

impl Plugin {
    fn allot(&self, container: &ContainerAllocateRequest) -> ContainerAllocateResponse {
        let ids = container.device_ids.join(",");
        ContainerAllocateResponse {
            envs: BTreeMap::from([("ALLOTTED".to_owned(), ids.clone())]),
            mounts: vec![Mount {
                container_path: "/allotted".to_owned(),
                host_path: self.mount.display().to_string(),
                read_only: true,
            }],
            devices: vec![DeviceSpec {
                container_path: "/dev/fuse".to_owned(),
                host_path: "/dev/fuse".to_owned(),
                permissions: "rw".to_owned(),
            }],
            annotations: BTreeMap::from([("podvisor.test/allotted".to_owned(), ids)]),
            cdi_devices: Vec::new(),
        }
    }
}

#[tonic::async_trait]
impl DevicePlugin for Plugin {
    type ListAndWatchStream = ReceiverStream<Result<ListAndWatchResponse, Status>>;

    async fn get_device_plugin_options(
        &self,
        _: Request<Empty>,
    ) -> Result<Response<DevicePluginOptions>, Status> {
        Ok(Response::new(DevicePluginOptions::default()))
    }

    async fn list_and_watch(&self, _: Request<Empty>) -> Result<Response<Self::ListAndWatchStream>, Status> {
        let (sender, receiver) = tokio::sync::mpsc::channel(1);
        let devices = DEVICES
            .map(|id| Device { id: id.to_owned(), health: "Healthy".to_owned(), topology: None })
            .to_vec();
        tokio::spawn(async move {
            if sender.send(Ok(ListAndWatchResponse { devices })).await.is_ok() {
                // The list never changes. Its end would mean the plugin's end.
                sender.closed().await;
            }
        });
        Ok(Response::new(ReceiverStream::new(receiver)))
    }

    async fn get_preferred_allocation(
        &self,
        _: Request<PreferredAllocationRequest>,
    ) -> Result<Response<PreferredAllocationResponse>, Status> {
        Err(Status::unimplemented("the options do not offer GetPreferredAllocation"))
    }

    async fn allocate(
        &self,
        request: Request<AllocateRequest>,
    ) -> Result<Response<AllocateResponse>, Status> {
        let containers = request.into_inner().container_requests;
        let container_responses = containers.iter().map(|container| self.allot(container)).collect();
        Ok(Response::new(AllocateResponse { container_responses }))
    }

    async fn pre_start_container(
        &self,
        _: Request<PreStartContainerRequest>,
    ) -> Result<Response<PreStartContainerResponse>, Status> {
        Err(Status::unimplemented("the options do not offer PreStartContainer"))
    }
}
