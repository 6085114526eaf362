//! `podvisor exec`: runs one more command in a running container, with this process's own streams.

use std::process::ExitCode;

use anyhow::Context;
use proto_cri::v1;

use crate::client::{self, Client};
use crate::complete;
use crate::config::Config;
use crate::daemon::Daemon;
use crate::resolve;
use crate::session::{self, Trust, Wanted};

/// Arguments of `podvisor exec`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Pass standard input to the command.
    #[arg(short, long)]
    interactive: bool,
    /// Give the command a terminal.
    #[arg(short, long)]
    tty: bool,
    #[command(flatten)]
    trust: Trust,
    /// A container's id, or its beginning, or its name, or that of a pod with one container.
    #[arg(add = complete::containers())]
    container: String,
    /// Command and arguments.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
    command: Vec<String>,
}

/// Runs the command and ends with its exit code.
pub(crate) async fn exec(config: &Config, args: Args) -> anyhow::Result<ExitCode> {
    let daemon = Daemon::dial(config).await?;
    let container_id = resolve::container(&daemon, &args.container).await?;
    let wanted = Wanted {
        stdin: args.interactive,
        stdout: true,
        stderr: !args.tty,
        tty: args.tty,
        // A command ends with its client, so it cannot be attached to again.
        detachable: false,
        ends_input: true,
    };
    let url = url(&daemon.client, &container_id, args.command, wanted).await?;
    Ok(session::carry(&url, wanted, &args.trust).await?.code().into())
}

/// Returns the URL at which the command's streams are served. The command starts with its client.
///
/// # Errors
/// The daemon's refusal.
pub(crate) async fn url(
    client: &Client,
    container_id: &str,
    cmd: Vec<String>,
    wanted: Wanted,
) -> anyhow::Result<String> {
    let Wanted { stdin, stdout, stderr, tty, .. } = wanted;
    let request = v1::ExecRequest { container_id: container_id.to_owned(), cmd, tty, stdin, stdout, stderr };
    let answer = client.runtime.clone().exec(request).await.map_err(client::refused).context("exec")?;
    Ok(answer.into_inner().url)
}
