//! ConfigurePod: the barrier before everything else.

use agent_container::launch::Failure;
use proto_agent::agent::{ConfigurePodRequest, ConfigurePodResponse};
use ttrpc::Code;

use crate::configure;
use crate::rpc::{Service, refusal};

pub(super) async fn pod(
    service: &Service,
    request: ConfigurePodRequest,
) -> ttrpc::Result<ConfigurePodResponse> {
    let pod = std::sync::Arc::clone(&service.pod);
    let work = tokio::spawn(async move {
        let mut configured = pod.configured.lock().await;
        if *configured {
            return Err(refusal(Code::FAILED_PRECONDITION, "the pod is configured already"));
        }
        configure::run(&pod, &request).await.map_err(|error| {
            let code = if error.is_the_requests() { Code::INVALID_ARGUMENT } else { Code::INTERNAL };
            refusal(code, &Failure::from_error(&error).message)
        })?;
        *configured = true;
        Ok(ConfigurePodResponse::default())
    });
    work.await.unwrap_or_else(|_| Err(refusal(Code::INTERNAL, "the request's task has died")))
}
