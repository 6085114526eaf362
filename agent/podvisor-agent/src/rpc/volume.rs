//! Changes of the guest's volumes while containers use them: limits of volumes in memory, and versions of
//! published ones. [`crate::memory_volumes`] and [`crate::published_volumes`] do the work.

use std::sync::Arc;
use std::time::Duration;

use proto_agent::agent::{Empty, PublishVolumeRequest, PublishVolumeResponse, ResizeVolumeRequest};

use crate::pod::Pod;
use crate::published_volumes::Taken;
use crate::rpc::gate::Gate;

/// Delay before an old version is removed. Readers may already have followed the link to it.
const LINGER: Duration = Duration::from_secs(2);

pub(super) async fn resize(gate: &Gate, request: ResizeVolumeRequest) -> ttrpc::Result<Empty> {
    let limits = request.limits.unwrap_or_default();
    gate.run(|pod| async move { Ok(pod.memory_volumes.resize(&request.volume, &limits)?) }).await?;
    Ok(Empty::default())
}

pub(super) async fn publish(
    gate: &Gate,
    request: PublishVolumeRequest,
) -> ttrpc::Result<PublishVolumeResponse> {
    let publish = |pod: Arc<Pod>| async move {
        let taken = pod.published_volumes.publish(&request)?;
        if let Taken::Version { old: Some(old) } = &taken {
            let (volume, old) = (request.volume.clone(), old.clone());
            tokio::spawn(async move {
                tokio::time::sleep(LINGER).await;
                pod.published_volumes.remove_old(&volume, &old);
            });
        }
        Ok(taken == Taken::Current)
    };
    let current = gate.run(publish).await?;
    Ok(PublishVolumeResponse { current, ..Default::default() })
}
