//! Usage, read on a separate thread because a cgroup file may block its reader. [`crate::usage`] reads.

use proto_agent::agent::{UsageRequest, UsageResponse};

use crate::rpc::gate::Gate;
use crate::rpc::status::cancelled;
use crate::usage;

pub(super) async fn usage(gate: &Gate, request: UsageRequest) -> ttrpc::Result<UsageResponse> {
    let pod = std::sync::Arc::clone(gate.pod().await?);
    pod.clock.heard(request.realtime_ns);
    // One reader at a time. Other callers wait here without using a thread.
    let one_at_a_time = std::sync::Arc::clone(&pod.usage).lock_owned().await;
    let reading = tokio::task::spawn_blocking(move || {
        let read = usage::read(&pod);
        drop(one_at_a_time);
        read
    });
    reading.await.map_err(cancelled)
}
