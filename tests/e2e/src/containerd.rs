//! Debian's containerd as the node's other runtime, in a directory of its own.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, bail};
use nix::sys::statfs::{OVERLAYFS_SUPER_MAGIC, statfs};
use tests_registry::Registry;
use tokio::net::UnixStream;
use tokio::process::{Child, Command};

use crate::network::{Network, PLUGINS};
use crate::wait::{WITHIN, within};

/// A running containerd, whose pods outlive it.
#[derive(Debug)]
pub struct Containerd {
    child: Child,
    dir: PathBuf,
}

impl Containerd {
    /// Starts one below `dir`, with the host's network and with images from this registry.
    ///
    /// # Errors
    /// When it does not listen in time; the error has its log.
    pub async fn start(dir: &Path, network: &Network, registry: &Registry) -> anyhow::Result<Containerd> {
        let (layers, mut config) = tests_registry::busybox_image()?;
        // What holds a pod's namespaces has nothing to do but to be there.
        config["Cmd"] = serde_json::json!(["/bin/sleep", "1000000"]);
        registry
            .push_image("podvisor/pause", "1", layers, config)
            .await
            .context("pushing the pause image")?;
        let dir = dir.join("containerd");
        std::fs::create_dir_all(&dir)?;
        std::fs::write(dir.join("config.toml"), text(&dir, network, &registry.addr, snapshotter(&dir)?))?;
        let child = launch(&dir).await?;
        Ok(Containerd { child, dir })
    }

    /// The CRI socket.
    pub fn socket(&self) -> PathBuf {
        socket(&self.dir)
    }

    /// The runtime's process.
    pub fn pid(&self) -> u32 {
        self.child.id().unwrap_or_default()
    }

    /// The log up to now.
    pub fn log(&self) -> String {
        log(&self.dir)
    }

    /// Ends it as a crash does.
    ///
    /// # Errors
    /// When it cannot be killed.
    pub async fn kill(&mut self) -> anyhow::Result<()> {
        Ok(self.child.kill().await?)
    }

    /// Starts it again over its state.
    ///
    /// # Errors
    /// When it does not listen in time; the error has its log.
    pub async fn restart(&mut self) -> anyhow::Result<()> {
        self.child = launch(&self.dir).await?;
        Ok(())
    }
}

fn socket(dir: &Path) -> PathBuf {
    dir.join("containerd.sock")
}

fn log(dir: &Path) -> String {
    std::fs::read_to_string(dir.join("log")).unwrap_or_default()
}

/// Names what containerd unpacks images with: overlayfs as everywhere, but on an overlay no other can be.
fn snapshotter(dir: &Path) -> nix::Result<&'static str> {
    let on_overlay = statfs(dir)?.filesystem_type() == OVERLAYFS_SUPER_MAGIC;
    Ok(if on_overlay { "native" } else { "overlayfs" })
}

fn text(dir: &Path, network: &Network, registry: &str, snapshotter: &str) -> String {
    let cri = "plugins.\"io.containerd.grpc.v1.cri\"";
    format!(
        "version = 2\nroot = {:?}\nstate = {:?}\n[grpc]\naddress = {:?}\n\
         [{cri}]\nsandbox_image = \"{registry}/podvisor/pause:1\"\n\
         [{cri}.cni]\nbin_dir = {PLUGINS:?}\nconf_dir = {:?}\n\
         [{cri}.containerd]\nsnapshotter = {snapshotter:?}\n\
         [{cri}.containerd.runtimes.runc]\nruntime_type = \"io.containerd.runc.v2\"\n",
        dir.join("root"),
        dir.join("state"),
        socket(dir),
        network.conf_dir,
    )
}

async fn launch(dir: &Path) -> anyhow::Result<Child> {
    let output = File::options().create(true).append(true).open(dir.join("log"))?;
    let mut child = Command::new("containerd")
        .arg("--config")
        .arg(dir.join("config.toml"))
        .stdin(Stdio::null())
        .stdout(output.try_clone()?)
        .stderr(output)
        .kill_on_drop(true)
        .spawn()
        .context("running containerd")?;
    // The wait is over when containerd listens, and when containerd has ended.
    let listening = within(WITHIN, async || match UnixStream::connect(socket(dir)).await {
        Ok(_) => Ok(None),
        Err(error) => child.try_wait()?.map(Some).ok_or(error),
    });
    match listening.await {
        Ok(None) => Ok(child),
        Ok(Some(status)) => bail!("containerd ended with {status}:\n{}", log(dir)),
        Err(error) => bail!("waited {} s for containerd: {error}\n{}", WITHIN.as_secs(), log(dir)),
    }
}
