//! The kubelet's pod-resources socket, with pods set by the test.

use std::path::Path;
use std::sync::{Arc, Mutex};

use proto_device_plugin::pod_resources::pod_resources_lister_server::{
    PodResourcesLister, PodResourcesListerServer,
};
use proto_device_plugin::pod_resources::{
    AllocatableResourcesRequest, AllocatableResourcesResponse, ContainerDevices, ContainerResources,
    ListPodResourcesRequest, ListPodResourcesResponse, PodResources,
};
use tokio::net::UnixListener;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::Server;
use tonic::{Request, Response, Status};

/// Ids of devices held by pods, one pod for each. `None` for a kubelet without this list.
#[derive(Clone, Debug, Default)]
pub(super) struct Pods(Arc<Mutex<Option<Vec<String>>>>);

impl Pods {
    /// Serves on this socket.
    pub(super) fn serve(socket: &Path) -> Pods {
        let pods = Pods::default();
        let service = PodResourcesListerServer::new(pods.clone());
        let incoming = UnixListenerStream::new(UnixListener::bind(socket).unwrap());
        tokio::spawn(Server::builder().add_service(service).serve_with_incoming(incoming));
        pods
    }

    /// Sets the devices held by pods.
    pub(super) fn set(&self, ids: &[&str]) {
        *self.0.lock().unwrap() = Some(ids.iter().map(|id| (*id).to_owned()).collect());
    }

    /// Answers no more.
    pub(super) fn fall_silent(&self) {
        *self.0.lock().unwrap() = None;
    }
}

#[tonic::async_trait]
impl PodResourcesLister for Pods {
    async fn list(
        &self,
        _: Request<ListPodResourcesRequest>,
    ) -> Result<Response<ListPodResourcesResponse>, Status> {
        let devices = |resource: &str, id: &String| ContainerDevices {
            resource_name: resource.into(),
            device_ids: vec![id.clone()],
        };
        let pod = |id: &String| {
            // Another plugin's devices may have the same ids, in another container of the pod.
            let other = devices("example.com/vm", &"vm-0".to_owned());
            let container = |name: &str, devices| ContainerResources { name: name.into(), devices };
            PodResources {
                name: id.clone(),
                namespace: "default".into(),
                containers: vec![
                    container("other", vec![other]),
                    container("ours", vec![devices("podvisor.io/vm", id)]),
                ],
            }
        };
        let pods = self.0.lock().unwrap().clone().ok_or_else(|| Status::unavailable("starting"))?;
        let pod_resources = pods.iter().map(pod).collect();
        Ok(Response::new(ListPodResourcesResponse { pod_resources }))
    }

    async fn get_allocatable_resources(
        &self,
        _: Request<AllocatableResourcesRequest>,
    ) -> Result<Response<AllocatableResourcesResponse>, Status> {
        Err(Status::unimplemented("the plugin does not ask"))
    }
}
