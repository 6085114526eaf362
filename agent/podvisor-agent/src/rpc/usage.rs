//! Usage: read on a thread of its own, since a cgroup file may keep its reader waiting.

use proto_agent::agent::{UsageRequest, UsageResponse};
use ttrpc::Code;

use crate::rpc::{Service, refusal};
use crate::usage;

pub(super) async fn usage(service: &Service, _: UsageRequest) -> ttrpc::Result<UsageResponse> {
    let pod = std::sync::Arc::clone(service.pod().await?);
    // One reader: another caller waits here, and takes no thread meanwhile.
    let one_at_a_time = std::sync::Arc::clone(&pod.usage).lock_owned().await;
    let reading = tokio::task::spawn_blocking(move || {
        let read = usage::read(&pod);
        drop(one_at_a_time);
        read
    });
    reading.await.map_err(|_| refusal(Code::INTERNAL, "the request's task has died"))
}
