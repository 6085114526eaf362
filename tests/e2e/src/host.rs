//! A host for one test: its own directories, network and daemon, so tests run in parallel and see nothing of
//! each other. The tests of a process share its registry.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use tests_registry::Registry;
use tokio::process::Command;
use tokio::sync::OnceCell;

use crate::built::Built;
use crate::client::Client;
use crate::daemon::Daemon;
use crate::disk::Disk;
use crate::failure;
use crate::network::Network;
use crate::traces::{self, Traces};
use crate::wait::WITHIN;

/// The file of a separate disk, in the host's directory.
const DISK_FILE: &str = "disk.img";

/// Pause between two looks at the leftovers.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);
/// Looks in a row without such a VM until none is considered ending.
const SETTLED_LOOKS: u32 = 3;

/// Lines of the daemon's log about an unusable template or pool member.
const SECOND_BEST: [&str; 3] = [
    "a template is discarded, and the pod boots",
    "a template's VM does not come up, and the pod boots",
    "a spare is no good; the pod starts without",
];

/// One test's host.
#[derive(Debug)]
pub struct Host {
    /// The host's daemon.
    pub daemon: Daemon,
    /// The host's network.
    pub network: Network,
    /// The registry, shared by the tests of this process.
    pub registry: &'static Registry,
    /// The separate disk of the daemon's state, if it has one.
    disk: Option<Disk>,
    dir: tempfile::TempDir,
}

/// The registry of this process, with the busybox image in it.
pub async fn registry() -> anyhow::Result<&'static Registry> {
    static REGISTRY: OnceCell<Registry> = OnceCell::const_new();
    REGISTRY
        .get_or_try_init(|| async {
            let registry = Registry::start().context("starting a registry")?;
            let (layers, config) = tests_registry::busybox_image()?;
            registry
                .push_image("podvisor/busybox", "latest", layers, config)
                .await
                .context("pushing busybox")?;
            Ok(registry)
        })
        .await
}

impl Host {
    /// Starts a host. Outside of `make test` there is none, and a line on stderr says so.
    pub async fn start() -> Option<Host> {
        let built = Built::of_environment()?;
        Some(Host::with(&built).await.expect("a host for the test"))
    }

    /// Starts a host with the daemon's state on a separate disk of `mib` MiB.
    pub async fn start_on_disk(mib: u64) -> Option<Host> {
        let built = Built::of_environment()?;
        Some(Host::on_disk(&built, Some((mib, &[]))).await.expect("a host for the test"))
    }

    /// Starts a host with the daemon's state on a separate disk with fs-verity, of `mib` MiB. If the kernel
    /// has no fs-verity, there is no host, and a line on stderr says so.
    pub async fn start_on_disk_with_verity(mib: u64) -> Option<Host> {
        let built = Built::of_environment()?;
        if !Path::new("/sys/fs/ext4/features/verity").exists() {
            eprintln!("skipped: the kernel has no fs-verity");
            return None;
        }
        // A small disk would have smaller blocks. Only 4 KiB blocks are sealed.
        let options = ["-O", "verity", "-b", "4096"];
        Some(Host::on_disk(&built, Some((mib, &options))).await.expect("a host for the test"))
    }

    /// Starts a host with these binaries.
    ///
    /// # Errors
    /// When the registry or the daemon does not start.
    pub async fn with(built: &Built) -> anyhow::Result<Host> {
        Host::on_disk(built, None).await
    }

    async fn on_disk(built: &Built, disk: Option<(u64, &[&str])>) -> anyhow::Result<Host> {
        let registry = registry().await?;
        let dir = tempfile::Builder::new().prefix("podvisor-e2e-").tempdir()?;
        let (image, state) = (dir.path().join(DISK_FILE), dir.path().join("state"));
        let disk = disk.map(|(mib, options)| Disk::mount(&image, &state, mib, options)).transpose()?;
        let network = Network::write(dir.path())?;
        let daemon = Daemon::start(built, dir.path(), &network).await?;
        Ok(Host { daemon, network, registry, disk, dir })
    }

    /// Starts a host with a daemon with fail points, otherwise like [`start`](Self::start).
    pub async fn start_with_fail_points() -> Option<Host> {
        let built = Built::of_environment()?;
        let start = async {
            let registry = registry().await?;
            let dir = tempfile::Builder::new().prefix("podvisor-e2e-").tempdir()?;
            let network = Network::write(dir.path())?;
            let daemon = Daemon::start_with_fail_points(&built, dir.path(), &network).await?;
            anyhow::Ok(Host { daemon, network, registry, disk: None, dir })
        };
        Some(start.await.expect("a host for the test"))
    }

