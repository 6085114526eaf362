//! `podvisor logs`: prints a container's output from its log file, decoded by `log_follower.rs`.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail};
use proto_cri::v1::ContainerState;

use crate::client;
use crate::complete;
use crate::config::Config;
use crate::daemon::Daemon;
use crate::log_follower::LogFollower;
use crate::run::{container_status, patiently};
use crate::{resolve, wait};

/// The interval between two reads of the log and the container's state. CRI has no call to wait for either.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Arguments of `podvisor logs`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Continue until the container has ended.
    #[arg(short, long)]
    follow: bool,
    /// A container's id, or its beginning, or its name, or that of a pod with one container.
    #[arg(add = complete::pods_and_containers())]
    container: String,
}

/// Prints the log.
pub(crate) async fn logs(config: &Config, args: Args) -> anyhow::Result<ExitCode> {
    let daemon = Daemon::dial(config).await?;
    let container_id = resolve::container(&daemon, &args.container).await?;
    let mut log: Option<LogFollower> = None;
    loop {
        // The log goes on while the daemon restarts.
        let asking = async || container_status(&daemon.client, &container_id).await;
        let status = match patiently(false, None, asking).await {
            Ok(status) => status.context("the daemon answered without a status")?,
            Err(status) => match &mut log {
                // The container was removed meanwhile. Its output was complete before, and is read to its
                // end: the file is still open.
                Some(log) if status.code() == tonic::Code::NotFound => {
                    log.print()?;
                    log.was_there()?;
                    break;
                }
                _ => return Err(client::refused(status)),
            },
        };
        if status.log_path.is_empty() {
            bail!("container {} has no log", status.id);
        }
        // The state is read before the log: an exit is published after the last byte of the log.
        let log = log.get_or_insert_with(|| LogFollower::open(status.log_path.as_ref()));
        log.print()?;
        if !args.follow || wait::ended(&status)?.is_some() {
            // Another runtime may make it at the start.
            if status.state() != ContainerState::ContainerCreated {
                log.was_there()?;
            }
            break;
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
    Ok(ExitCode::SUCCESS)
}
