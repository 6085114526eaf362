//! `podvisor serve`: opens images, networks and pods, and serves CRI until SIGTERM or SIGINT. Pods outlive
//! the daemon: its next start recovers them. A private daemon's pods do not: they end with the command. This
//! module knows other crates only as far as their start needs it.

mod descriptors;
mod in_force;
mod metrics;
mod node;
mod node_down;
mod private;
mod reload;
mod service;
mod stop;

use std::collections::HashSet;
use std::fs;
use std::num::NonZero;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use runtime_cri::{Cri, Exposition, NriPlugins, Watchdog};
use runtime_fail_points::{Point, pass};
use runtime_image::Images;
use runtime_net::{Cni, CniConfig};
use runtime_pod::{EarlierPods, InstalledFile, Kernels, NoPlugins, Pods, PodsConfig, check_belonging};
use runtime_spec::Kernel;
use runtime_streaming::Server;
use runtime_traces::Traces;
use tokio::net::UnixListener;
use tokio::runtime::Handle;
use tokio::signal::unix::{SignalKind, signal};
use tracing::info;

use self::in_force::{Parts, registry_config, start_config};
use self::metrics::Figures;
use self::node::CniNetwork;
pub(crate) use self::private::REMOVE_TIMEOUT;
use self::reload::Reloader;
use crate::config::{Config, Loaded};
use crate::installation;
use crate::logging::{self, LogFilter};
use crate::state_lock::StateLock;

/// Threads for all calls, and as many for all streams.
const WORKERS_MAX: usize = 2;

/// Exit status of a daemon ended by a second signal, as of a process killed by SIGTERM (128 + 15).
const EXIT_AT_ONCE: i32 = 143;

/// Arguments of `podvisor serve`.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct Args {
    /// Serve one command: stop when standard input ends, and remove every pod first.
    #[arg(long, hide = true)]
    private: bool,
}

/// Part of the unit's stop timeout not used for containers. It is for calls in progress, for killing
/// processes that ignore their signal, and for guests to write their disks.
const POWER_OFF_RESERVE: Duration = Duration::from_secs(30);

/// Timeout for the end of VMs without a pod when the daemon stops.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(20);

/// A daemon's first configuration, and the parts needed to reload it.
#[derive(Debug)]
struct Start {
    loaded: Loaded,
    /// The file given on the command line, if any.
    path: Option<PathBuf>,
    log: LogFilter,
    args: Args,
}

/// Runs the daemon.
pub(crate) fn serve(loaded: Loaded, path: Option<&Path>, args: Args) -> anyhow::Result<ExitCode> {
    let traces =
        loaded.config.traces.resolved().map_err(|wrong| anyhow!(wrong.to_string()))?.map(Traces::new);
    let log = logging::begin(&loaded, traces.as_ref());
    start(Start { loaded, path: path.map(Path::to_owned), log, args }, traces.as_ref())
}

/// Locks the state, and runs the daemon on its own threads.
fn start(start: Start, traces: Option<&Traces>) -> anyhow::Result<ExitCode> {
    // First of all: another daemon's images must not be swept, and its pods must not be recovered.
    let config = &start.loaded.config;
    let _lock = StateLock::take(&config.paths.state)?;
    if !start.args.private {
        // Before anything is made in a directory that may be the wrong one.
        check_belonging(&config.dirs())?;
    }
    // Two threads: the daemon forwards and waits, and computing work (unpacking) has its own threads. On one
    // processor the second would only cost wake-ups.
    let processors = std::thread::available_parallelism().map_or(WORKERS_MAX, NonZero::get);
    let workers = processors.min(WORKERS_MAX);
    let runtime = || {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        builder.worker_threads(workers).enable_all();
        builder
    };
    let calls = runtime().build()?;
    // Streams have their own threads, so no call waits behind their bytes.
    let streams = runtime().thread_name("streams").on_thread_start(schedule_as_batch).build()?;
    // With the streams: no call waits for traces either.
    let exporting = traces.and_then(|traces| traces.export(streams.handle()));
    calls.block_on(async {
        let outcome = run(start, streams.handle()).await;
        if let Some(exporting) = exporting {
            exporting.finish().await;
        }
        outcome
    })?;
    // Work after the last call (a detached pull) must not delay the exit.
    calls.shutdown_background();
    streams.shutdown_background();
    Ok(ExitCode::SUCCESS)
}

