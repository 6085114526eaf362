//! Volumes that the guest keeps, which change while containers have them: bounds of volumes in memory, and versions of
//! published ones. [`crate::memory_volumes`] and [`crate::published_volumes`] do the work.

use proto_agent::agent::{Empty, PublishVolumeRequest, PublishVolumeResponse, ResizeVolumeRequest};

use crate::rpc::gate::Gate;

pub(super) async fn resize(gate: &Gate, request: ResizeVolumeRequest) -> ttrpc::Result<Empty> {
    let limits = request.limits.unwrap_or_default();
    gate.run(|pod| async move { Ok(pod.memory_volumes.resize(&request.volume, &limits)?) }).await?;
    Ok(Empty::default())
}

pub(super) async fn publish(
    gate: &Gate,
    request: PublishVolumeRequest,
) -> ttrpc::Result<PublishVolumeResponse> {
    let current = gate.run(|pod| async move { Ok(pod.published_volumes.publish(&request)?) }).await?;
    Ok(PublishVolumeResponse { current, ..Default::default() })
}
