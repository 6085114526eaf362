//! ResizePod: processors up or down, and the memory device bound. Memory itself comes and goes as the
//! host's device and the kernel's driver agree; nothing is waited for.

use proto_agent::agent::{Empty, ResizePodRequest};
use ttrpc::Code;

use crate::processors;
use crate::rpc::gate::Gate;
use crate::rpc::status::{cancelled, failed};
use crate::slots::Slots;

pub(super) async fn pod(gate: &Gate, request: ResizePodRequest) -> ttrpc::Result<Empty> {
    gate.pod().await?;
    // To its end, whatever becomes of the caller, and beside the runtime's one thread.
    let work = tokio::task::spawn_blocking(move || {
        if request.memory_slot != 0 {
            Slots::default().bind(request.memory_slot).map_err(|error| failed(Code::INTERNAL, &error))?;
        }
        processors::set_online(request.vcpus).map_err(|error| failed(Code::INTERNAL, &error))
    });
    work.await.map_err(cancelled)??;
    Ok(Empty::default())
}