/// Schedules the thread behind those for calls.
fn schedule_as_batch() {
    if let Err(error) = vmm_sched_batch::set_sched_batch() {
        tracing::debug!(%error, "a thread for streams is scheduled like every other");
    }
}

async fn run(start: Start, streams: &Handle) -> anyhow::Result<()> {
    let Start { loaded, path, log, args } = start;
    let config = &loaded.config;
    // Before anything else, so a signal during the start stops the daemon in order, or reloads it after the
    // start.
    let command = args.private.then(|| Box::new(std::io::stdin()) as Box<dyn std::io::Read + Send>);
    let stop = stop::listen(command, || std::process::exit(EXIT_AT_ONCE))?;
    let hangup = signal(SignalKind::hangup())?;
    let socket = config.socket();
    let listener = listen(&socket)?;
    let images = Images::open(&config.paths.state.join("images"), registry_config(config))
        .context("opening the image store")?;
    let cni = cni(config, args)?;
    let network = CniNetwork::new(cni.clone(), config);
    let streaming = streams.spawn(Server::start(config.streaming.address, config.streaming.tls())).await??;
    let watchdog = Arc::<Watchdog>::default();
    let views = reload::publish_first(&loaded);
    let node = node::node(config, network.clone(), watchdog.clone(), views.subscribe());
    let plugins = plugins(config, args);
    let mut pods_config = pods_config(config, images.clone(), cni, plugins.as_ref())?;
    if args.private {
        pods_config.earlier = EarlierPods::End;
    }
    let pods = Pods::open(pods_config).await.context("opening the pods")?;
    let earlier = if args.private { private::remove_earlier(&pods).await } else { HashSet::new() };
    if let Some(plugins) = &plugins {
        // Before the first call, so plugins miss no pod.
        serve_plugins(plugins, pods.clone(), config).await?;
    }
    info!(socket = %socket.display(), "serving");
    let cri = with_upstream(Cri::new(pods.clone(), images.clone(), node, streaming), config).await?;
    let mut figures = Figures::new(Exposition::of(&cri));
    figures.move_to(config.metrics.address).await?;
    if !args.private {
        report(&socket, pods.clone(), streams.clone(), watchdog);
    }
    let parts = Parts { pods: pods.clone(), images: images.clone(), network, figures, log };
    let reloading = tokio::spawn(Reloader::new(path, loaded, parts, views).run(hangup));
    let stop = async move {
        stop.await;
        reloading.abort();
        if !args.private {
            service::stopping().await;
        }
    };
    runtime_cri::serve(cri, listener, stop).await?;
    if let Some(plugins) = plugins {
        plugins.close().await;
    }
    // A socket file without a listener would make clients try to connect to it.
    let _ = pass(Point::ServeSocketRemove).and_then(|()| fs::remove_file(&socket));
    if args.private {
        close(&pods).await;
        return private::remove_own(&pods, &earlier).await;
    }
    tokio::join!(close(&pods), leave_pods(&pods));
    images.forget_users();
    Ok(())
}

/// Ends VMs and other resources without a pod.
async fn close(pods: &Pods) {
    if tokio::time::timeout(CLOSE_TIMEOUT, pods.close()).await.is_err() {
        tracing::warn!("VMs without a pod stay until the next daemon");
    }
}

/// Leaves pods running, or ends them with the node, within this daemon's own stop timeout.
async fn leave_pods(pods: &Pods) {
    let Some(time) = node_down::time_left().await else {
        return info!("stopped; pods go on");
    };
    let grace = time.saturating_sub(POWER_OFF_RESERVE);
    if tokio::time::timeout(time, pods.power_off(grace, time)).await.is_err() {
        tracing::warn!("pods that have not ended go down with the node");
    }
    info!("stopped, with all pods");
}

/// Reports to the service manager, in the background, until the daemon ends.
fn report(socket: &Path, pods: Pods, streams: Handle, watchdog: Arc<Watchdog>) {
    let socket = socket.to_owned();
    tokio::spawn(async move {
        let answers = || service::answers(&socket, || drop(pods.pods()), &streams);
        service::report(answers, |outcome| watchdog.report(outcome)).await;
    });
}

/// The node's networks. Raises the limit of open descriptors, but not for plugins. Beside a private daemon
/// there are others, with the same records of networks.
fn cni(config: &Config, args: Args) -> anyhow::Result<Cni> {
    let open_files_max = Some(descriptors::raise().context("raising the limit of open descriptors")?);
    let collects_garbage = !args.private;
    Ok(Cni::new(CniConfig { open_files_max, collects_garbage, ..config.cni.pod_networks() }))
}

