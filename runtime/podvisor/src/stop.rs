//! `podvisor stop`: stops pods and containers, and keeps their records and logs. A failure of one does not
//! stop the others.

use std::process::ExitCode;

use crate::complete;
use crate::config::Config;
use crate::daemon::{Daemon, DaemonError};
use crate::listing::{self, Container, Pod, State};
use crate::one_by_one::{self, Subject};
use crate::sought::{Candidate, Kind, candidates, find};

/// Arguments of `podvisor stop`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Time for each container to end after its stop signal, in seconds. Then it is killed.
    #[arg(short, long, value_name = "SECONDS", default_value_t = 10)]
    time: u32,
    /// A pod's or a container's id, or its beginning, or its name, or NAMESPACE/POD, or
    /// NAMESPACE/POD/CONTAINER. A pod is stopped with all its containers. A kubelet starts stopped containers
    /// again.
    #[arg(required = true, value_name = "ID|NAME", add = complete::pods_and_containers())]
    sought: Vec<String>,
}

/// Stops the pods and containers.
pub(crate) async fn stop(config: &Config, args: Args) -> anyhow::Result<ExitCode> {
    let daemon = Daemon::dial(config).await?;
    let (pods, _) = listing::ask(&daemon).await?;
    let all = candidates(&pods);
    // Nothing is stopped if one is not found.
    let chosen = args.sought.iter().map(|sought| find(&all, sought)).collect::<Result<Vec<_>, _>>()?;
    one_by_one::each(chosen, "stopped", async |one: &&Candidate| {
        Ok(stop_one(&daemon, &pods, one, args.time).await?)
    })
    .await
}

async fn stop_one(daemon: &Daemon, pods: &[Pod], one: &Candidate, seconds: u32) -> Result<(), DaemonError> {
    if one.kind == Kind::Container {
        return daemon.stop_container(&one.id, seconds).await;
    }
    // A pod's stop alone would kill its containers. It ends those in an unknown state.
    for container in containers(pods, one).filter(|container| container.state == State::Running) {
        daemon.stop_container(&container.id, seconds).await?;
    }
    daemon.stop_pod(&one.id).await
}

/// The containers of a pod, or the one container.
pub(crate) fn containers<'a>(pods: &'a [Pod], one: &'a Candidate) -> impl Iterator<Item = &'a Container> {
    pods.iter()
        .flat_map(|pod| pod.containers.iter().map(move |container| (pod, container)))
        .filter(|(pod, container)| match one.kind {
            Kind::Pod => pod.id == one.id,
            Kind::Container => container.id == one.id,
        })
        .map(|(_, container)| container)
}

impl Subject for &Candidate {
    fn kind(&self) -> &'static str {
        self.kind.name()
    }

    fn id(&self) -> &str {
        &self.id
    }

    fn path(&self) -> String {
        self.path.clone()
    }
}
