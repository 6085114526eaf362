//! `podvisor serve`: opens images, networks and pods, and serves CRI until SIGTERM or SIGINT. Pods outlive the daemon: its
//! next start recovers them. A private daemon's pods do not: they end with the command that started it. Nothing here knows
//! more of a crate than what that needs to start.

mod descriptors;
mod metrics;
mod service;
mod stop;

use std::fs;
use std::num::NonZero;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use runtime_cri::{Cri, Exposition, Node, NodeNetwork, Watchdog};
use runtime_fail_points::{Point, pass};
use runtime_image::{Images, RegistryConfig};
use runtime_net::{Cni, CniConfig, PodRanges};
use runtime_pod::{InstalledFile, Pods, PodsConfig};
use runtime_spec::{HandlerConfig, HandlerKind};
use runtime_streaming::Server;
use runtime_traces::Traces;
use tokio::net::UnixListener;
use tokio::runtime::Handle;
use tracing::info;

use crate::config::{CgroupDriver, Config};
use crate::logging;
use crate::state_lock::StateLock;

/// Longest run directory, in bytes: a pod's socket below it, `/pods/<24 digits>/control.sock`, must fit
/// into the 107 of a unix socket's path (unix(7)).
const RUN_DIR_BYTES_MAX: usize = 107 - "/pods//control.sock".len() - 24;

/// The device that VMs are made by.
const KVM: &str = "/dev/kvm";

/// Threads that carry all calls, and as many for all streams.
const WORKERS_MAX: usize = 2;

/// How long a private daemon may take to remove its pods. A VM that cannot be killed must not hold the command for ever.
pub(crate) const REMOVE_TIMEOUT: Duration = Duration::from_secs(30);

/// Exit status of a daemon that a second signal ended, as of a process that SIGTERM has killed (128 + 15).
const EXIT_AT_ONCE: i32 = 143;

/// Arguments of `podvisor serve`.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct Args {
    /// Serve one command: stop when standard input ends, and remove every pod first.
    #[arg(long, hide = true)]
    private: bool,
}

/// Runs the daemon.
pub(crate) fn serve(config: &Config, args: Args) -> anyhow::Result<ExitCode> {
    let traces = config.traces.resolved().map_err(anyhow::Error::msg)?.map(Traces::new);
    logging::begin(traces.as_ref());
    start(config, args, traces.as_ref())
}

/// Takes the state, and runs the daemon on threads of its own.
fn start(config: &Config, args: Args, traces: Option<&Traces>) -> anyhow::Result<ExitCode> {
    // First of all: another daemon's images must not be swept, and its pods must not be recovered.
    let _lock = StateLock::take(&config.paths.state)?;
    // Two threads: the daemon forwards and waits, and work that computes (unpacking) has threads of its own. On one
    // processor the second would only cost wake-ups.
    let processors = std::thread::available_parallelism().map_or(WORKERS_MAX, NonZero::get);
    let workers = processors.min(WORKERS_MAX);
    let runtime = || {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        builder.worker_threads(workers).enable_all();
        builder
    };
    let calls = runtime().build()?;
    // Streams have threads of their own, so that no call waits behind their bytes.
    let streams = runtime().thread_name("streams").on_thread_start(schedule_as_batch).build()?;
    // Beside the streams, which no call waits for either.
    let exporting = traces.and_then(|traces| traces.export(streams.handle()));
    calls.block_on(async {
        let outcome = run(config, args, streams.handle()).await;
        if let Some(exporting) = exporting {
            exporting.finish().await;
        }
        outcome
    })?;
    // What still runs after the last call (a detached pull) must not hold the exit.
    calls.shutdown_background();
    streams.shutdown_background();
    Ok(ExitCode::SUCCESS)
}

/// Schedules the thread behind those that calls wait for.
fn schedule_as_batch() {
    if let Err(error) = vmm_sched_batch::set_sched_batch() {
        tracing::debug!(%error, "a thread for streams is scheduled like every other");
    }
}

