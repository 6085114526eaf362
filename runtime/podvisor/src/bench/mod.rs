//! `podvisor bench`: times pods on this node, one after the other, by the calls of a kubelet. Handlers of the
//! runtime behind Podvisor can be measured beside. A kubelet on the same daemon would end the pods meanwhile.
//!
//! ```text
//!   pull ─► for each handler, for each pod: start ─► exec ─► memory ─► stop ─► percentiles
//!                                             └──────────── an error, ctrl-c ──► the pod is removed
//! ```

mod figures;
mod pod;

use std::process::ExitCode;

use anyhow::{Context, ensure};
use tokio::signal::unix::{Signal, SignalKind, signal};

use self::figures::{Figures, Round};
use self::pod::Bench;
use crate::config::Config;
use crate::daemon::{Daemon, DaemonError};
use crate::exit;
use crate::image::CredentialArgs;
use crate::image::pull::find_or_pull_to_run;
use crate::kubelet;
use crate::show::{Form, FormArg, json, out, table};
use crate::terminal;

/// Arguments of `podvisor bench`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Runtime handler to measure, also one of the runtime behind Podvisor. May be repeated. By default the
    /// daemon's default handler.
    #[arg(long, value_name = "NAME")]
    handler: Vec<String>,
    /// Number of pods for each handler. The first one is not counted: it fills caches.
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pods: u16,
    /// Image with the programs sleep and true.
    #[arg(long, default_value = "docker.io/library/busybox:latest")]
    image: String,
    #[command(flatten)]
    credentials: CredentialArgs,
    #[command(flatten)]
    form: FormArg,
}

/// Measures the handlers and prints a row for each.
pub(crate) async fn bench(config: &Config, args: Args) -> anyhow::Result<ExitCode> {
    let daemon = Daemon::dial(config).await?;
    ensure!(
        !kubelet::ends_pods_of_others(&config.socket()),
        "the node's kubelet uses the daemon on {}, and ends the measured pods within seconds, as it does with each \
         pod that is not its own; drain the node, stop the kubelet, and measure then",
        config.socket().display()
    );
    let Some(image) = find_or_pull_to_run(&daemon, &args.credentials, &args.image).await? else {
        return Ok(exit::INTERRUPTED.into());
    };
    let handlers = match args.handler {
        named if !named.is_empty() => named,
        _ => vec![config.handler_of_vms()?],
    };
    let mut bench = Bench::new(&daemon, image, args.image);
    let mut interrupt = signal(SignalKind::interrupt()).context("listening to signals")?;
    let mut all = Vec::new();
    for handler in handlers {
        match measure(&mut bench, &handler, args.pods, &mut interrupt).await {
            Ok(Some(figures)) => all.push(figures),
            Ok(None) => return Ok(exit::INTERRUPTED.into()),
            Err(error) => {
                bench.clean_up().await;
                let name = if handler.is_empty() { "default" } else { &handler };
                return Err(error).with_context(|| format!("measuring the handler {name}"));
            }
        }
    }
    match args.form.form {
        Form::Json => out::print(&json::pretty(&all)?)?,
        Form::Text => {
            let width = terminal::size().map(|(columns, _)| usize::from(columns));
            let rows: Vec<Vec<String>> = all.iter().map(Figures::row).collect();
            let lines = table::render(&figures::COLUMNS, &rows, width);
            out::print(&(lines.join("\n") + "\n"))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Measures a handler. `None` after an interrupt: the current pod ends first, since a call that is given up
/// goes on in the daemon.
async fn measure(
    bench: &mut Bench<'_>,
    handler: &str,
    pods: u16,
    interrupt: &mut Signal,
) -> Result<Option<Figures>, DaemonError> {
    let mut rounds: Vec<Round> = Vec::new();
    for number in 0..=pods {
        let round = bench.round(handler, number);
        tokio::pin!(round);
        let measured = tokio::select! {
            measured = &mut round => measured?,
            _ = interrupt.recv() => {
                out::complain("interrupted; removing the current pod");
                round.await?;
                return Ok(None);
            }
        };
        if number > 0 {
            rounds.push(measured);
        }
    }
    Ok(Some(Figures::of(handler, &rounds)))
}
