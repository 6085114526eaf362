//! `podvisor wait`: waits for the ends of containers, and prints their exit codes. A pod that stops with its
//! containers has freed its addresses and ports then.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail};
use proto_cri::v1;
use runtime_spec::STOP_WITH_CONTAINERS;

use crate::complete;
use crate::config::Config;
use crate::daemon::{Daemon, DaemonError};
use crate::resolve;
use crate::show::out;

/// The interval between two reads of a container's state. CRI has no call to wait for an exit.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Arguments of `podvisor wait`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// A container's id, or its beginning, or its name, or that of a pod with one container.
    #[arg(required = true, value_name = "ID|NAME", add = complete::pods_and_containers())]
    containers: Vec<String>,
}

/// Waits for the containers, one after the other.
pub(crate) async fn wait(config: &Config, args: Args) -> anyhow::Result<ExitCode> {
    let daemon = Daemon::dial(config).await?;
    let mut ids = Vec::new();
    for sought in &args.containers {
        ids.push(resolve::container(&daemon, sought).await?);
    }
    for id in ids {
        let code = loop {
            let answer = daemon.container_status(&id).await?;
            let status = answer.status.context("the daemon answered without a status")?;
            if let Some(code) = ended(&status)? {
                break code;
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        };
        // The container has ended, however its pod does.
        let _ = stop_with_containers(&daemon, &id).await;
        out::print(&format!("{code}\n"))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Waits until the container's pod is stopped, if it stops behind its containers and all of them have ended.
/// The daemon stops it, and a second request waits for the first.
///
/// # Errors
/// The daemon does not answer, or the pod cannot be stopped.
async fn stop_with_containers(daemon: &Daemon, container_id: &str) -> Result<(), DaemonError> {
    let (pods, containers) = (daemon.pods().await?, daemon.containers().await?);
    if let Some(pod_id) = ended_pod(&pods, &containers, container_id) {
        daemon.stop_pod(pod_id).await?;
    }
    Ok(())
}

/// The container's pod, if it stops behind its containers and all of them have ended.
fn ended_pod<'a>(
    pods: &'a [v1::PodSandbox],
    containers: &[v1::Container],
    container_id: &str,
) -> Option<&'a str> {
    let pod_id = &containers.iter().find(|one| one.id == container_id)?.pod_sandbox_id;
    let pod = pods.iter().find(|pod| pod.id == *pod_id)?;
    let stops = pod.annotations.get(STOP_WITH_CONTAINERS).is_some_and(|value| value == "true");
    let mut its_own = containers.iter().filter(|one| one.pod_sandbox_id == *pod_id);
    let all_ended = its_own.all(|one| one.state() == v1::ContainerState::ContainerExited);
    (stops && all_ended).then_some(&pod.id)
}

/// Returns the exit code of an ended container, `None` for one that may still end.
///
/// # Errors
/// The container's state is unknown. It usually stays so until somebody removes it, so nobody should wait.
pub(crate) fn ended(status: &v1::ContainerStatus) -> anyhow::Result<Option<i32>> {
    match status.state() {
        v1::ContainerState::ContainerExited => Ok(Some(status.exit_code)),
        v1::ContainerState::ContainerCreated | v1::ContainerState::ContainerRunning => Ok(None),
        v1::ContainerState::ContainerUnknown => {
            let why = if status.message.is_empty() { "the runtime gives no reason" } else { &status.message };
            bail!("it is unknown whether container {} runs: {why}; remove it or its pod", status.id)
        }
    }
}

#[cfg(test)]
mod tests {
    use v1::ContainerState::{ContainerExited, ContainerRunning};

    use super::*;
    use crate::listing::tests as made;

    #[test]
    fn only_a_pod_that_stops_behind_its_containers_is_waited_for() {
        let pod = |id: &str, stops: &str| v1::PodSandbox {
            annotations: [(STOP_WITH_CONTAINERS.to_owned(), stops.to_owned())].into(),
            ..made::pod(id, "podvisor-run", id, true)
        };
        let pods = [pod("p1", "true"), pod("p2", "true"), pod("p3", "false")];
        let containers = [
            made::container("c1", "p1", "main", ContainerExited),
            made::container("c2", "p2", "main", ContainerExited),
            made::container("more", "p2", "more", ContainerRunning),
            made::container("c3", "p3", "main", ContainerExited),
        ];
        let ended = |id: &str| ended_pod(&pods, &containers, id);
        assert_eq!(ended("c1"), Some("p1"));
        assert_eq!([ended("c2"), ended("c3"), ended("none")], [None; 3]);
    }

    #[test]
    fn a_container_in_an_unknown_state_is_not_waited_for() {
        let ended = |state: v1::ContainerState, message: &str| {
            ended(&v1::ContainerStatus {
                id: "c1".into(),
                state: state.into(),
                exit_code: 3,
                message: message.into(),
                ..Default::default()
            })
        };
        assert_eq!(ended(v1::ContainerState::ContainerCreated, "").unwrap(), None);
        assert_eq!(ended(v1::ContainerState::ContainerRunning, "").unwrap(), None);
        assert_eq!(ended(v1::ContainerState::ContainerExited, "").unwrap(), Some(3));
        let said = ended(v1::ContainerState::ContainerUnknown, "the daemon ended").unwrap_err().to_string();
        assert_eq!(said, "it is unknown whether container c1 runs: the daemon ended; remove it or its pod");
        let said = ended(v1::ContainerState::ContainerUnknown, "").unwrap_err().to_string();
        assert!(said.contains("gives no reason"), "{said}");
    }
}
