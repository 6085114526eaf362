//! `podvisor node end-pods`: stops and removes every pod in a VM, on a node whose kubelet does not start them
//! again. Pods of the other runtime are left alone. It is not asked: k3s, RKE2 and k0s end it together with
//! the kubelet.

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, bail};
use runtime_node::HostRoot;

use crate::config::Config;
use crate::daemon::{Daemon, DaemonError};
use crate::listing::{self, Pod, Runtime};
use crate::one_by_one::Subject;
use crate::show::out;
use crate::starting;

/// Names of pods in a refusal.
const NAMES_MAX: usize = 20;

/// Ends the pods. Without `force` a running pod is a refusal, and only leftovers of ended pods are removed.
pub(crate) async fn end_pods(config: &Config, force: bool) -> anyhow::Result<ExitCode> {
    let vmms = || runtime_node::vmms(&HostRoot::open(Path::new("/"))?).map_err(anyhow::Error::from);
    let daemon = match Daemon::dial(config).await {
        Ok(daemon) => daemon,
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
    starting::wait(&daemon).await?;
    let (pods, _) = listing::ask(&daemon).await?;
    if pods.iter().any(|pod| pod.runtime == Runtime::Unknown) {
        bail!("the daemon does not say which pods are in VMs: restart it");
    }
    let ours: Vec<&Pod> = pods.iter().filter(|pod| pod.runtime == Runtime::Vm).collect();
    let running: Vec<String> = ours.iter().filter(|pod| pod.ready).map(Subject::path).collect();
    if !running.is_empty() && !force {
        let shown = running[..running.len().min(NAMES_MAX)].join(", ");
        bail!("pods run in VMs: {} ({shown})", running.len());
    }
    for pod in ours {
        let name = Subject::path(&pod);
        end(&daemon, &pod.id).await.with_context(|| format!("ending {name}"))?;
        out::say(format_args!("ended {name}"));
    }
    match vmms()?.len() {
        0 => Ok(ExitCode::SUCCESS),
        left => bail!("VMs that still run though their pods are gone: {left}"),
    }
}

async fn end(daemon: &Daemon, id: &str) -> Result<(), DaemonError> {
    daemon.stop_pod(id).await?;
    daemon.remove_pod(id).await
}
