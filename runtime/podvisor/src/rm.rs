//! `podvisor rm`: stops and removes pods, with their networks and disks. A failure of one does not stop the
//! others. Running pods are ended only with `--force`. Unlike `crictl rmp -a`, `--all-vms` leaves the pods of
//! the runtime behind Podvisor alone.

use std::path::PathBuf;
use std::process::ExitCode;

use crate::complete;
use crate::config::Config;
use crate::daemon::{Daemon, DaemonError};
use crate::listing::{self, Pod, Runtime, State};
use crate::one_by_one::{self, Subject};
use crate::run::{NAMESPACE, logs};
use crate::show::{escape, out};
use crate::sought::{Kind, SoughtError, candidates, find};
use crate::starting;

/// Names of running pods in a refusal.
const NAMES_MAX: usize = 20;

/// Arguments of `podvisor rm`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// End running pods, too. A kubelet starts the pods of a workload again.
    #[arg(short, long)]
    force: bool,
    /// All pods in VMs. Pods of the runtime behind Podvisor stay.
    #[arg(long, conflicts_with = "sought")]
    all_vms: bool,
    /// A pod's id, or its beginning, or its name, or NAMESPACE/POD.
    #[arg(required_unless_present = "all_vms", value_name = "ID|NAME", add = complete::pods())]
    sought: Vec<String>,
}

/// The reason why no pod is removed.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
enum ChoiceError {
    #[error(transparent)]
    Sought(#[from] SoughtError),
    #[error("{0} is a container, and only whole pods are removed")]
    Container(String),
    #[error("pods are running: {0}. --force ends them")]
    Running(String),
    #[error("the daemon is too old to distinguish pods in VMs. Name the pods, or restart the daemon")]
    TooOld,
}

/// Removes the pods.
pub(crate) async fn remove(config: &Config, args: Args) -> anyhow::Result<ExitCode> {
    let daemon = Daemon::dial(config).await?;
    if args.all_vms {
        // With its pods still coming, a runtime cannot be removed.
        starting::wait(&daemon).await?;
    }
    let (pods, _) = listing::ask(&daemon).await?;
    let chosen = choose(&pods, &args)?;
    one_by_one::each(chosen, "removed", async |pod: &&Pod| Ok(remove_one(&daemon, config, pod).await?)).await
}

/// Returns the pods to remove: all of them, or an error.
fn choose<'a>(pods: &'a [Pod], args: &Args) -> Result<Vec<&'a Pod>, ChoiceError> {
    let chosen = if args.all_vms { in_vms(pods)? } else { named(pods, &args.sought)? };
    let running: Vec<String> = chosen.iter().filter(|pod| is_running(pod)).map(Subject::path).collect();
    if running.is_empty() || args.force {
        return Ok(chosen);
    }
    let more = running.len().saturating_sub(NAMES_MAX);
    let shown = running[..running.len() - more].join(", ");
    Err(ChoiceError::Running(if more == 0 { shown } else { format!("{shown} and {more} more") }))
}

/// A pod of `podvisor run` has ended with its containers, also while it is being stopped. A kubelet may start
/// new containers in its own.
fn is_running(pod: &Pod) -> bool {
    let all_ended = || pod.containers.iter().all(|container| container.state == State::Exited);
    pod.ready && (pod.namespace != NAMESPACE || pod.containers.is_empty() || !all_ended())
}

fn in_vms(pods: &[Pod]) -> Result<Vec<&Pod>, ChoiceError> {
    if pods.iter().any(|pod| pod.runtime == Runtime::Unknown) {
        return Err(ChoiceError::TooOld);
    }
    Ok(pods.iter().filter(|pod| pod.runtime == Runtime::Vm).collect())
}

fn named<'a>(pods: &'a [Pod], sought: &[String]) -> Result<Vec<&'a Pod>, ChoiceError> {
    let all = candidates(pods);
    let mut chosen: Vec<&Pod> = Vec::new();
    for one in sought {
        let found = find(&all, one)?;
        if found.kind == Kind::Container {
            return Err(ChoiceError::Container(one.clone()));
        }
        let is_new = chosen.iter().all(|pod| pod.id != found.id);
        chosen.extend(pods.iter().filter(|pod| is_new && pod.id == found.id));
    }
    Ok(chosen)
}

