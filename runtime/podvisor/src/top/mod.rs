//! `podvisor top`: usage of pods and their containers, refreshed on a terminal, or as one page. It waits for
//! a restarting daemon: meanwhile the last values stay on the screen, with a note.

mod figures;
mod screen;

use std::process::ExitCode;
use std::time::Duration;

use proto_cri::v1;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{Instant, sleep};

use self::figures::{Sample, SortBy, figures};
use crate::config::Config;
use crate::daemon::{Daemon, DaemonError};
use crate::show::{Form, FormArg, json, out, units};
use crate::terminal;

/// The interval between the two samples of a single page. Long compared with the clocks' resolution, and
/// short for the user.
const SAMPLES_APART: Duration = Duration::from_secs(1);

/// Arguments of `podvisor top`.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct Args {
    /// Seconds between two pages on a terminal.
    #[arg(short, long, value_name = "SECONDS", default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=3600))]
    interval: u64,
    /// Print one page and end, as without a terminal.
    #[arg(long)]
    once: bool,
    /// Column to sort rows by.
    #[arg(short, long, value_name = "COLUMN", value_enum, default_value_t)]
    sort: SortBy,
    #[command(flatten)]
    form: FormArg,
}

/// Shows the usage.
pub(crate) async fn top(config: &Config, args: Args) -> anyhow::Result<ExitCode> {
    let daemon = Daemon::dial(config).await?;
    let before = sample(&daemon).await?;
    sleep(SAMPLES_APART).await;
    let now = sample(&daemon).await?;
    match (args.form.form, terminal::size()) {
        (Form::Json, _) => out::print(&json::pretty(&figures(Some(&before), &now, args.sort))?)?,
        (Form::Text, Some(_)) if !args.once => refresh(config, args, daemon, [before, now]).await?,
        (Form::Text, size) => {
            let width = size.map(|(columns, _)| usize::from(columns));
            let lines = screen::page(&figures(Some(&before), &now, args.sort), width);
            out::print(&lines.into_iter().map(|line| line + "\n").collect::<String>())?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

async fn sample(daemon: &Daemon) -> Result<Sample, DaemonError> {
    let mut runtime = daemon.client.runtime.clone();
    let request = v1::ListPodSandboxStatsRequest::default();
    let pods = daemon.ask("ListPodSandboxStats", runtime.list_pod_sandbox_stats(request)).await?.stats;
    Ok(Sample { pods, vm_memory: daemon.status().await?.vm_memory })
}

/// The daemon's absence between pages.
struct Absence {
    since: Instant,
    why: DaemonError,
}

/// Draws page after page, until this process is ended or the terminal is closed.
async fn refresh(
    config: &Config,
    args: Args,
    mut daemon: Daemon,
    [mut before, mut now]: [Sample; 2],
) -> anyhow::Result<()> {
    let mut resized = signal(SignalKind::window_change())?;
    let mut absence: Option<Absence> = None;
    let interval = Duration::from_secs(args.interval);
    out::print(screen::CLEAR)?;
    let mut next = Instant::now() + interval;
    loop {
        draw(&figures(Some(&before), &now, args.sort), absence.as_ref())?;
        tokio::select! {
            // Drawn again from the same samples.
            _ = resized.recv() => {
                out::print(screen::CLEAR)?;
                continue;
            }
            () = tokio::time::sleep_until(next) => {}
        }
        match again(config, &mut daemon, absence.is_some()).await {
            Ok(sample) => {
                (before, now) = (now, sample);
                absence = None;
            }
            // Waiting does not help here.
            Err(why @ (DaemonError::Foreign { .. } | DaemonError::Lacks { .. })) => return Err(why.into()),
            Err(why) => {
                let since = absence.map_or_else(Instant::now, |absence| absence.since);
                absence = Some(Absence { since, why });
            }
        }
        next = Instant::now() + interval;
    }
}

/// Takes a sample. The daemon may have restarted.
async fn again(config: &Config, daemon: &mut Daemon, was_away: bool) -> Result<Sample, DaemonError> {
    if was_away {
        *daemon = Daemon::dial(config).await?;
    }
    sample(daemon).await
}

fn draw(pods: &[figures::PodFigures], absence: Option<&Absence>) -> anyhow::Result<()> {
    // A terminal without a size is closed. The write reports it.
    let size = terminal::size().unwrap_or((80, 24));
    let lines = screen::page(pods, Some(usize::from(size.0)));
    let note = absence.map(|Absence { since, why }| {
        let seconds = since.elapsed().as_secs();
        format!("no new values for {}, these are the last ones: {why}", units::span(seconds))
    });
    out::print(&screen::drawn(&lines, note.as_deref(), size))
}
