//! Containers: create, start, update, remove, and the shutdown of all. [`crate::lifecycle`] does the work.

use proto_agent::agent::{
    CreateContainerRequest, CreateContainerResponse, Empty, RemoveContainerRequest, ShutdownRequest,
    StartContainerRequest, UpdateContainerRequest,
};

use crate::lifecycle;
use crate::rpc::gate::Gate;

pub(super) async fn create(
    gate: &Gate,
    request: CreateContainerRequest,
) -> ttrpc::Result<CreateContainerResponse> {
    let created = gate.run(|pod| async move { lifecycle::create(&pod, request).await }).await?;
    Ok(CreateContainerResponse {
        uid: created.uid,
        gid: created.gid,
        supplemental_groups: created.groups,
        ..Default::default()
    })
}

pub(super) async fn start(gate: &Gate, request: StartContainerRequest) -> ttrpc::Result<Empty> {
    gate.run(|pod| async move { lifecycle::start(&pod, &request.container_id).await }).await?;
    Ok(Empty::default())
}

pub(super) async fn update(gate: &Gate, request: UpdateContainerRequest) -> ttrpc::Result<Empty> {
    gate.run(|pod| async move { lifecycle::update(&pod, request).await }).await?;
    Ok(Empty::default())
}

pub(super) async fn remove(gate: &Gate, request: RemoveContainerRequest) -> ttrpc::Result<Empty> {
    gate.run(|pod| async move { lifecycle::remove(&pod, &request.container_id).await }).await?;
    Ok(Empty::default())
}

pub(super) async fn shutdown(gate: &Gate, _: ShutdownRequest) -> ttrpc::Result<Empty> {
    // An unconfigured pod has nothing to shut down.
    if *gate.pod.configured.lock().await {
        gate.run(|pod| async move { lifecycle::shut_down(&pod).await }).await?;
    }
    Ok(Empty::default())
}
