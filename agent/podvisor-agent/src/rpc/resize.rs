//! ResizePod: processors up or down, and the memory device bound. Memory itself comes and goes as the
//! host's device and the kernel's driver agree; nothing is waited for.

use agent_container::launch::Failure;
use proto_agent::agent::{Empty, ResizePodRequest};
use ttrpc::Code;

use crate::processors;
use crate::rpc::{Service, refusal};
use crate::slots::Slots;

pub(super) async fn pod(service: &Service, request: ResizePodRequest) -> ttrpc::Result<Empty> {
    service.pod().await?;
    // To its end, whatever becomes of the caller, and beside the runtime's one thread.
    let work = tokio::task::spawn_blocking(move || {
        if request.memory_slot != 0 {
            Slots::default()
                .bind(request.memory_slot)
                .map_err(|error| refusal(Code::INTERNAL, &Failure::from_error(&error).message))?;
        }
        processors::set_online(request.vcpus)
            .map_err(|error| refusal(Code::INTERNAL, &Failure::from_error(&error).message))
    });
    work.await.map_err(|_| refusal(Code::INTERNAL, "the request's task has died"))??;
    Ok(Empty::default())
}