async fn remove_one(daemon: &Daemon, config: &Config, pod: &Pod) -> Result<(), DaemonError> {
    let files = if pod.namespace == NAMESPACE { logs_of(daemon, pod).await } else { Vec::new() };
    daemon.stop_pod(&pod.id).await?;
    daemon.remove_pod(&pod.id).await?;
    for log in files {
        if let Err(error) = logs::remove(config, &log) {
            let log = log.display();
            out::complain(escape::line(&format!("{log}: its directory is not removed: {error}")));
        }
    }
    Ok(())
}

/// The logs of a pod of `podvisor run`. Nobody but its caller removes them.
async fn logs_of(daemon: &Daemon, pod: &Pod) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for container in &pod.containers {
        let status = daemon.container_status(&container.id).await.ok().and_then(|answer| answer.status);
        files.extend(status.map(|status| PathBuf::from(status.log_path)));
    }
    files
}

#[cfg(test)]
mod tests {
    use proto_cri::v1::ContainerState::{ContainerExited, ContainerRunning};

    use super::*;
    use crate::daemon::NodeStatus;
    use crate::listing::{listing, tests as made};

    fn pods() -> Vec<Pod> {
        let status = NodeStatus { in_vms: Some(["p1".into(), "p2".into()].into()), ..Default::default() };
        let pods = vec![
            made::pod("p1", "shop", "web", true),
            made::pod("p2", "shop", "ended", false),
            made::pod("p3", "kube-system", "proxy", true),
        ];
        listing(pods, vec![made::container("c1", "p1", "app", ContainerRunning)], &status)
    }

    fn chosen(all_vms: bool, force: bool, sought: &[&str]) -> Result<Vec<String>, String> {
        let sought = sought.iter().map(|&one| one.to_owned()).collect();
        let pods = pods();
        let chosen = choose(&pods, &Args { force, all_vms, sought });
        chosen.map(|pods| pods.iter().map(|pod| pod.id.clone()).collect()).map_err(|error| error.to_string())
    }

    #[test]
    fn all_vms_are_no_pods_of_the_other_runtime() {
        assert_eq!(chosen(true, true, &[]).unwrap(), ["p2", "p1"]);
        let unknown = listing(vec![made::pod("p1", "a", "b", false)], Vec::new(), &NodeStatus::default());
        let args = Args { force: true, all_vms: true, sought: Vec::new() };
        assert_eq!(choose(&unknown, &args).unwrap_err(), ChoiceError::TooOld);
    }

    #[test]
    fn a_running_pod_is_ended_by_force_alone_and_then_no_other_is_removed() {
        let refused = chosen(true, false, &[]).unwrap_err();
        assert_eq!(refused, "pods are running: shop/web. --force ends them");
        assert!(chosen(false, false, &["ended", "web"]).is_err());
        assert_eq!(chosen(false, false, &["ended"]).unwrap(), ["p2"]);
        assert_eq!(chosen(false, true, &["shop/web", "p1"]).unwrap(), ["p1"]);
    }

    #[test]
    fn a_run_whose_container_has_ended_does_not_run() {
        for (namespace, state, is_refused) in [
            (NAMESPACE, Some(ContainerExited), false),
            (NAMESPACE, Some(ContainerRunning), true),
            (NAMESPACE, None, true),
            ("shop", Some(ContainerExited), true),
        ] {
            let containers = state.map(|state| made::container("c1", "p1", "main", state));
            let pods = vec![made::pod("p1", namespace, "job", true)];
            let pods = listing(pods, containers.into_iter().collect(), &NodeStatus::default());
            let args = Args { force: false, all_vms: false, sought: vec!["job".into()] };
            assert_eq!(choose(&pods, &args).is_err(), is_refused, "{namespace} {state:?}");
        }
    }

    #[test]
    fn a_container_and_a_pod_that_is_not_there_are_refused_by_name() {
        let refused = chosen(false, true, &["app"]).unwrap_err();
        assert_eq!(refused, "app is a container, and only whole pods are removed");
        assert!(chosen(false, true, &["ended", "other"]).unwrap_err().contains("\"other\""));
    }
}
