//! `podvisor wait`: waits for the ends of containers, and prints their exit codes.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail};
use proto_cri::v1;

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
            if let Some(code) = ended(&status)? {
                break code;
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        };
        out::print(&format!("{code}\n"))?;
    }
    Ok(ExitCode::SUCCESS)
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
    use super::*;

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
