//! `podvisor attach`: connects this process's streams to a running container's. Leaving does not affect the
//! container.

use std::process::ExitCode;

use anyhow::Context;
use proto_cri::v1;

use crate::client::{self, Client};
use crate::complete;
use crate::config::Config;
use crate::daemon::Daemon;
use crate::resolve;
use crate::session::{self, Ended, Trust, Wanted};

/// Arguments of `podvisor attach`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Pass standard input to the container, if it has one.
    #[arg(short, long)]
    interactive: bool,
    /// The container has a terminal; ctrl-p ctrl-q leaves it.
    #[arg(short, long)]
    tty: bool,
    #[command(flatten)]
    trust: Trust,
    /// A container's id, or its beginning, or its name, or that of a pod with one container.
    #[arg(add = complete::containers())]
    container: String,
}

/// Follows the container until it ends; returns the container's exit code.
pub(crate) async fn attach(config: &Config, args: Args) -> anyhow::Result<ExitCode> {
    let daemon = Daemon::dial(config).await?;
    let container = resolve::container(&daemon, &args.container).await?;
    let mut client = daemon.client;
    let wanted = Wanted {
        stdin: args.interactive,
        stdout: true,
        stderr: !args.tty,
        tty: args.tty,
        detachable: args.interactive,
        ends_input: true,
    };
    let url = url(&mut client, &container, wanted).await.map_err(client::refused).context("attach")?;
    match session::carry(&url, wanted, &args.trust).await? {
        Ended::Exited(_) => Ok(exit_code(&mut client, &container).await?.into()),
        ended => Ok(ended.code().into()),
    }
}

/// Returns the URL at which the container's streams are served.
pub(crate) async fn url(
    client: &mut Client,
    container: &str,
    wanted: Wanted,
) -> Result<String, tonic::Status> {
    let request = v1::AttachRequest {
        container_id: container.to_owned(),
        stdin: wanted.stdin,
        tty: wanted.tty,
        stdout: wanted.stdout,
        stderr: wanted.stderr,
    };
    Ok(client.runtime.attach(request).await?.into_inner().url)
}

/// Returns the exit code of a container that has ended. Returns 0 if it still runs or was removed.
async fn exit_code(client: &mut Client, container: &str) -> anyhow::Result<u8> {
    let request = v1::ContainerStatusRequest { container_id: container.to_owned(), verbose: false };
    let status = match client.runtime.container_status(request).await {
        Ok(answer) => answer.into_inner().status,
        Err(status) if status.code() == tonic::Code::NotFound => None,
        Err(status) => return Err(client::refused(status)),
    };
    Ok(status.map_or(0, |status| u8::try_from(status.exit_code).unwrap_or(u8::MAX)))
}
