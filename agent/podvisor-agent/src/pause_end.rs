//! The end of the pod-wide PID namespace ([`crate::pause`]). The namespace cannot outlive its first process,
//! and no container can be made in it afterwards. So the guest ends with it, and the kubelet makes the pod's
//! sandbox anew. The kernel ends that process if a program of the namespace calls reboot(2).

use std::sync::Arc;
use std::time::Duration;

use agent_container::launch::Failure;
use tokio::sync::oneshot;

use crate::boot;
use crate::lifecycle;
use crate::pod::Pod;
use crate::reaper::{Exit, LaunchGuard};

/// Timeout for ending the containers and writing their data, as of the host when it stops a pod
/// (`runtime/pod`).
const WRITTEN: Duration = Duration::from_secs(10);

/// Ends the guest when this process, the namespace's first, ends. `launch` is from before the process.
pub(crate) fn end_guest_with(pid: i32, launch: &LaunchGuard, pod: &Arc<Pod>) {
    let (exit, pod) = (pod.reaper.watch(launch, pid), Arc::clone(pod));
    tokio::spawn(async move {
        if let Some(reason) = why_to_end(exit, &pod).await {
            boot::fatal(&reason);
            // The kernel panics, and the VMM reports it with the console's last lines.
            std::process::exit(1);
        }
    });
}

/// Waits for the end of the namespace's first process, and then for the pod's data to be written. Returns the
/// reason for the guest's end.
async fn why_to_end(exit: oneshot::Receiver<Exit>, pod: &Pod) -> Option<String> {
    // The reaper lives as long as the agent.
    let Exit { code, .. } = exit.await.ok()?;
    match tokio::time::timeout(WRITTEN, lifecycle::shut_down(pod)).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => {
            tracing::warn!(error = Failure::from_error(&error).message, "the containers could not be ended");
        }
        Err(_) => tracing::warn!("the pod's volumes were not written back in time"),
    }
    Some(format!("the first process of the pod's PID namespace has ended with code {code}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_end_of_the_namespaces_first_process_is_a_reason_to_end() {
        let pod = Pod::default();
        let (ended, exit) = oneshot::channel();
        ended.send(Exit { code: 129, at_ns: 1 }).unwrap();
        let reason = why_to_end(exit, &pod).await.unwrap();
        assert_eq!(reason, "the first process of the pod's PID namespace has ended with code 129");
    }
}
