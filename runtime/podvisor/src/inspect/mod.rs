//! `podvisor inspect`: prints the daemon's information about a pod or a container, as a page or as JSON.

mod container;
mod pod;

use std::process::ExitCode;

use anyhow::Context;
use proto_cri::v1;

use crate::complete;
use crate::config::Config;
use crate::daemon::Daemon;
use crate::listing::{self, Pod};
use crate::show::entries::Entries;
use crate::show::{FormArg, answers};
use crate::sought::{Candidate, Kind, candidates, find};

/// Arguments of `podvisor inspect`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    form: FormArg,
    /// A pod's or a container's id, or its beginning, or its name, or NAMESPACE/POD, or
    /// NAMESPACE/POD/CONTAINER. For equal names, pods come before containers, and live ones before ended
    /// ones.
    #[arg(required = true, value_name = "ID|NAME", add = complete::pods_and_containers())]
    sought: Vec<String>,
}

/// Prints all sought pods and containers, or none if one is not found.
pub(crate) async fn inspect(config: &Config, args: Args) -> anyhow::Result<ExitCode> {
    let daemon = Daemon::dial(config).await?;
    let (pods, _) = listing::ask(&daemon).await?;
    let all = candidates(&pods);
    let found = args.sought.iter().map(|sought| find(&all, sought)).collect::<Result<Vec<_>, _>>()?;
    let mut answers = Vec::new();
    for one in found {
        answers.push(entries(&daemon, &pods, one).await?);
    }
    answers::print(answers, args.form.form)?;
    Ok(ExitCode::SUCCESS)
}

async fn entries(daemon: &Daemon, pods: &[Pod], one: &Candidate) -> anyhow::Result<Entries> {
    match one.kind {
        Kind::Pod => {
            let answer = pod_status(daemon, &one.id).await?;
            let listed = pods.iter().find(|pod| pod.id == one.id).context("the pod is in no list")?;
            Ok(pod::entries(answer, listed))
        }
        Kind::Container => Ok(container::entries(daemon.container_status(&one.id).await?)),
    }
}

async fn pod_status(daemon: &Daemon, id: &str) -> anyhow::Result<v1::PodSandboxStatusResponse> {
    let mut runtime = daemon.client.runtime.clone();
    let request = v1::PodSandboxStatusRequest { pod_sandbox_id: id.to_owned(), verbose: true };
    Ok(daemon.ask("PodSandboxStatus", runtime.pod_sandbox_status(request)).await?)
}