    /// A client of the host's daemon.
    pub fn client(&self) -> Client {
        self.daemon.client()
    }

    /// A command of the daemon's program with its configuration, in the host's directory.
    #[must_use]
    pub fn podvisor(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(self.daemon.binary());
        command.arg("--config").arg(self.daemon.config()).args(arguments).current_dir(self.dir());
        command
    }

    /// The host's directory, for logs and whatever a test puts there.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// The disk of the daemon's state.
    ///
    /// # Panics
    /// When the host was not started with one.
    pub fn disk(&self) -> &Disk {
        self.disk.as_ref().expect("a host with a disk")
    }

    /// The file behind the disk of the daemon's state, if the host has such a disk.
    pub fn disk_file(&self) -> PathBuf {
        self.dir.path().join(DISK_FILE)
    }

    /// The busybox image's name in the registry.
    pub fn busybox(&self) -> String {
        self.image("podvisor/busybox:latest")
    }

    /// The full name of an image in the registry.
    pub fn image(&self, name: &str) -> String {
        format!("{}/{name}", self.registry.addr)
    }

    /// Puts a shell script in front of the daemon's CNI plugin of this name, and restarts the daemon with it.
    ///
    /// # Errors
    /// When the script cannot be written or the daemon does not serve again.
    pub async fn put_before_plugin(&mut self, name: &str, script: &str) -> anyhow::Result<()> {
        let plugins = self.dir.path().join("plugins");
        std::fs::create_dir_all(&plugins)?;
        let plugin = plugins.join(name);
        std::fs::write(&plugin, format!("#!/bin/sh\n{script}\n"))?;
        std::fs::set_permissions(&plugin, std::fs::Permissions::from_mode(0o755))?;
        let config = std::fs::read_to_string(self.daemon.config())?;
        let config = config.replace("bin_dirs = [", &format!("bin_dirs = [{plugins:?}, "));
        std::fs::write(self.daemon.config(), config)?;
        self.daemon.kill_and_restart().await
    }

    /// Replaces the daemon's binaries, as an upgrade of the node does: pods go on meanwhile.
    ///
    /// # Errors
    /// When the old daemon does not end or the new one does not start.
    pub async fn upgrade(&mut self, built: &Built) -> anyhow::Result<()> {
        self.daemon.replace(built, self.dir.path(), &self.network).await
    }

    /// The new traces, compared with `before`. The daemon boots VMs for templates at any time, so this waits
    /// for them. Pool members are not traces.
    ///
    /// # Panics
    /// When `/proc` or `/sys` cannot be read.
    pub async fn left_since(&self, before: &Traces) -> Vec<String> {
        let deadline = tokio::time::Instant::now() + WITHIN;
        // The mounts of a VM go after its process.
        let patience = if self.daemon.has_templates() { SETTLED_LOOKS } else { 0 };
        let mut settled = 0;
        loop {
            settled = if traces::vmms_without_pod().is_empty() { settled + 1 } else { 0 };
            let mut left = Traces::take(self.dir()).expect("the host's traces").since(before);
            let log = self.daemon.log();
            let waiting = traces::waiting_vms(&log);
            left.retain(|trace| !waiting.iter().any(|id| traces::is_of_vm(trace, id, &log)));
            if left.is_empty() || settled > patience || tokio::time::Instant::now() > deadline {
                return left;
            }
            tokio::time::sleep(LOOK_INTERVAL).await;
        }
    }

    /// Stops the daemon. It is an error if the daemon does not end cleanly, or if a pod had to start in
    /// another way than its handler's: otherwise nothing would notice.
    ///
    /// # Errors
    /// If it must be killed, or such a pod was started.
    pub async fn stop(mut self) -> anyhow::Result<()> {
        self.daemon.stop().await?;
        self.network.remove().await?;
        let log = self.daemon.log();
        if let Some(line) = log.lines().find(|line| SECOND_BEST.iter().any(|text| line.contains(text))) {
            anyhow::bail!("a start that nobody asked for: {line}");
        }
        Ok(())
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", failure::report(self.dir(), self.daemon.log_file()));
        }
    }
}
