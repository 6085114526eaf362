//! The gate for all RPCs: it logs one line per failure, turns errors into gRPC codes, and records the
//! duration. No RPC logs its own failure or bypasses the gate. `traced.rs` makes the spans around it, with
//! the RPC's name.

use std::time::Instant;

use tonic::{Code, Response, Status};
use tracing::{debug, warn};

use crate::error::Failure;
use crate::requests;
use crate::traced;

/// Runs one RPC's work and answers for it.
pub(crate) async fn gate<T>(
    rpc: &'static str,
    work: impl Future<Output = Result<T, Failure>>,
) -> Result<Response<T>, Status> {
    let started = Instant::now();
    let outcome = work.await.map_err(|failure| {
        traced::failed(failure.code(), &failure);
        Status::from(failure)
    });
    requests::answered(rpc, outcome.as_ref().map_or_else(Status::code, |_| Code::Ok), started.elapsed());
    match outcome {
        Ok(answer) => {
            debug!(elapsed_us = started.elapsed().as_micros() as u64, "answered");
            Ok(Response::new(answer))
        }
        Err(status) => {
            // Clients use NotFound to check that something is gone, and Unimplemented to learn our features.
            // Neither is worth a warning.
            if matches!(status.code(), Code::NotFound | Code::Unimplemented) {
                debug!(message = status.message(), "refused");
            } else {
                warn!(code = ?status.code(), message = status.message(), "failed");
            }
            Err(status)
        }
    }
}
