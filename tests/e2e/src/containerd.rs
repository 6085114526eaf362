//! containerd as the node's other runtime, in its own directory: Debian's, or a given one.

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

/// Debian's program.
const PROGRAM: &str = "containerd";

/// A running containerd. Its pods outlive it.
#[derive(Debug)]
pub struct Containerd {
    child: Child,
    program: PathBuf,
    dir: PathBuf,
}

impl Containerd {
    /// Starts Debian's below `dir`, with the host's network and with images from this registry.
    ///
    /// # Errors
    /// When it does not listen in time; the error has its log.
    pub async fn start(dir: &Path, network: &Network, registry: &Registry) -> anyhow::Result<Containerd> {
        Containerd::start_program(Path::new(PROGRAM), dir, network, registry).await
    }

    /// Starts this one, as [`start`](Self::start) does Debian's. Its shim and its runc are beside it, or in
    /// PATH.
    ///
    /// # Errors
    /// When it does not listen in time; the error has its log.
    pub async fn start_program(
        program: &Path,
        dir: &Path,
        network: &Network,
        registry: &Registry,
    ) -> anyhow::Result<Containerd> {
        let (layers, mut config) = tests_registry::busybox_image()?;
        // The process holding a pod's namespaces only sleeps.
        config["Cmd"] = serde_json::json!(["/bin/sleep", "1000000"]);
        registry
            .push_image("podvisor/pause", "1", layers, config)
            .await
            .context("pushing the pause image")?;
        let dir = dir.join("containerd");
        std::fs::create_dir_all(&dir)?;
        let major = major_version(program).await?;
        std::fs::write(dir.join("config.toml"), text(major, &dir, network, &registry.addr)?)?;
        let child = launch(program, &dir).await?;
        Ok(Containerd { child, program: program.to_owned(), dir })
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
        self.child = launch(&self.program, &self.dir).await?;
        Ok(())
    }
}

fn socket(dir: &Path) -> PathBuf {
    dir.join("containerd.sock")
}

fn log(dir: &Path) -> String {
    std::fs::read_to_string(dir.join("log")).unwrap_or_default()
}

/// Returns the snapshotter for containerd's images: overlayfs as everywhere, but on an overlay it is the only
/// possible one.
fn snapshotter(dir: &Path) -> nix::Result<&'static str> {
    let on_overlay = statfs(dir)?.filesystem_type() == OVERLAYFS_SUPER_MAGIC;
    Ok(if on_overlay { "native" } else { "overlayfs" })
}

/// The first number of the program's version.
async fn major_version(program: &Path) -> anyhow::Result<u32> {
    let said = Command::new(program).arg("--version").output().await.context("running containerd")?;
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    let number = |word: &str| word.trim_start_matches('v').split_once('.')?.0.parse().ok();
    said.split_whitespace().find_map(number).with_context(|| format!("no version in {said:?}"))
}

/// The configuration. The older containerd gets the defaults of containerd 2, because nodes have those.
fn text(major: u32, dir: &Path, network: &Network, registry: &str) -> nix::Result<String> {
    let snapshotter = snapshotter(dir)?;
    let conf_dir = &network.conf_dir;
    let (root, state, socket) = (dir.join("root"), dir.join("state"), socket(dir));
    let common = format!("root = {root:?}\nstate = {state:?}\n[grpc]\naddress = {socket:?}\n");
    let pause = format!("{registry}/podvisor/pause:1");
    Ok(if major < 2 {
        let cri = "plugins.\"io.containerd.grpc.v1.cri\"";
        format!(
            "version = 2\n{common}[{cri}]\nsandbox_image = {pause:?}\n\
             enable_unprivileged_ports = true\nenable_unprivileged_icmp = true\n\
             [{cri}.cni]\nbin_dir = {PLUGINS:?}\nconf_dir = {conf_dir:?}\n\
             [{cri}.containerd]\nsnapshotter = {snapshotter:?}\n\
             [{cri}.containerd.runtimes.runc]\nruntime_type = \"io.containerd.runc.v2\"\n"
        )
    } else {
        let (images, runtime) =
            ("plugins.\"io.containerd.cri.v1.images\"", "plugins.\"io.containerd.cri.v1.runtime\"");
        format!(
            "version = 3\n{common}[{images}]\nsnapshotter = {snapshotter:?}\n\
             [{images}.pinned_images]\nsandbox = {pause:?}\n\
             [{runtime}.cni]\nbin_dirs = [{PLUGINS:?}]\nconf_dir = {conf_dir:?}\n\
             [{runtime}.containerd.runtimes.runc]\nruntime_type = \"io.containerd.runc.v2\"\n"
        )
    })
}

async fn launch(program: &Path, dir: &Path) -> anyhow::Result<Child> {
    let output = File::options().create(true).append(true).open(dir.join("log"))?;
    let mut command = Command::new(program);
    // If it is not Debian's, the shim and runc are beside it.
    if let Some(beside) = program.parent().filter(|beside| !beside.as_os_str().is_empty()) {
        let others = std::env::var_os("PATH").unwrap_or_default();
        let all = std::iter::once(beside.to_owned()).chain(std::env::split_paths(&others));
        command.env("PATH", std::env::join_paths(all)?);
    }
    let mut child = command
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
