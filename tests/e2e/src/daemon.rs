//! The real `podvisor serve`, as a separate process.

use std::collections::BTreeSet;
use std::fs::File;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::process::{Child, Command};

use crate::built::Built;
use crate::client::Client;
use crate::fail_points::{self, FailPoints};
use crate::network::{Network, PLUGINS};
use crate::wait::WITHIN;

/// The filter of a daemon's log, if its configuration has none.
const LOG_VARIABLE: &str = "PODVISOR_LOG";
const LOG_FILTER: &str =
    "info,runtime_cri=debug,runtime_pod=debug,runtime_net=debug,runtime_vm=debug,runtime_guest=debug";

/// How the VMs of the suite's pods are started: `template` or `spare`; booted without it.
const ORIGIN_VARIABLE: &str = "PODVISOR_E2E_ORIGIN";

/// Longest wait for templates and pools. Then a test begins without them: some tests leave no disk for them.
const ORIGIN_TIMEOUT: Duration = Duration::from_secs(90);

/// A running daemon.
#[derive(Debug)]
pub struct Daemon {
    child: Child,
    client: Client,
    program: Program,
}

/// A restartable daemon.
#[derive(Debug)]
struct Program {
    binary: PathBuf,
    config: PathBuf,
    log: PathBuf,
    socket: PathBuf,
    fail_points: Option<FailPoints>,
}

impl Daemon {
    /// Starts a daemon with its state, sockets and logs under `dir`.
    ///
    /// # Errors
    /// When it does not serve in time; the error has its log.
    pub async fn start(built: &Built, dir: &Path, network: &Network) -> anyhow::Result<Daemon> {
        Daemon::start_program(built, dir, network, None).await
    }

    /// Starts the daemon with fail points, otherwise like [`start`](Self::start).
    ///
    /// # Errors
    /// When it does not serve in time; the error has its log.
    pub async fn start_with_fail_points(
        built: &Built,
        dir: &Path,
        network: &Network,
    ) -> anyhow::Result<Daemon> {
        Daemon::start_program(built, dir, network, Some(FailPoints::make(dir)?)).await
    }

    async fn start_program(
        built: &Built,
        dir: &Path,
        network: &Network,
        fail_points: Option<FailPoints>,
    ) -> anyhow::Result<Daemon> {
        let config = dir.join("config.toml");
        std::fs::write(&config, text(built, dir, network))?;
        let name = if fail_points.is_some() { fail_points::PROGRAM } else { "podvisor" };
        let (binary, log) = (built.bin.join(name), dir.join("daemon.log"));
        let program = Program { binary, config, log, socket: dir.join("run/podvisor.sock"), fail_points };
        let (child, client) = program.launch().await?;
        Ok(Daemon { child, client, program })
    }

    /// The daemon's fail points.
    ///
    /// # Panics
    /// When it has none.
    pub fn fail_points(&self) -> &FailPoints {
        self.program.fail_points.as_ref().expect("a daemon with fail points")
    }

    /// Waits for the daemon's end. Something else causes it.
    ///
    /// # Errors
    /// When it does not end in time.
    pub async fn ended(&mut self) -> anyhow::Result<()> {
        tokio::time::timeout(WITHIN, self.child.wait()).await.context("the daemon goes on")??;
        Ok(())
    }

    /// A client of the daemon.
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// The daemon's process.
    pub fn pid(&self) -> u32 {
        self.child.id().unwrap_or_default()
    }

    /// The CRI socket.
    pub fn socket(&self) -> &Path {
        &self.program.socket
    }

    /// The daemon's configuration file.
    pub fn config(&self) -> &Path {
        &self.program.config
    }

