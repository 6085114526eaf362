//! One container from pull to clean-up, by CRI calls. The pod is stopped however the run ends, also by a
//! signal and during a call, unless the container is left running. It is removed as the arguments say.

use std::error::Error as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use proto_cri::v1;
use runtime_spec::{ExitReason, StartFailure};
use tonic_types::StatusExt;
use tracing::debug;

use super::args::{Args, Pull};
use super::logs;
use super::published;
use super::request::{self, LOG, NAMESPACE};
use super::signals::Signals;
use crate::attach;
use crate::client::{Client, refused};
use crate::config::Config;
use crate::daemon::Daemon;
use crate::exit;
use crate::image::pull::{find_or_pull_to_run, pull_to_run};
use crate::log_follower::LogFollower;
use crate::session::{self, Ended, Wanted};
use crate::show::out;
use crate::wait;

/// The interval between two reads of the log and the container's state. CRI has no call to wait for an exit.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// How long a restarting daemon may be away.
const AWAY_MAX: Duration = Duration::from_secs(60);

/// The interval between two attempts to reach a restarting daemon.
pub(super) const AWAY_INTERVAL: Duration = Duration::from_millis(250);

/// Grace period of an interrupted container, in seconds.
const STOP_GRACE_SECONDS: i64 = 5;

/// One run: the daemon, the arguments, and the directory of the log.
pub(super) struct Run<'a> {
    pub(super) client: Client,
    pub(super) args: &'a Args,
    logs: PathBuf,
    /// Whether the daemon serves only this run. Then nothing else can use the pod afterwards.
    pub(super) private: bool,
    pub(super) signals: Signals,
    /// The pod's id.
    pub(super) pod: String,
    /// Whether the pod has its container. Without it, nothing is worth keeping.
    has_container: bool,
    /// Whether the pod goes on without this command, which has lost it.
    pub(super) goes_on: bool,
}

/// Runs the container and returns its exit code. A private daemon has this state directory.
pub(super) async fn run(
    daemon: &Daemon,
    config: &Config,
    args: &Args,
    private_state: Option<&Path>,
) -> anyhow::Result<ExitCode> {
    let state = private_state.unwrap_or(&config.paths.state);
    let ports = args.network.port_mappings();
    // A run without a name or a port need not know the others.
    let pods = if args.name.is_some() || !ports.is_empty() { daemon.pods().await? } else { Vec::new() };
    let name = match &args.name {
        Some(name) => free(&pods, name)?,
        None => format!("run-{}", std::process::id()),
    };
    published::check(&ports, &pods)?;
    let Some(image) = image(daemon, args).await? else { return Ok(exit::INTERRUPTED.into()) };
    let logs = logs::make(state, &name).context("making a directory for the log")?;
    let signals = Signals::listen().context("listening to signals")?;
    let mut run = Run {
        client: daemon.client.clone(),
        args,
        logs: logs.path().to_owned(),
        private: private_state.is_some(),
        signals,
        pod: String::new(),
        has_container: false,
        goes_on: false,
    };
    let container = request::container(args, image)?;
    let pod_config = request::pod(args, &name, &run.logs)?;
    let request = v1::RunPodSandboxRequest {
        config: Some(pod_config.clone()),
        runtime_handler: match &*args.handler {
            "" => config.handler_of_vms()?,
            named => named.to_owned(),
        },
    };
    let starting = run.client.runtime.run_pod_sandbox(request);
    let pod = run.signals.behind(starting).await.map_err(refused)?.into_inner().pod_sandbox_id;
    run.pod.clone_from(&pod);
    let outcome = run.run_container(&pod, pod_config, container).await;
    if run.goes_on {
        let _ = logs.keep();
        return outcome.map(|ended| ended.code().into());
    }
    if matches!(outcome, Ok(Ended::Detached)) {
        // The pod goes on and writes to its log, so the directory must stay.
        let _ = logs.keep();
        if args.detach {
            // The pod runs, whoever reads its id.
            out::say(&pod);
        } else {
            out::complain(format_args!("detached; pod {pod} goes on"));
        }
        return Ok(ExitCode::SUCCESS);
    }
    let removed = run.clean_up(pod).await;
    if !matches!(removed, Ok(true)) {
        // The pod is there, or may be.
        let _ = logs.keep();
    }
    let ended = outcome?;
    removed?;
    Ok(ended.code().into())
}

