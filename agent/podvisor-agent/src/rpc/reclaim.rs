//! Reclaim: gives back memory of cached files.

use proto_agent::agent::ReclaimResponse;
use ttrpc::Code;

use crate::page_cache;
use crate::rpc::gate::Gate;
use crate::rpc::status::{cancelled, refusal};

pub(super) async fn reclaim(gate: &Gate) -> ttrpc::Result<ReclaimResponse> {
    gate.pod().await?;
    // The kernel searches its lists during the call, so it must not block the runtime's only thread.
    let work = tokio::task::spawn_blocking(page_cache::reclaim_half);
    let done = work.await.map_err(cancelled)?;
    let reclaimed =
        done.map_err(|error| refusal(Code::INTERNAL, &format!("cannot reclaim cached files: {error}")))?;
    Ok(ReclaimResponse { reclaimed, ..Default::default() })
}
