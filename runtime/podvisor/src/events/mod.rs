//! `podvisor events`: prints events of pods and containers, one per line, until this process is ended. It
//! waits for a restarting daemon. Events meanwhile may be lost, and a line says so.
//!
//! ```text
//!   listen ──events──► lines ──the stream ends──► "broken" ──a try each second──► "resumed" ──► lines
//! ```

mod line;

use std::process::ExitCode;
use std::time::Duration;

use proto_cri::v1;
use tokio::time::sleep;
use tonic::Streaming;

use self::line::{Line, Names};
use crate::config::Config;
use crate::daemon::{Daemon, DaemonError};
use crate::show::out::ReaderGone;
use crate::show::{Form, FormArg, json, out, units};

/// The pause before the next attempt to connect, so a daemon that ends each stream at once causes no busy
/// loop.
const AGAIN_AFTER: Duration = Duration::from_secs(1);

/// The interval between two checks for a reader of the lines: there may be no event for hours.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// Arguments of `podvisor events`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Show events of this namespace only.
    #[arg(short, long, value_name = "NAME")]
    namespace: Option<String>,
    /// Show events of this pod only: its id, or its beginning, or its name.
    #[arg(short, long)]
    pod: Option<String>,
    #[command(flatten)]
    form: FormArg,
}

/// The stream, and names for events without one.
struct Listening {
    events: Streaming<v1::ContainerEventResponse>,
    names: Names,
}

/// Prints events from now on.
pub(crate) async fn events(config: &Config, args: Args) -> anyhow::Result<ExitCode> {
    tokio::select! {
        ended = follow(config, &args) => ended,
        gone = reader_gone() => Err(gone.into()),
    }
}

async fn follow(config: &Config, args: &Args) -> anyhow::Result<ExitCode> {
    let mut listening = listen(config).await?;
    loop {
        let why = print_all(&mut listening, args).await?;
        let broken_ns = units::now_ns();
        let text = format!("the daemon's events broke off ({why}); events may be lost until they go on");
        print(&Line::of_stream("broken", broken_ns, text), args)?;
        listening = listen_again(config).await?;
        let text = format!("events go on; those since {} may have been lost", units::time(broken_ns));
        print(&Line::of_stream("resumed", units::now_ns(), text), args)?;
    }
}

async fn listen(config: &Config) -> Result<Listening, DaemonError> {
    let daemon = Daemon::dial(config).await?;
    let mut runtime = daemon.client.runtime.clone();
    let request = v1::GetEventsRequest {};
    // Before the lists, so nothing is missed in between.
    let events = daemon.ask("GetContainerEvents", runtime.get_container_events(request)).await?;
    Ok(Listening { events, names: Names::of(&daemon.pods().await?, &daemon.containers().await?) })
}

/// Tries until the daemon is back.
async fn listen_again(config: &Config) -> Result<Listening, DaemonError> {
    loop {
        sleep(AGAIN_AFTER).await;
        match listen(config).await {
            // Waiting does not help here.
            Err(why @ (DaemonError::Foreign { .. } | DaemonError::Lacks { .. })) => return Err(why),
            Err(_) => {}
            Ok(listening) => return Ok(listening),
        }
    }
}

/// Prints events until the stream's end, and returns the reason for the end.
async fn print_all(listening: &mut Listening, args: &Args) -> anyhow::Result<String> {
    loop {
        match listening.events.message().await {
            Ok(Some(event)) => {
                let line = Line::of(&event, &mut listening.names);
                if args.wants(&line) {
                    print(&line, args)?;
                }
            }
            Ok(None) => return Ok("the daemon ended".to_owned()),
            Err(status) => return Ok(status.message().to_owned()),
        }
    }
}

fn print(line: &Line, args: &Args) -> anyhow::Result<()> {
    match args.form.form {
        Form::Text => out::print(&line.text()),
        Form::Json => out::print(&json::line(line)?),
    }
}

async fn reader_gone() -> ReaderGone {
    while out::has_reader() {
        sleep(LOOK_INTERVAL).await;
    }
    ReaderGone
}

impl Args {
    fn wants(&self, line: &Line) -> bool {
        let pod =
            |sought: &String| !sought.is_empty() && (line.pod_id.starts_with(sought) || line.pod == *sought);
        self.namespace.as_ref().is_none_or(|namespace| line.namespace == *namespace)
            && self.pod.as_ref().is_none_or(pod)
    }
}
