//! Containers: create, start, update, remove, and the end of all.

use proto_agent::agent::{
    CreateContainerRequest, CreateContainerResponse, Empty, RemoveContainerRequest, ShutdownRequest,
    StartContainerRequest, UpdateContainerRequest,
};

use crate::containers;
use crate::rpc::Service;

pub(super) async fn create(
    service: &Service,
    request: CreateContainerRequest,
) -> ttrpc::Result<CreateContainerResponse> {
    let created = service.run(|pod| async move { containers::create(&pod, request).await }).await?;
    Ok(CreateContainerResponse {
        uid: created.uid,
        gid: created.gid,
        supplemental_groups: created.groups,
        ..Default::default()
    })
}

pub(super) async fn start(service: &Service, request: StartContainerRequest) -> ttrpc::Result<Empty> {
    service.run(|pod| async move { containers::start(&pod, &request.container_id).await }).await?;
    Ok(Empty::default())
}

pub(super) async fn update(service: &Service, request: UpdateContainerRequest) -> ttrpc::Result<Empty> {
    service.run(|pod| async move { containers::update(&pod, request).await }).await?;
    Ok(Empty::default())
}

pub(super) async fn remove(service: &Service, request: RemoveContainerRequest) -> ttrpc::Result<Empty> {
    service.run(|pod| async move { containers::remove(&pod, &request.container_id).await }).await?;
    Ok(Empty::default())
}

pub(super) async fn shutdown(service: &Service, _: ShutdownRequest) -> ttrpc::Result<Empty> {
    // Before the barrier there is nothing to shut down.
    if *service.pod.configured.lock().await {
        service.run(|pod| async move { containers::kill_all(&pod).await }).await?;
    }
    Ok(Empty::default())
}
