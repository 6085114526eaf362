//! `podvisor stop`: stops pods, and keeps their records and logs. A failure of one does not stop the others.

use std::process::ExitCode;

use crate::config::Config;
use crate::daemon::{Daemon, DaemonError};
use crate::exit;
use crate::listing::{self, Pod, State};
use crate::resolve;
use crate::show::{escape, out, units};

/// Arguments of `podvisor stop`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Time for each container to end after its stop signal, in seconds. Then it is killed.
    #[arg(short, long, value_name = "SECONDS", default_value_t = 10)]
    time: u32,
    /// A pod's id, or its beginning, or its name, or NAMESPACE/POD.
    #[arg(required = true, value_name = "ID|NAME")]
    sought: Vec<String>,
}

/// Stops the pods.
pub(crate) async fn stop(config: &Config, args: Args) -> anyhow::Result<ExitCode> {
    let daemon = Daemon::dial(config).await?;
    let (pods, _) = listing::ask(&daemon).await?;
    let chosen = args.sought.iter().map(|sought| resolve::pod_among(&pods, sought));
    // Nothing is stopped if one is not found.
    let chosen = chosen.collect::<anyhow::Result<Vec<&Pod>>>()?;
    let mut code = ExitCode::SUCCESS;
    for pod in chosen {
        let name = format!("{}/{}", pod.namespace, pod.name);
        match stop_one(&daemon, pod, args.time).await {
            Ok(()) => {
                let line = format!("stopped {}: {name}", units::short(&pod.id));
                out::print(&(escape::line(&line).into_owned() + "\n"))?;
            }
            // The next call would not be answered either.
            Err(late @ DaemonError::Late { .. }) => return Err(late.into()),
            Err(error) => {
                eprintln!("podvisor: {}", escape::line(&format!("pod {name}: {error}")));
                code = ExitCode::from(exit::PODVISOR_FAILED);
            }
        }
    }
    Ok(code)
}

/// A pod's stop alone would kill its containers.
async fn stop_one(daemon: &Daemon, pod: &Pod, seconds: u32) -> Result<(), DaemonError> {
    for container in pod.containers.iter().filter(|container| container.state == State::Running) {
        daemon.stop_container(&container.id, seconds).await?;
    }
    daemon.stop_pod(&pod.id).await
}