async fn run(config: &Config, args: Args, streams: &Handle) -> anyhow::Result<()> {
    // Before anything else, so that a signal during the start ends the daemon in order, too.
    let command = args.private.then(|| Box::new(std::io::stdin()) as Box<dyn std::io::Read + Send>);
    let stop = stop::listen(command, || std::process::exit(EXIT_AT_ONCE))?;
    let socket = config.socket();
    let listener = listen(&socket)?;
    let images = Images::open(
        &config.paths.state.join("images"),
        RegistryConfig {
            insecure: config.registries.insecure.clone(),
            config_dir: Some(config.registries.config_dir.clone()),
            ..Default::default()
        },
    )
    .context("opening the image store")?;
    let open_files_max = descriptors::raise().context("raising the limit of open descriptors")?;
    let cni = Cni::new(CniConfig { open_files_max: Some(open_files_max), ..config.cni.pod_networks() });
    let streaming = streams.spawn(Server::start(config.streaming.address, config.streaming.tls())).await??;
    let watchdog = Arc::<Watchdog>::default();
    let node = node(config, cni.clone(), watchdog.clone());
    let pods = Pods::open(pods_config(config, images.clone(), cni)?).await.context("opening the pods")?;
    if args.private {
        // Those of a command before, whose daemon was killed.
        remove_all(&pods).await?;
    }
    info!(socket = %socket.display(), "serving");
    let cri = Cri::new(pods.clone(), images, node, streaming);
    let cri = match config.upstream() {
        Some(upstream) => {
            upstream.check().await.map_err(anyhow::Error::msg)?;
            cri.with_upstream(upstream)
        }
        None => cri,
    };
    if let Some(address) = config.metrics.address {
        metrics::start(address, Exposition::of(&cri)).await?;
    }
    if !args.private {
        report(&socket, pods.clone(), streams.clone(), watchdog);
    }
    let stop = async {
        stop.await;
        if !args.private {
            service::stopping().await;
        }
    };
    runtime_cri::serve(cri, listener, stop).await?;
    // A socket file without a listener would make clients try to connect to it.
    let _ = pass(Point::ServeSocketRemove).and_then(|()| fs::remove_file(&socket));
    if args.private {
        return remove_all(&pods).await;
    }
    info!("stopped; pods go on");
    Ok(())
}

/// Reports to the service manager, beside everything else, until the daemon ends.
fn report(socket: &Path, pods: Pods, streams: Handle, watchdog: Arc<Watchdog>) {
    let socket = socket.to_owned();
    tokio::spawn(async move {
        let answers = || service::answers(&socket, || drop(pods.pods()), &streams);
        service::report(answers, |outcome| watchdog.report(outcome)).await;
    });
}

async fn remove_all(pods: &Pods) -> anyhow::Result<()> {
    let removed = tokio::time::timeout(REMOVE_TIMEOUT, pods.remove_all()).await;
    removed
        .with_context(|| format!("removing the pods took more than {REMOVE_TIMEOUT:?}"))?
        .context("removing the pods")
}

/// Returns what CRI reports of the node: the handlers, the default one's empty name first, and the network's state.
fn node(config: &Config, cni: Cni, watchdog: Arc<Watchdog>) -> Node {
    let (handlers, default) = config.handlers();
    let names = handlers.into_iter().map(|handler| handler.name);
    let ranges = PodRanges::new(
        config.cni.conf_dir.clone(),
        config.cni.conf_template.clone(),
        config.paths.state.join("pod-ranges"),
    );
    Node {
        handlers: default.map(|_| String::new()).into_iter().chain(names).collect(),
        network: Box::new(CniNetwork { cni, ranges }),
        cgroup_driver: cgroup_driver(config.cgroup.driver),
        state_dir: config.paths.state.clone(),
        kvm: KVM.into(),
        watchdog,
    }
}

/// Returns the configured driver, or else systemd's where systemd runs the host (sd_booted(3)).
fn cgroup_driver(set: Option<CgroupDriver>) -> runtime_cri::CgroupDriver {
    match set {
        Some(CgroupDriver::Systemd) => runtime_cri::CgroupDriver::Systemd,
        Some(CgroupDriver::Cgroupfs) => runtime_cri::CgroupDriver::Cgroupfs,
        None if Path::new("/run/systemd/system").is_dir() => runtime_cri::CgroupDriver::Systemd,
        None => runtime_cri::CgroupDriver::Cgroupfs,
    }
}

struct CniNetwork {
    cni: Cni,
    ranges: PodRanges,
}

impl NodeNetwork for CniNetwork {
    fn ready(&self) -> Result<(), String> {
        self.cni.ready().map_err(|error| format!("{:#}", anyhow::Error::from(error)))
    }

    fn set_pod_ranges(&self, ranges: &[String]) -> Result<(), String> {
        self.ranges.set(ranges).map_err(|error| format!("{:#}", anyhow::Error::from(error)))
    }

