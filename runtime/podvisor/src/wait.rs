//! `podvisor wait`: waits for the ends of containers, and prints their exit codes.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use proto_cri::v1::ContainerState;

use crate::complete;
use crate::config::Config;
use crate::daemon::Daemon;
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
            if status.state() == ContainerState::ContainerExited {
                break status.exit_code;
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        };
        out::print(&format!("{code}\n"))?;
    }
    Ok(ExitCode::SUCCESS)
}
