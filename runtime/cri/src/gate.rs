//! The one gate that every RPC passes: one log line when it failed, errors turned into gRPC codes, and its time counted. No RPC logs
//! its own failure, and none is answered around the gate. The spans around it, with the RPC's name, are made in `traced.rs`.

use std::time::Instant;

use tonic::{Code, Response, Status};
use tracing::{debug, warn};

use crate::error::Failure;
use crate::requests;

/// Runs one RPC's work and answers for it.
pub(crate) async fn gate<T>(
    rpc: &'static str,
    work: impl Future<Output = Result<T, Failure>>,
) -> Result<Response<T>, Status> {
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
