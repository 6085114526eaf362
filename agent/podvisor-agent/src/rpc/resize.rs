//! ResizePod: brings processors up or down, and binds the memory device. The memory itself is then negotiated
//! between the host's device and the kernel's driver; this call does not wait for it.

use proto_agent::agent::{Empty, ResizePodRequest};
use ttrpc::Code;

use crate::processors;
use crate::rpc::gate::Gate;
use crate::rpc::status::{cancelled, failed};
use crate::slots::Slots;

pub(super) async fn pod(gate: &Gate, request: ResizePodRequest) -> ttrpc::Result<Empty> {
    gate.pod().await?;
    // Runs to its end even if the caller is gone, without blocking the runtime's only thread.
    let work = tokio::task::spawn_blocking(move || {
        if request.memory_slot != 0 {
            Slots::default().bind(request.memory_slot).map_err(|error| failed(Code::INTERNAL, &error))?;
        }
        processors::set_online(request.vcpus).map_err(|error| failed(Code::INTERNAL, &error))
    });
    work.await.map_err(cancelled)??;
    Ok(Empty::default())
}
