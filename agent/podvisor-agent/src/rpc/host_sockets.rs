//! Re-created sockets of the node, in use by containers. [`crate::host_sockets`] does the work.

use proto_agent::agent::{AttachHostSocketsRequest, Empty};

use crate::rpc::gate::Gate;

pub(super) async fn attach(gate: &Gate, request: AttachHostSocketsRequest) -> ttrpc::Result<Empty> {
    let attach = |pod: std::sync::Arc<crate::pod::Pod>| async move {
        let container = pod.containers.get(&request.container_id)?;
        // A container mounts them itself while it is built, and has no use for them after its end.
        match container.first_pid() {
            Some(pid) => pod.host_sockets.attach(&pod.shared.work, &container, pid).await,
            None => Ok(()),
        }
    };
    gate.run(attach).await?;
    Ok(Empty::default())
}
