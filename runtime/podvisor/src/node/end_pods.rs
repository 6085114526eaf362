//! `podvisor node end-pods`: stops and removes every pod in a VM, on a node whose kubelet does not start them
//! again. Pods of the other runtime are left alone.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, bail};
use proto_cri::v1::{
    ListPodSandboxRequest, PodSandbox, PodSandboxState, RemovePodSandboxRequest, StopPodSandboxRequest,
};
use runtime_node::HostRoot;

use crate::client::{self, Client};
use crate::config::Config;
use crate::show::out;

/// Names of pods in a refusal.
const NAMES_MAX: usize = 20;

/// Ends the pods. Without `force` a running pod is a refusal, and only leftovers of ended pods are removed.
pub(crate) async fn end_pods(config: &Config, force: bool) -> anyhow::Result<ExitCode> {
    let vmms = || runtime_node::vmms(&HostRoot::open(Path::new("/"))?).map_err(anyhow::Error::from);
    let mut daemon = match client::connect(&config.socket()).await {
        Ok(client) => client,
        // No daemon and no VMs: nothing to do.
        Err(_) if vmms()?.is_empty() => return Ok(ExitCode::SUCCESS),
        Err(error) => {
            return Err(error).with_context(|| {
                format!(
                    "VMs run, and no daemon serves on {} to end them: start it",
                    config.socket().display()
                )
            });
        }
    };
    let others = match config.upstream() {
        Some(upstream) => {
            let asked = async { anyhow::Ok(pods(&mut client::connect(&upstream.socket).await?).await?) };
            let asked = asked.await.with_context(|| {
                format!("asking the other runtime on {} for its pods", upstream.socket.display())
            });
            asked?.into_iter().map(|pod| pod.id).collect()
        }
        None => BTreeSet::new(),
    };
    let ours: Vec<PodSandbox> =
        pods(&mut daemon).await?.into_iter().filter(|pod| !others.contains(&pod.id)).collect();
    let running: Vec<String> =
        ours.iter().filter(|pod| pod.state() == PodSandboxState::SandboxReady).map(name).collect();
    if !running.is_empty() && !force {
        let shown = running[..running.len().min(NAMES_MAX)].join(", ");
        bail!("pods run in VMs: {} ({shown})", running.len());
    }
    for pod in &ours {
        end(&mut daemon, pod).await.with_context(|| format!("ending {}", name(pod)))?;
        out::say(format_args!("ended {}", name(pod)));
    }
    match vmms()?.len() {
        0 => Ok(ExitCode::SUCCESS),
        left => bail!("VMs that still run though their pods are gone: {left}"),
    }
}

async fn pods(client: &mut Client) -> anyhow::Result<Vec<PodSandbox>> {
    let listed = client.runtime.list_pod_sandbox(ListPodSandboxRequest { filter: None }).await;
    Ok(listed.map_err(client::refused)?.into_inner().items)
}

async fn end(client: &mut Client, pod: &PodSandbox) -> anyhow::Result<()> {
    let pod_sandbox_id = pod.id.clone();
    let stopped = client.runtime.stop_pod_sandbox(StopPodSandboxRequest { pod_sandbox_id }).await;
    stopped.map_err(client::refused)?;
    let pod_sandbox_id = pod.id.clone();
    let removed = client.runtime.remove_pod_sandbox(RemovePodSandboxRequest { pod_sandbox_id }).await;
    removed.map_err(client::refused)?;
    Ok(())
}

fn name(pod: &PodSandbox) -> String {
    let metadata = pod.metadata.clone().unwrap_or_default();
    format!("{}/{}", metadata.namespace, metadata.name)
}