/// Returns the name if no pod of a run has it, not even an ended one.
fn free(pods: &[v1::PodSandbox], name: &str) -> anyhow::Result<String> {
    let is_taken = |pod: &v1::PodSandbox| {
        pod.metadata.as_ref().is_some_and(|pod| pod.namespace == NAMESPACE && pod.name == name)
    };
    match pods.iter().find(|pod| is_taken(pod)) {
        Some(pod) => {
            bail!("a pod {NAMESPACE}/{name} exists ({}); `podvisor rm --force {name}` removes it", pod.id)
        }
        None => Ok(name.to_owned()),
    }
}

/// Returns the image's id. Pulls the image as the arguments say. `None` if a user has interrupted that.
async fn image(daemon: &Daemon, args: &Args) -> anyhow::Result<Option<String>> {
    match args.pull {
        Pull::Always => pull_to_run(daemon, &args.credentials, &args.image).await,
        Pull::Missing => find_or_pull_to_run(daemon, &args.credentials, &args.image).await,
        Pull::Never => match daemon.image_status(&args.image).await?.image {
            Some(image) => Ok(Some(image.id)),
            None => {
                bail!("the node does not have the image {}, and --pull never does not pull it", args.image)
            }
        },
    }
}

impl Run<'_> {
    /// Creates and starts the container, and follows it to its end.
    async fn run_container(
        &mut self,
        pod: &str,
        pod_config: v1::PodSandboxConfig,
        config: v1::ContainerConfig,
    ) -> anyhow::Result<Ended> {
        if let Some(signal) = self.signals.latest() {
            return Ok(Ended::Signalled(signal));
        }
        let request = v1::CreateContainerRequest {
            pod_sandbox_id: pod.to_owned(),
            config: Some(config),
            sandbox_config: Some(pod_config),
        };
        let creating = self.client.runtime.create_container(request);
        let container_id = match self.signals.behind(creating).await {
            Ok(answer) => answer.into_inner().container_id,
            Err(status) => return cannot_start(status),
        };
        self.has_container = true;
        if let Some(signal) = self.signals.latest() {
            return Ok(Ended::Signalled(signal));
        }
        let start = v1::StartContainerRequest { container_id: container_id.clone() };
        let starting = self.client.runtime.start_container(start);
        if let Err(status) = self.signals.behind(starting).await {
            return cannot_start(status);
        }
        if let Some(signal) = self.signals.latest() {
            self.stop(&container_id).await?;
            return Ok(Ended::Signalled(signal));
        }
        if self.args.detach {
            return Ok(Ended::Detached);
        }
        self.connect_streams(container_id).await
    }

    /// Connects this process's streams to the container until it ends. With a terminal the session carries
    /// the output, too. Without one the output comes from the log, in whole lines.
    async fn connect_streams(&mut self, container_id: String) -> anyhow::Result<Ended> {
        let Args { interactive, tty, .. } = *self.args;
        let wanted = Wanted {
            stdin: interactive,
            stdout: tty,
            stderr: false,
            tty,
            detachable: interactive && !self.private,
            // With a terminal the session carries the output, until the container ends.
            ends_input: !tty,
        };
        let url = match wanted {
            Wanted { tty: true, .. } => return self.connect_terminal(wanted, container_id).await,
            Wanted { stdin: false, stdout: false, .. } => None,
            wanted => match attach::url(&mut self.client, &container_id, wanted).await {
                Ok(url) => Some(url),
                // The container has ended already, and all its output is in the log.
                Err(status) if status.code() == tonic::Code::FailedPrecondition => None,
                Err(status) => return Err(refused(status)),
            },
        };
        match url {
            Some(url) => {
                let feeding = session::carry(&url, wanted, &self.args.trust);
                let following = self.follow(container_id, true);
                tokio::pin!(feeding, following);
                tokio::select! {
                    ended = &mut following => return ended,
                    // Only the container's state shows its end: standard input may fail earlier.
                    outcome = &mut feeding => if let Err(error) = outcome {
                        out::complain(format_args!("standard input: {error:#}"));
                    }
                }
                following.await
            }
            None => self.follow(container_id, true).await,
        }
    }

    /// Waits until the container has ended. With `print` it prints the log meanwhile. An interrupt stops the
    /// container.
    pub(super) async fn follow(&mut self, container_id: String, print: bool) -> anyhow::Result<Ended> {
        let mut log = LogFollower::open(&self.logs.join(LOG));
        let mut interrupts = 0;
        loop {
            let status = self.status(&container_id).await.map_err(refused)?;
            let status = status.context("the daemon answered without a status")?;
            // The state is read before the log: an exit is published after the last byte of the log.
            // A second interrupt is for the rest of a long output.
            while print && interrupts < 2 && !log.print_some()? {
                tokio::select! {
                    biased;
                    () = self.signals.next() => {
                        interrupts += 1;
                        self.stop(&container_id).await?;
                    }
                    () = tokio::task::yield_now() => {}
                }
            }
            if let Some(code) = wait::ended(&status)? {
                debug!(reason = status.reason, message = status.message, "exited");
                if status.reason.parse::<ExitReason>().is_ok_and(|reason| reason == ExitReason::OomKilled) {
                    out::complain("the container was killed by its memory limit");
                }
                return Ok(Ended::Exited(u8::try_from(code).unwrap_or(u8::MAX)));
            }
            tokio::select! {
                () = tokio::time::sleep(POLL_INTERVAL) => {}
                () = self.signals.next() => {
                    interrupts += 1;
                    self.stop(&container_id).await?;
                }
            }
        }
    }

    /// Asks for the container's status. A daemon may restart during the run, and its pods go on.
    async fn status(&self, container_id: &str) -> Result<Option<v1::ContainerStatus>, tonic::Status> {
        patiently(self.private, None, async || container_status(&self.client, container_id).await).await
    }

    pub(super) async fn stop(&mut self, container_id: &str) -> anyhow::Result<()> {
        let request =
            v1::StopContainerRequest { container_id: container_id.to_owned(), timeout: STOP_GRACE_SECONDS };
        self.client.runtime.stop_container(request).await.map_err(refused)?;
        Ok(())
    }

    /// Stops the pod. Removes it with `--rm` or without a container, and always with a private daemon.
    /// Returns true if it is removed.
    async fn clean_up(&mut self, pod_sandbox_id: String) -> anyhow::Result<bool> {
        let stop = v1::StopPodSandboxRequest { pod_sandbox_id: pod_sandbox_id.clone() };
        self.client.runtime.stop_pod_sandbox(stop).await.map_err(refused).context("stopping the pod")?;
        if self.has_container && !self.args.rm && !self.private {
            return Ok(false);
        }
        let remove = v1::RemovePodSandboxRequest { pod_sandbox_id };
        self.client.runtime.remove_pod_sandbox(remove).await.map_err(refused).context("removing the pod")?;
        Ok(true)
    }
}