    /// Puts a shell script in front of the node's program of this name, as the daemon finds it from now on.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn put_before_program(&self, name: &str, script: &str) -> std::io::Result<()> {
        let (dir, mode) = (self.program.programs(), std::fs::Permissions::from_mode(0o755));
        std::fs::create_dir_all(&dir)?;
        std::fs::write(dir.join(name), format!("#!/bin/sh\n{script}\n"))?;
        std::fs::set_permissions(dir.join(name), mode)
    }

    /// The `podvisor` binary.
    pub fn binary(&self) -> &Path {
        &self.program.binary
    }

    /// Returns true if pods start from a template by the configuration.
    ///
    /// # Panics
    /// When it cannot be read.
    pub fn has_templates(&self) -> bool {
        has_templates(&std::fs::read_to_string(self.config()).expect("the daemon's configuration"))
    }

    /// Inode numbers of the daemon's network namespaces in the pool. A mount holds a pod's own namespace.
    ///
    /// # Errors
    /// The daemon's descriptors cannot be listed.
    pub fn held_namespaces(&self) -> std::io::Result<BTreeSet<u64>> {
        let links = std::fs::read_dir(format!("/proc/{}/fd", self.pid()))?.flatten();
        let targets = links.filter_map(|link| std::fs::read_link(link.path()).ok());
        let number = |target: &str| target.strip_prefix("net:[")?.strip_suffix(']')?.parse().ok();
        Ok(targets.filter_map(|target| number(target.to_str()?)).collect())
    }

    /// The file of the log.
    pub(crate) fn log_file(&self) -> &Path {
        &self.program.log
    }

    /// The log up to now.
    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.program.log).unwrap_or_default()
    }

    /// Kills the daemon as a crash would, unless it was stopped, and starts another over its state.
    ///
    /// # Errors
    /// When it does not serve again in time.
    pub async fn kill_and_restart(&mut self) -> anyhow::Result<()> {
        if self.child.id().is_some() {
            self.child.kill().await?;
        }
        (self.child, self.client) = self.program.launch().await?;
        Ok(())
    }

    /// Stops the daemon and starts the one of other binaries over its state, in the same directory and
    /// network.
    ///
    /// # Errors
    /// When it does not end or does not serve again in time.
    pub async fn replace(&mut self, built: &Built, dir: &Path, network: &Network) -> anyhow::Result<()> {
        self.stop().await?;
        std::fs::write(&self.program.config, text(built, dir, network))?;
        self.program.binary = built.bin.join("podvisor");
        (self.child, self.client) = self.program.launch().await?;
        Ok(())
    }

    /// Stops the daemon by SIGTERM.
    ///
    /// # Errors
    /// When it does not end in time or not with status 0; the error has its log.
    pub async fn stop(&mut self) -> anyhow::Result<()> {
        let Some(pid) = self.child.id() else { return Ok(()) };
        kill(Pid::from_raw(i32::try_from(pid)?), Signal::SIGTERM)?;
        let Ok(status) = tokio::time::timeout(WITHIN, self.child.wait()).await else {
            self.child.kill().await?;
            bail!("the daemon did not end on SIGTERM; its log:\n{}", self.log());
        };
        let status = status?;
        if !status.success() {
            bail!("the daemon ended with {status} (signal {:?}); its log:\n{}", status.signal(), self.log());
        }
        Ok(())
    }
}

impl Program {
    /// Directory of programs with precedence over the node's.
    fn programs(&self) -> PathBuf {
        self.config.with_file_name("programs")
    }

