//! `podvisor kill`: kills containers at once, without their stop signal. A failure of one does not stop the
//! others. CRI has no other signal than that of a stop, so none can be sent.

use std::process::ExitCode;

use anyhow::bail;
use runtime_spec::{Signal, parse_signal};

use crate::complete;
use crate::config::Config;
use crate::daemon::Daemon;
use crate::listing::{self, Container, Pod, State};
use crate::one_by_one;
use crate::sought::{Candidate, candidates, find};
use crate::stop::containers;

/// Arguments of `podvisor kill`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The signal: KILL. CRI has a call for no other.
    #[arg(short, long, value_name = "SIGNAL", default_value = "KILL")]
    signal: String,
    /// A pod's or a container's id, or its beginning, or its name, or NAMESPACE/POD, or
    /// NAMESPACE/POD/CONTAINER. All running containers of a pod are killed, and the pod stays. A kubelet
    /// starts killed containers again.
    #[arg(required = true, value_name = "ID|NAME", add = complete::pods_and_containers())]
    sought: Vec<String>,
}

/// Kills the containers.
pub(crate) async fn kill(config: &Config, args: Args) -> anyhow::Result<ExitCode> {
    if parse_signal(&args.signal)? != Signal::KILL {
        bail!(
            "CRI has no call that sends {}: `podvisor stop` sends the container's stop signal, and \
             `podvisor exec NAME kill -s {} PID` any signal, where the image has kill",
            args.signal,
            args.signal
        );
    }
    let daemon = Daemon::dial(config).await?;
    let (pods, _) = listing::ask(&daemon).await?;
    let all = candidates(&pods);
    // Nothing is killed if one is not found.
    let chosen = args.sought.iter().map(|sought| find(&all, sought)).collect::<Result<Vec<_>, _>>()?;
    one_by_one::each(chosen, "killed", async |one: &&Candidate| kill_one(&daemon, &pods, one).await).await
}

/// Kills a container, or those of a pod. One in an unknown state may run.
async fn kill_one(daemon: &Daemon, pods: &[Pod], one: &Candidate) -> anyhow::Result<()> {
    let may_run = |container: &&Container| matches!(container.state, State::Running | State::Unknown);
    let running: Vec<&Container> = containers(pods, one).filter(may_run).collect();
    if running.is_empty() {
        bail!("nothing runs there that could be killed");
    }
    for container in running {
        daemon.stop_container(&container.id, 0).await?;
    }
    Ok(())
}
