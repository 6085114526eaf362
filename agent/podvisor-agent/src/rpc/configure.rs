//! ConfigurePod and Hello. Before ConfigurePod only PreparePod is served. A daemon connecting later begins
//! with Hello. [`crate::configure`] and [`crate::prepare`] do the work.

use proto_agent::agent::{
    ConfigurePodRequest, ConfigurePodResponse, Empty, HelloRequest, HelloResponse, PreparePodRequest,
};
use proto_agent::version::{self, VersionError};
use ttrpc::Code;

use crate::rpc::gate::Gate;
use crate::rpc::status::{cancelled, failed, refusal};
use crate::{configure, prepare};

pub(super) fn hello(request: &HelloRequest) -> ttrpc::Result<HelloResponse> {
    version::check_daemon(request.protocol_oldest, request.protocol_newest).map_err(stranger)?;
    let (protocol_oldest, protocol_newest) = (version::OLDEST, version::NEWEST);
    Ok(HelloResponse { protocol_oldest, protocol_newest, ..Default::default() })
}

pub(super) async fn prepare(gate: &Gate, request: PreparePodRequest) -> ttrpc::Result<Empty> {
    let pod = std::sync::Arc::clone(&gate.pod);
    let work = tokio::spawn(async move {
        let configured = pod.configured.lock().await;
        if *configured || pod.prepared.get().is_some() {
            return Err(refusal(Code::FAILED_PRECONDITION, "the guest is prepared already"));
        }
        let prepared =
            prepare::run(pod.restored, &request).await.map_err(|error| failed(Code::INTERNAL, &error))?;
        // The cell is empty: only the holder of the lock fills it.
        let _ = pod.prepared.set(prepared);
        Ok(Empty::default())
    });
    work.await.map_err(cancelled)?
}

pub(super) async fn pod(gate: &Gate, request: ConfigurePodRequest) -> ttrpc::Result<ConfigurePodResponse> {
    version::check_daemon(request.protocol_oldest, request.protocol_newest).map_err(stranger)?;
    let pod = std::sync::Arc::clone(&gate.pod);
    let work = tokio::spawn(async move {
        let mut configured = pod.configured.lock().await;
        if *configured {
            return Err(refusal(Code::FAILED_PRECONDITION, "the pod is configured already"));
        }
        if pod.restored {
            pod.fetched_ahead.discard().await.map_err(|error| failed(Code::INTERNAL, &error))?;
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

/// Refuses a daemon with an incompatible protocol version.
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
