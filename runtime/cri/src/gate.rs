//! The one gate that every RPC passes: a span with the RPC's name, one log line when it failed, and
//! errors turned into gRPC codes, and its time counted. No RPC logs its own failure, and none is answered around the gate.

use std::time::Instant;

use tonic::{Code, Response, Status};
use tracing::{Instrument, debug, info_span, warn};

use crate::error::Failure;
use crate::requests;

/// Runs one RPC's work and answers for it.
pub(crate) async fn gate<T>(
    rpc: &'static str,
    work: impl Future<Output = Result<T, Failure>>,
) -> Result<Response<T>, Status> {
    let span = info_span!("cri", rpc);
    async {
        let started = Instant::now();
        let outcome = work.await.map_err(Status::from);
        requests::answered(rpc, outcome.as_ref().map_or_else(Status::code, |_| Code::Ok), started.elapsed());
        match outcome {
            Ok(answer) => {
                debug!(elapsed_us = started.elapsed().as_micros() as u64, "answered");
                Ok(Response::new(answer))
            }
            Err(status) => {
                // NotFound is how clients ask whether something is gone, Unimplemented what we can: no news.
                if matches!(status.code(), Code::NotFound | Code::Unimplemented) {
                    debug!(message = status.message(), "refused");
                } else {
                    warn!(code = ?status.code(), message = status.message(), "failed");
                }
                Err(status)
            }
        }
    }
    .instrument(span)
    .await
}