    fn pod_ranges(&self) -> Vec<String> {
        self.ranges.get()
    }
}

/// Resolves the configuration of pods. Files are opened here, so that a missing one stops the start and not the first
/// pod's, and that an upgrade of the package changes nothing for a daemon that has not been restarted yet.
fn pods_config(config: &Config, images: Images, cni: Cni) -> anyhow::Result<PodsConfig> {
    let keep = |what: &str, path: &Path| {
        InstalledFile::keep(path).with_context(|| format!("{what} is not at {}", path.display()))
    };
    let vmm_binary = keep("the VMM", &config.vmm()?)?;
    let kernel = keep("the guest kernel", &config.kernel())?;
    let root_image = keep("the guest's root image", &config.root_image())?;
    let scratch_template = keep("the scratch template", &config.scratch_template())?;
    let run_dir_bytes = config.paths.run.as_os_str().len();
    if run_dir_bytes > RUN_DIR_BYTES_MAX {
        bail!("paths.run has {run_dir_bytes} bytes, and sockets' names allow {RUN_DIR_BYTES_MAX} at most");
    }
    let (handlers, default_handler) = config.handlers();
    let host_memory = nix::sys::sysinfo::sysinfo().context("asking how much memory there is")?.ram_total();
    let host_cpus = u8::try_from(std::thread::available_parallelism()?.get()).unwrap_or(u8::MAX);
    Ok(PodsConfig {
        state_dir: config.paths.state.clone(),
        run_dir: config.paths.run.clone(),
        handlers: handlers
            .iter()
            .map(|handler| HandlerConfig {
                name: handler.name.clone(),
                memory_default: handler.memory_mib << 20,
                memory_max: handler
                    .memory_max_mib
                    .map_or(host_memory, |mib| mib.saturating_mul(1 << 20))
                    .min(runtime_vm::MEMORY_BYTES_MAX),
                vcpus_max: handler.vcpus_max.unwrap_or(host_cpus).clamp(1, 64),
                scratch_bytes: handler.scratch_mib << 20,
                kind: HandlerKind::Vm,
            })
            .collect(),
        default_handler,
        strict_cgroups: config.cgroup.strict,
        kernel,
        root_image,
        scratch_template,
        vmm_binary,
        images,
        cni,
    })
}

/// Binds the socket, for root alone. A socket file that nobody listens on is removed; where somebody does, another daemon
/// runs, which is an error.
fn listen(socket: &Path) -> anyhow::Result<UnixListener> {
    if let Some(parent) = socket.parent() {
        pass(Point::ServeSocketMake)
            .and_then(|()| fs::create_dir_all(parent))
            .with_context(|| format!("making {}", parent.display()))?;
    }
    if socket.exists() {
        if StdUnixStream::connect(socket).is_ok() {
            bail!("another daemon already serves on {}", socket.display());
        }
        fs::remove_file(socket).with_context(|| format!("removing the stale socket {}", socket.display()))?;
    }
    let listener =
        UnixListener::bind(socket).with_context(|| format!("listening on {}", socket.display()))?;
    fs::set_permissions(socket, fs::Permissions::from_mode(0o660))?;
    Ok(listener)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_stale_socket_is_replaced_and_a_live_one_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("deep/podvisor.sock");
        let first = listen(&socket).unwrap();
        assert!(listen(&socket).unwrap_err().to_string().contains("another daemon"));
        drop(first);
        listen(&socket).unwrap();
    }

    #[test]
    fn nothing_of_a_state_that_another_daemon_has_is_touched() {
        let dir = tempfile::tempdir().unwrap();
        let mut config = Config::default();
        config.paths.state = dir.path().join("state");
        config.paths.run = dir.path().join("run");
        let under_way = config.paths.state.join("images/tmp/pull");
        fs::create_dir_all(under_way.parent().unwrap()).unwrap();
        fs::write(&under_way, "half an image").unwrap();
        let args = Args { private: false };
        let other = StateLock::take(&config.paths.state).unwrap();
        let refused = start(&config, args, None).unwrap_err().to_string();
        assert!(refused.contains(&format!("pid {},", std::process::id())), "{refused}");
        assert!(under_way.exists() && !config.paths.run.exists());
        // A daemon that has the state clears what an earlier one left half done.
        drop(other);
        config.paths.vmm = Some(dir.path().join("no-vmm"));
        assert!(start(&config, args, None).unwrap_err().to_string().contains("the VMM is not at"));
        assert!(!under_way.exists());
    }
}
