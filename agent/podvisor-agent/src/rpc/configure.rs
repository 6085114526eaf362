//! ConfigurePod, before which no other call is served, and Hello, with which a later daemon begins. [`crate::configure`] does
//! the work.

use proto_agent::agent::{ConfigurePodRequest, ConfigurePodResponse, HelloRequest, HelloResponse};
use proto_agent::version::{self, VersionError};
use ttrpc::Code;

use crate::configure;
use crate::rpc::gate::Gate;
use crate::rpc::status::{cancelled, failed, refusal};

pub(super) fn hello(request: &HelloRequest) -> ttrpc::Result<HelloResponse> {
    version::check_daemon(request.protocol_oldest, request.protocol_newest).map_err(stranger)?;
    let (protocol_oldest, protocol_newest) = (version::OLDEST, version::NEWEST);
    Ok(HelloResponse { protocol_oldest, protocol_newest, ..Default::default() })
}

pub(super) async fn pod(gate: &Gate, request: ConfigurePodRequest) -> ttrpc::Result<ConfigurePodResponse> {
    version::check_daemon(request.protocol_oldest, request.protocol_newest).map_err(stranger)?;
    let pod = std::sync::Arc::clone(&gate.pod);
    let work = tokio::spawn(async move {
        let mut configured = pod.configured.lock().await;
        if *configured {
            return Err(refusal(Code::FAILED_PRECONDITION, "the pod is configured already"));
        }
        let response = configure::run(&pod, &request).await.map_err(|error| {
            let code = if error.is_invalid_request() { Code::INVALID_ARGUMENT } else { Code::INTERNAL };
            failed(code, &error)
        })?;
        *configured = true;
        Ok(response)
    });
    work.await.map_err(cancelled)?
}

/// The refusal of a daemon that speaks another protocol.
fn stranger(error: VersionError) -> ttrpc::Error {
    failed(Code::FAILED_PRECONDITION, &error)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[tokio::test]
    async fn a_daemon_that_speaks_another_protocol_is_refused_before_anything_is_configured() {
        let gate = Gate { pod: Arc::default() };
        let request = ConfigurePodRequest {
            protocol_oldest: version::NEWEST + 1,
            protocol_newest: version::NEWEST + 1,
            ..Default::default()
        };
        let error = pod(&gate, request).await.unwrap_err().to_string();
        let newer = format!("the daemon speaks version {}", version::NEWEST + 1);
        assert!(error.contains(&newer), "{error}");
        assert!(!*gate.pod.configured.lock().await);
        hello(&HelloRequest::default()).unwrap_err();
        let (protocol_oldest, protocol_newest) = (version::OLDEST, version::NEWEST + 1);
        hello(&HelloRequest { protocol_oldest, protocol_newest, ..Default::default() }).unwrap();
    }
}
