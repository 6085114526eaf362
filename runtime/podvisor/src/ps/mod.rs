//! `podvisor ps`: the node's pods with their containers in one table, including those of the runtime behind
//! the daemon.

mod filter;
mod rows;

use std::process::ExitCode;

use self::filter::Filter;
use crate::config::Config;
use crate::daemon::{Daemon, DaemonError, NodeStatus};
use crate::listing::{self, Pod, State};
use crate::show::{Form, FormArg, escape, json, out, table, units};
use crate::terminal;

/// Containers in an unknown state to ask a reason for. There are a few after a crash, and each is a call.
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

/// Asks for the reasons of unknown states: lists do not have them. Stops at the first call without an answer.
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

/// Prints the node's unmet conditions on standard error: a clean table of pods alone would mislead.
fn warn(status: &NodeStatus) {
    for condition in &status.wrong {
        let (name, reason) = (escape::line(&condition.r#type), escape::line(&condition.reason));
        out::complain(format_args!("{name} does not hold ({reason}): {}", escape::line(&condition.message)));
    }
}
