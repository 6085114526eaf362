//! `podvisor ps`: the node's pods with their containers, in one table: those in VMs, and those of the runtime behind the daemon.

mod filter;
mod rows;

use std::process::ExitCode;

use self::filter::Filter;
use crate::config::Config;
use crate::daemon::{Daemon, DaemonError, NodeStatus};
use crate::listing::{self, Pod, State};
use crate::show::{Form, FormArg, escape, json, out, table, units};
use crate::terminal;

/// Containers in state unknown that are asked why. There are a few after a crash, and each is a call.
const ASKED_MAX: usize = 64;

/// Arguments of `podvisor ps`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    filter: Filter,
    #[command(flatten)]
    form: FormArg,
}

/// Prints the table.
pub(crate) async fn ps(config: &Config, args: Args) -> anyhow::Result<ExitCode> {
    let daemon = Daemon::dial(config).await?;
    let (pods, status) = listing::ask(&daemon).await?;
    let mut pods = args.filter.apply(pods);
    explain(&daemon, &mut pods).await;
    match args.form.form {
        Form::Json => out::print(&json::pretty(&pods)?)?,
        Form::Text => print(&pods)?,
    }
    warn(&status);
    Ok(ExitCode::SUCCESS)
}

/// Asks why states are unknown, which lists do not say. A daemon that does not answer is not asked further.
async fn explain(daemon: &Daemon, pods: &mut [Pod]) {
    let containers = pods.iter_mut().flat_map(|pod| &mut pod.containers);
    for container in containers.filter(|container| container.state == State::Unknown).take(ASKED_MAX) {
        match daemon.container_status(&container.id).await {
            Ok(answer) => container.message = answer.status.unwrap_or_default().message,
            Err(DaemonError::Late { .. }) => return,
            // Removed meanwhile.
            Err(_) => {}
        }
    }
}

fn print(pods: &[Pod]) -> anyhow::Result<()> {
    let rows = rows::rows(pods, units::now_ns());
    let width = terminal::size().map(|(columns, _)| usize::from(columns));
    let lines = table::render(&rows::COLUMNS, &rows, width).into_iter().chain(rows::reasons(pods));
    out::print(&lines.map(|line| line + "\n").collect::<String>())
}

/// Says on standard error what is wrong with the node: a table of pods that looks well would mislead.
fn warn(status: &NodeStatus) {
    for condition in &status.wrong {
        let (name, reason) = (escape::line(&condition.r#type), escape::line(&condition.reason));
        eprintln!("podvisor: {name} does not hold ({reason}): {}", escape::line(&condition.message));
    }
}
