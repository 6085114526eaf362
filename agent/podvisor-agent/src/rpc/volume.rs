//! Volumes that the guest keeps: their bounds change while containers have them. [`crate::memory_volumes`] does the work.

use proto_agent::agent::{Empty, ResizeVolumeRequest};

use crate::rpc::gate::Gate;

pub(super) async fn resize(gate: &Gate, request: ResizeVolumeRequest) -> ttrpc::Result<Empty> {
    let limits = request.limits.unwrap_or_default();
    gate.run(|pod| async move { Ok(pod.memory_volumes.resize(&request.volume, &limits)?) }).await?;
    Ok(Empty::default())
}