/// Asks once for the container's status.
pub(crate) async fn container_status(
    client: &Client,
    container_id: &str,
) -> Result<Option<v1::ContainerStatus>, tonic::Status> {
    let request = v1::ContainerStatusRequest { container_id: container_id.to_owned(), verbose: false };
    Ok(client.runtime.clone().container_status(request).await?.into_inner().status)
}

/// Asks the daemon, and again while it restarts. A private daemon never does. With `signals`, a signal ends
/// the wait, and the last failure is the answer.
pub(crate) async fn patiently<T>(
    private: bool,
    mut signals: Option<&mut Signals>,
    ask: impl AsyncFn() -> Result<T, tonic::Status>,
) -> Result<T, tonic::Status> {
    let begun = Instant::now();
    loop {
        let status = match ask().await {
            // Only a broken connection has a source: the daemon did not say this.
            Err(status) if status.source().is_some() && !private && begun.elapsed() < AWAY_MAX => status,
            answer => return answer,
        };
        let interrupted = async {
            match &mut signals {
                Some(signals) => signals.next().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = interrupted => return Err(status),
            () = tokio::time::sleep(AWAY_INTERVAL) => {}
        }
    }
}

/// Returns the exit code for a missing or non-executable command, or else the daemon's refusal as an error.
fn cannot_start(status: tonic::Status) -> anyhow::Result<Ended> {
    let info = status.get_details_error_info().filter(|info| info.domain == runtime_cri::ERROR_DOMAIN);
    let failure = info.and_then(|info| StartFailure::from_name(&info.reason));
    let Some(failure) = failure else { return Err(refused(status)) };
    out::complain(status.message());
    Ok(Ended::Exited(failure.exit_code()))
}