    async fn launch(&self) -> anyhow::Result<(Child, Client)> {
        let output = File::options().create(true).append(true).open(&self.log)?;
        let logged_before = usize::try_from(output.metadata()?.len())?;
        let fail_points = self.fail_points.iter().flat_map(FailPoints::environment);
        let mut command = Command::new(&self.binary);
        let usual = std::env::var_os("PATH").unwrap_or_default();
        let programs = std::iter::once(self.programs()).chain(std::env::split_paths(&usual));
        command.env("PATH", std::env::join_paths(programs)?);
        // The variable would override the configuration's own log level. An earlier release only knows the
        // variable.
        if std::fs::read_to_string(&self.config)?.contains("[log]") {
            command.env_remove(LOG_VARIABLE);
        } else {
            command.env(LOG_VARIABLE, LOG_FILTER);
        }
        let mut child = command
            .arg("--config")
            .arg(&self.config)
            .arg("serve")
            .envs(fail_points)
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("running {}", self.binary.display()))?;
        let deadline = tokio::time::Instant::now() + WITHIN;
        loop {
            if let Ok(client) = Client::connect(&self.socket).await {
                self.wait_for_origin(logged_before).await?;
                return Ok((child, client));
            }
            if let Some(status) = child.try_wait()? {
                bail!("the daemon ended with {status}:\n{}", std::fs::read_to_string(&self.log)?);
            }
            if tokio::time::Instant::now() > deadline {
                bail!("the daemon does not serve:\n{}", std::fs::read_to_string(&self.log)?);
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

impl Program {
    /// Waits until pods of the just started daemon, after so many bytes of the log, can start from the origin
    /// in [`ORIGIN_VARIABLE`].
    async fn wait_for_origin(&self, logged_before: usize) -> std::io::Result<()> {
        let config = std::fs::read_to_string(&self.config)?;
        let lines: &[&str] = match config.contains("spare_vms") {
            true => &["a VM waits for a pod"],
            false => &["a template is made", "a template is read"],
        };
        // A test with its own templates waits for them itself, or ends the daemon before.
        let first = config.lines().find(|line| line.starts_with("template = "));
        if std::env::var_os(ORIGIN_VARIABLE).is_none() || !first.is_some_and(has_templates) {
            return Ok(());
        }
        let is_there = |log: Vec<u8>| {
            let log = String::from_utf8_lossy(log.get(logged_before..).unwrap_or_default()).into_owned();
            lines.iter().any(|line| log.contains(line))
        };
        let deadline = tokio::time::Instant::now() + ORIGIN_TIMEOUT;
        while !is_there(std::fs::read(&self.log)?) && tokio::time::Instant::now() < deadline {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok(())
    }
}

/// Lines of the handler for a daemon of this build to start pods from [`ORIGIN_VARIABLE`]. The previous
/// release knows none of them.
fn origin(built: &Built) -> &'static str {
    if built.is_previous() {
        return "";
    }
    match std::env::var(ORIGIN_VARIABLE).as_deref() {
        Ok("template") => "template = \"node\"\n",
        Ok("spare") => "template = \"node\"\nspare_vms = 4\n",
        Ok(other) => panic!("{ORIGIN_VARIABLE} is {other:?}: template and spare are known"),
        // To make one for each test's daemon takes longer than to boot its pods.
        Err(_) => "template = \"off\"\n",
    }
}

fn has_templates(config: &str) -> bool {
    config.contains("template = \"node\"")
}

/// Keeps the daemon of a test from making network namespaces at any time: tests compare its descriptors
/// before and after. The previous release does not know this setting.
fn no_spare_namespaces(built: &Built) -> &'static str {
    if Built::is_in_environment() && !built.is_previous() { "spare_namespaces = 0\n" } else { "" }
}

/// Keeps plugins of the node, and of other tests, from a test's daemon. The previous release knows none of
/// them.
fn own_plugins(built: &Built, dir: &Path) -> String {
    if built.is_previous() {
        return String::new();
    }
    let at = |name: &str| dir.join(name);
    format!(
        "[nri]\nsocket = {:?}\nplugin_dir = {:?}\nplugin_conf_dir = {:?}\n",
        at("nri.sock"),
        at("nri-plugins"),
        at("nri-conf.d")
    )
}

fn text(built: &Built, dir: &Path, network: &Network) -> String {
    format!(
        "[paths]\nstate = {:?}\nrun = {:?}\nvmm = {:?}\nguest_image = {:?}\n\
         [cni]\n{}conf_dir = {:?}\nbin_dirs = [{PLUGINS:?}]\ncache_dir = {:?}\n\
         [registries]\nconfig_dir = {:?}\n\
         [cgroup]\ndriver = \"cgroupfs\"\n\
         {}[[handler]]\nname = \"podvisor\"\nmemory_mib = 128\nscratch_mib = 1024\n{}",
        dir.join("state"),
        dir.join("run"),
        built.bin.join("podvisor-vmm"),
        built.guest_image,
        no_spare_namespaces(built),
        network.conf_dir,
        network.cache_dir,
        dir.join("certs.d"),
        own_plugins(built, dir),
        origin(built),
    )
}
