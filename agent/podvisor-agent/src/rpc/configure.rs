//! ConfigurePod, before which no other call is served. [`crate::configure`] does the work.

use proto_agent::agent::{ConfigurePodRequest, ConfigurePodResponse};
use ttrpc::Code;

use crate::configure;
use crate::rpc::gate::Gate;
use crate::rpc::status::{cancelled, failed, refusal};

pub(super) async fn pod(gate: &Gate, request: ConfigurePodRequest) -> ttrpc::Result<ConfigurePodResponse> {
    let pod = std::sync::Arc::clone(&gate.pod);
    let work = tokio::spawn(async move {
        let mut configured = pod.configured.lock().await;
        if *configured {
            return Err(refusal(Code::FAILED_PRECONDITION, "the pod is configured already"));
        }
        configure::run(&pod, &request).await.map_err(|error| {
            let code = if error.is_invalid_request() { Code::INVALID_ARGUMENT } else { Code::INTERNAL };
            failed(code, &error)
        })?;
        *configured = true;
        Ok(ConfigurePodResponse::default())
    });
    work.await.map_err(cancelled)?
}
