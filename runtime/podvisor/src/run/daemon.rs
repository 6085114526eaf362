//! A private daemon for one command, such as `podvisor run`: `podvisor serve --private` with its own
//! directories. The daemon and its VMs end when this process closes the pipe to it, and so also when this
//! process is killed.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, bail};
use proto_cri::v1;
use tokio::process::{Child, Command};

use super::network;
pub(crate) use super::network::PodNetwork;
use super::place::Place;
use crate::client::{self, Client};
use crate::config::Config;
use crate::serve::REMOVE_TIMEOUT;

/// Timeout for the start of the daemon. It recovers pods first.
const START_TIMEOUT: Duration = Duration::from_secs(60);

/// The interval between two attempts to connect while the daemon starts.
const START_INTERVAL: Duration = Duration::from_millis(20);

/// Timeout for the end of the daemon before it is killed: the timeout for its pods, and a reserve for the
/// rest.
const STOP_TIMEOUT: Duration = REMOVE_TIMEOUT.saturating_add(Duration::from_secs(15));

/// A running daemon.
#[derive(Debug)]
pub(crate) struct Daemon {
    /// The process. It watches the pipe at its standard input.
    child: Child,
    client: Client,
    socket: PathBuf,
    place: Place,
    log: PathBuf,
}

/// Starts a private daemon and waits until it serves.
pub(crate) async fn start(
    config: &Config,
    config_file: Option<&Path>,
    pods: PodNetwork,
) -> anyhow::Result<Daemon> {
    let place = Place::take(config)?;
    let dir = &place.run;
    std::fs::create_dir_all(dir).with_context(|| format!("making {} (are you root?)", dir.display()))?;
    let mut private = place.configure(config);
    let written = match pods {
        PodNetwork::OfTheNode | PodNetwork::Bridge => {
            network::ensure(config, dir, &place.leases, pods).await?
        }
        PodNetwork::OfItsOwn => Some(network::write_link(dir, &place.leases)?),
    };
    private.cni.conf_dir = written.unwrap_or(private.cni.conf_dir);
    let file = dir.join("config.toml");
    std::fs::write(&file, toml::to_string(&private).context("writing the private configuration")?)?;
    let log = dir.join("daemon.log");
    let child = Command::new(std::env::current_exe()?)
        .arg("--config")
        .arg(&file)
        .args(["serve", "--private"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(std::fs::File::create(&log)?)
        // A Ctrl-C at the terminal is for this command: it stops the pod first and the daemon after it.
        .process_group(0)
        .spawn()
        .with_context(|| format!("running `podvisor serve` (configured by {config_file:?})"))?;
    wait(child, private.socket(), place, log).await
}

async fn wait(mut child: Child, socket: PathBuf, place: Place, log: PathBuf) -> anyhow::Result<Daemon> {
    let deadline = tokio::time::Instant::now() + START_TIMEOUT;
    loop {
        // It accepts connections before it serves.
        if let Ok(client) = client::connect(&socket).await
            && let asked = client.runtime.clone().version(v1::VersionRequest::default())
            && let Ok(Ok(_)) = tokio::time::timeout_at(deadline, asked).await
        {
            return Ok(Daemon { child, client, socket, place, log });
        }
        if let Some(status) = child.try_wait()? {
            let output = std::fs::read_to_string(&log).unwrap_or_default();
            bail!("the daemon ended with {status}: {}", output.trim());
        }
        if tokio::time::Instant::now() > deadline {
            bail!("the daemon did not serve within {START_TIMEOUT:?}; its log is {}", log.display());
        }
        tokio::time::sleep(START_INTERVAL).await;
    }
}

impl Daemon {
    /// The state directory.
    pub(super) fn state(&self) -> &Path {
        &self.place.state
    }

    pub(crate) fn client(&self) -> Client {
        self.client.clone()
    }

    /// The daemon as its clients see it.
    pub(crate) fn served(&self) -> crate::daemon::Daemon {
        crate::daemon::Daemon::over(self.client.clone(), self.socket.clone())
    }

    /// Stops the daemon. Removes its run directory unless leftovers of a pod are in it.
    pub(crate) async fn stop(mut self) -> anyhow::Result<()> {
        drop(self.child.stdin.take());
        let Ok(ended) = tokio::time::timeout(STOP_TIMEOUT, self.child.wait()).await else {
            self.child.kill().await?;
            bail!("the private daemon did not end and was killed; its log is {}", self.log.display());
        };
        let status = ended?;
        if !status.success() {
            bail!("the private daemon ended with {status}; its log is {}", self.log.display());
        }
        self.place.clear().with_context(|| format!("removing {}", self.place.run.display()))
    }
}