/// The node's plugins, if enabled. A node's plugins do not apply to a private daemon's pods.
fn plugins(config: &Config, args: Args) -> Option<NriPlugins> {
    let wanted = config.nri.enabled && !args.private;
    wanted.then(|| NriPlugins::new(config.nri(), config.nri.unsupported()))
}

/// Starts plugins and lets others connect. If another process serves the default socket, it keeps it, and no
/// plugins can connect.
async fn serve_plugins(plugins: &NriPlugins, pods: Pods, config: &Config) -> anyhow::Result<()> {
    match plugins.serve(pods).await {
        Err(error) if error.is_taken() && config.nri.socket.is_none() => {
            let error = format!("{:#}", anyhow!(error));
            tracing::warn!(error, "plugins cannot connect; nri.socket names another socket for them");
            Ok(())
        }
        served => Ok(served?),
    }
}

/// Puts the node's other runtime behind the services, if there is one.
async fn with_upstream(cri: Cri, config: &Config) -> anyhow::Result<Cri> {
    let Some(upstream) = config.upstream() else { return Ok(cri) };
    upstream.check_images().await?;
    Ok(cri.with_upstream(upstream))
}

/// Resolves the configuration of pods. Opens files already here: a missing one fails the start and not the
/// first pod, and an upgrade of the package changes nothing until the daemon restarts.
fn pods_config(
    config: &Config,
    images: Images,
    cni: Cni,
    plugins: Option<&NriPlugins>,
) -> anyhow::Result<PodsConfig> {
    let keep = |what: &str, path: &Path| {
        InstalledFile::keep(path).with_context(|| format!("{what} is not at {}", path.display()))
    };
    let vmm_binary = keep("the VMM", &config.vmm()?)?;
    let full = config.kernel(Kernel::Full);
    let kernels = Kernels {
        small: keep("the guest kernel", &config.kernel(Kernel::Small))?,
        // It may be missing if no handler needs it; `start_config` checks this.
        full: InstalledFile::keep(&full).unwrap_or_else(|_| full.into()),
    };
    let root_image = keep("the guest's root image", &config.root_image())?;
    let scratch_template = keep("the scratch template", &config.scratch_template())?;
    let volume_template = keep("the template of volumes", &config.volume_template())?;
    if !installation::check_digests(config, [&kernels.small, &kernels.full, &root_image])? {
        info!(directory = %config.paths.guest_image.display(), "the guest image has no list of digests");
    }
    installation::check_run_dir(config)?;
    Ok(PodsConfig {
        state_dir: config.paths.state.clone(),
        run_dir: config.paths.run.clone(),
        start: start_config(config)?,
        kernels,
        root_image,
        scratch_template,
        volume_template,
        vmm_binary,
        images,
        cni,
        plugins: match plugins {
            Some(plugins) => Arc::new(plugins.clone()),
            None => Arc::new(NoPlugins),
        },
        earlier: EarlierPods::default(),
    })
}

/// Binds the socket, for root alone. A socket file without a listener is removed. With a listener, another
/// daemon runs, and this is an error.
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
        let mut loaded = crate::config::load(None).unwrap();
        let config = &mut loaded.config;
        config.paths.state = dir.path().join("state");
        config.paths.run = dir.path().join("run");
        let under_way = config.paths.state.join("images/tmp/pull");
        fs::create_dir_all(under_way.parent().unwrap()).unwrap();
        fs::write(&under_way, "half an image").unwrap();
        let other = StateLock::take(&config.paths.state).unwrap();
        let run = config.paths.run.clone();
        let started = |loaded: &Loaded| {
            let (_, log) = logging::filter(&loaded.config.log);
            start(Start { loaded: loaded.clone(), path: None, log, args: Args { private: false } }, None)
        };
        let refused = started(&loaded).unwrap_err().to_string();
        assert!(refused.contains(&format!("pid {},", std::process::id())), "{refused}");
        assert!(under_way.exists() && !run.exists());
        // A daemon with the lock removes an earlier one's unfinished work.
        drop(other);
        loaded.config.paths.vmm = Some(dir.path().join("no-vmm"));
        assert!(started(&loaded).unwrap_err().to_string().contains("the VMM is not at"));
        assert!(!under_way.exists());
    }
}
