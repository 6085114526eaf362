//! A private daemon for one `podvisor run`: `podvisor serve` with a socket of its own and the host's images. SIGTERM stops
//! the daemon, and its run directory is removed after it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::process::{Child, Command};

use super::network;
use crate::client::{self, Client};
use crate::config::{Config, Streaming};

/// How long the daemon may take until it serves: pods are recovered first.
const START_TIMEOUT: Duration = Duration::from_secs(60);

/// The interval between two attempts to connect while the daemon starts.
const START_INTERVAL: Duration = Duration::from_millis(20);

/// How long the daemon may take to end before it is killed.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);

/// A running daemon.
#[derive(Debug)]
pub(super) struct Daemon {
    child: Child,
    client: Client,
    dir: PathBuf,
    log: PathBuf,
}

/// Starts a private daemon and waits until it serves.
pub(super) async fn start(config: &Config, config_file: Option<&Path>) -> anyhow::Result<Daemon> {
    let dir = config.paths.run.join(format!("private-{}", std::process::id()));
    std::fs::create_dir_all(&dir).with_context(|| format!("making {} (are you root?)", dir.display()))?;
    let mut private = config.clone();
    private.paths.run = dir.clone();
    private.paths.socket = None;
    // Plain HTTP on loopback, since this command is the only client.
    private.streaming = Streaming::default();
    if let Some(conf_dir) = network::ensure(config, &dir)? {
        private.cni.conf_dir = conf_dir;
    }
    let file = dir.join("config.toml");
    std::fs::write(&file, toml::to_string(&private).context("writing the private configuration")?)?;
    let log = dir.join("daemon.log");
    let child = Command::new(std::env::current_exe()?)
        .arg("--config")
        .arg(&file)
        .arg("serve")
        .stdin(std::process::Stdio::null())
        .stdout(std::process::Stdio::null())
        .stderr(std::fs::File::create(&log)?)
        // A Ctrl-C at the terminal is for this command: it stops the pod first and the daemon after it.
        .process_group(0)
        .kill_on_drop(true)
        .spawn()
        .with_context(|| format!("running `podvisor serve` (configured by {config_file:?})"))?;
    wait(child, private.socket(), dir, log).await
}

async fn wait(mut child: Child, socket: PathBuf, dir: PathBuf, log: PathBuf) -> anyhow::Result<Daemon> {
    let deadline = tokio::time::Instant::now() + START_TIMEOUT;
    loop {
        if let Ok(client) = client::connect(&socket).await {
            return Ok(Daemon { child, client, dir, log });
        }
        if let Some(status) = child.try_wait()? {
            let output = std::fs::read_to_string(&log).unwrap_or_default();
            let _ = std::fs::remove_dir_all(&dir);
            bail!("the daemon ended with {status}: {}", output.trim());
        }
        if tokio::time::Instant::now() > deadline {
            bail!("the daemon did not serve within {START_TIMEOUT:?}; its log is {}", log.display());
        }
        tokio::time::sleep(START_INTERVAL).await;
    }
}

impl Daemon {
    pub(super) fn client(&self) -> Client {
        self.client.clone()
    }

    /// Stops the daemon and removes its run directory.
    pub(super) async fn stop(mut self) -> anyhow::Result<()> {
        if let Some(pid) = self.child.id() {
            kill(Pid::from_raw(i32::try_from(pid)?), Signal::SIGTERM)?;
        }
        if tokio::time::timeout(STOP_TIMEOUT, self.child.wait()).await.is_err() {
            self.child.kill().await?;
            bail!("the private daemon did not end and was killed; its log is {}", self.log.display());
        }
        std::fs::remove_dir_all(&self.dir).with_context(|| format!("removing {}", self.dir.display()))
    }
}
