//! UpdateContainer: new limits for a container before its end.

use agent_container::limits;
use proto_agent::agent::UpdateContainerRequest;

use crate::containers::{ContainerError, Phase};
use crate::memory_protection;
use crate::pod::Pod;

/// Writes the limits, either all or none. Runs on a separate thread, because the kernel may have to reclaim
/// memory.
pub(crate) async fn update(pod: &Pod, request: UpdateContainerRequest) -> Result<(), ContainerError> {
    let container = pod.containers.get(&request.container_id)?;
    {
        let phase = container.phase();
        match &*phase {
            Phase::Created { .. } => {}
            Phase::Running { first } if !first.has_ended() => {}
            _ => return Err(container.wrong_phase(&phase)),
        }
    }
    let cgroup = container.cgroup().clone();
    let files = request.cgroup_files.into_iter().collect();
    let changed = tokio::task::spawn_blocking(move || limits::change(&cgroup, &files)).await;
    changed.map_err(|dead| container.io("change the limits")(dead.into()))??;
    memory_protection::renew(pod);
    Ok(())
}
