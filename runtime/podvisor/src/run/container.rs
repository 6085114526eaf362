//! One container from pull to clean-up, by CRI calls. The pod is stopped and removed however the run ends,
//! also on Ctrl-C.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use proto_cri::v1;
use runtime_spec::{ExitReason, MASKED_PATHS, READONLY_PATHS, StartFailure};
use tokio::signal::unix::{SignalKind, signal};
use tonic_types::StatusExt;
use tracing::debug;

use super::args::Args;
use crate::attach;
use crate::client::{Client, refused};
use crate::log_follower::LogFollower;
use crate::session::{self, Ended, Wanted};

/// The interval between two reads of the log and the container's state. CRI has no call to wait for an exit.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Grace period of an interrupted container, in seconds.
const STOP_GRACE_SECONDS: i64 = 5;

/// One run: the daemon, the arguments, and the directory of the log.
struct Run<'a> {
    client: Client,
    args: &'a Args,
    logs: PathBuf,
    /// Whether the daemon serves only this run. Then nothing else can use the pod afterwards.
    private: bool,
}

/// Runs the container and returns its exit code.
pub(super) async fn run(client: Client, args: &Args, private: bool) -> anyhow::Result<ExitCode> {
    let logs = tempfile::Builder::new()
        .prefix("podvisor-run-")
        .tempdir()
        .context("making a directory for the log")?;
    let mut run = Run { client, args, logs: logs.path().to_owned(), private };
    let image = run.pull().await?;
    let config = run.pod_config();
    let request =
        v1::RunPodSandboxRequest { config: Some(config.clone()), runtime_handler: args.handler.clone() };
    let pod = run.client.runtime.run_pod_sandbox(request).await.map_err(refused)?.into_inner().pod_sandbox_id;
    let outcome = run.run_container(&pod, config, image).await;
    if matches!(outcome, Ok(Ended::Detached)) {
        // The pod goes on and writes to its log, so the directory must stay.
        let _ = logs.keep();
        eprintln!("podvisor: detached; pod {pod} goes on");
        return Ok(ExitCode::SUCCESS);
    }
    let cleaned = run.clean_up(pod).await;
    let ended = outcome?;
    cleaned?;
    Ok(ended.code().into())
}

impl Run<'_> {
    /// Returns the image's id. Pulls the image only if it is missing, as `docker run` does.
    async fn pull(&mut self) -> anyhow::Result<String> {
        let spec = v1::ImageSpec { image: self.args.image.clone(), ..Default::default() };
        let status = v1::ImageStatusRequest { image: Some(spec.clone()), verbose: false };
        if let Some(image) =
            self.client.images.image_status(status).await.map_err(refused)?.into_inner().image
        {
            return Ok(image.id);
        }
        let bar = indicatif::ProgressBar::new_spinner().with_message(format!("pulling {}", self.args.image));
        bar.enable_steady_tick(Duration::from_millis(120));
        let request = v1::PullImageRequest { image: Some(spec), ..Default::default() };
        let pulled = self.client.images.pull_image(request).await;
        bar.finish_and_clear();
        Ok(pulled.map_err(refused)?.into_inner().image_ref)
    }

    fn pod_config(&self) -> v1::PodSandboxConfig {
        let name = format!("run-{}", std::process::id());
        v1::PodSandboxConfig {
            metadata: Some(v1::PodSandboxMetadata {
                uid: format!("{name}-{}", uuid::Uuid::new_v4()),
                name: name.clone(),
                namespace: "podvisor-run".into(),
                attempt: 0,
            }),
            hostname: name,
            log_directory: self.logs.display().to_string(),
            linux: Some(v1::LinuxPodSandboxConfig {
                resources: self.resources(),
                security_context: Some(v1::LinuxSandboxSecurityContext {
                    namespace_options: Some(namespaces()),
                    ..Default::default()
                }),
                ..Default::default()
            }),
            ..Default::default()
        }
    }

    /// Returns the limits of the command line. Pod and container share them.
    fn resources(&self) -> Option<v1::LinuxContainerResources> {
        const PERIOD_US: i64 = 100_000;
        let (cpus, memory) = (self.args.cpus, self.args.memory);
        (cpus.is_some() || memory.is_some()).then(|| v1::LinuxContainerResources {
            cpu_period: PERIOD_US,
            cpu_quota: cpus.map_or(0, |cpus| i64::from(cpus) * PERIOD_US),
            memory_limit_in_bytes: memory.unwrap_or(0),
            ..Default::default()
        })
    }

    /// Creates and starts the container, and follows it to its end.
    async fn run_container(
        &mut self,
        pod: &str,
        pod_config: v1::PodSandboxConfig,
        image: String,
    ) -> anyhow::Result<Ended> {
        let config = v1::ContainerConfig {
            metadata: Some(v1::ContainerMetadata { name: "main".into(), attempt: 0 }),
            image: Some(v1::ImageSpec {
                image,
                user_specified_image: self.args.image.clone(),
                ..Default::default()
            }),
            args: self.args.command.clone(),
            stdin: self.args.interactive,
            // A user may detach from a terminal and attach again later.
            stdin_once: self.args.interactive && !self.args.tty,
            tty: self.args.tty,
            log_path: "main.log".into(),
            linux: Some(v1::LinuxContainerConfig {
                resources: self.resources(),
                security_context: Some(v1::LinuxContainerSecurityContext {
                    namespace_options: Some(namespaces()),
                    seccomp: Some(v1::SecurityProfile::default()),
                    masked_paths: MASKED_PATHS.map(str::to_owned).into(),
                    readonly_paths: READONLY_PATHS.map(str::to_owned).into(),
                    ..Default::default()
                }),
            }),
            ..Default::default()
        };
        let request = v1::CreateContainerRequest {
            pod_sandbox_id: pod.to_owned(),
            config: Some(config),
            sandbox_config: Some(pod_config),
        };
        let container_id = match self.client.runtime.create_container(request).await {
            Ok(answer) => answer.into_inner().container_id,
            Err(status) => return cannot_start(status),
        };
        let start = v1::StartContainerRequest { container_id: container_id.clone() };
        if let Err(status) = self.client.runtime.start_container(start).await {
            return cannot_start(status);
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
        };
        let url = match wanted {
            Wanted { stdin: false, stdout: false, .. } => None,
            wanted => match attach::url(&mut self.client, &container_id, wanted).await {
                Ok(url) => Some(url),
                // The container has ended already, and all its output is in the log.
                Err(status) if status.code() == tonic::Code::FailedPrecondition => None,
                Err(status) => return Err(refused(status)),
            },
        };
        match url {
            Some(url) if tty => match session::carry(&url, wanted, &self.args.trust).await? {
                Ended::Exited(_) => self.follow(container_id, false).await,
                Ended::Signalled(signal) => {
                    self.stop(&container_id).await?;
                    Ok(Ended::Signalled(signal))
                }
                Ended::Detached => Ok(Ended::Detached),
            },
            Some(url) => {
                let feeding = session::carry(&url, wanted, &self.args.trust);
                let following = self.follow(container_id, true);
                tokio::pin!(feeding, following);
                tokio::select! {
                    ended = &mut following => return ended,
                    // Only the container's state shows its end: standard input may fail earlier.
                    outcome = &mut feeding => if let Err(error) = outcome {
                        eprintln!("podvisor: standard input: {error:#}");
                    }
                }
                following.await
            }
            None => self.follow(container_id, true).await,
        }
    }

    /// Waits until the container has ended. With `print` it prints the log meanwhile. An interrupt stops the
    /// container.
    async fn follow(&mut self, container_id: String, print: bool) -> anyhow::Result<Ended> {
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut terminate = signal(SignalKind::terminate())?;
        let mut log = LogFollower::open(&self.logs.join("main.log"));
        loop {
            let request = v1::ContainerStatusRequest { container_id: container_id.clone(), verbose: false };
            let answer = self.client.runtime.container_status(request).await.map_err(refused)?.into_inner();
            let status = answer.status.context("the daemon answered without a status")?;
            // The state is read before the log: an exit is published after the last byte of the log.
            if print {
                log.print()?;
            }
            if status.state() == v1::ContainerState::ContainerExited {
                debug!(reason = status.reason, message = status.message, "exited");
                if status.reason.parse::<ExitReason>().is_ok_and(|reason| reason == ExitReason::OomKilled) {
                    eprintln!("podvisor: the container was killed by its memory limit");
                }
                return Ok(Ended::Exited(u8::try_from(status.exit_code).unwrap_or(u8::MAX)));
            }
            tokio::select! {
                () = tokio::time::sleep(POLL_INTERVAL) => {}
                _ = interrupt.recv() => self.stop(&container_id).await?,
                _ = terminate.recv() => self.stop(&container_id).await?,
            }
        }
    }

    async fn stop(&mut self, container_id: &str) -> anyhow::Result<()> {
        let request =
            v1::StopContainerRequest { container_id: container_id.to_owned(), timeout: STOP_GRACE_SECONDS };
        self.client.runtime.stop_container(request).await.map_err(refused)?;
        Ok(())
    }

    /// Stops the pod. Removes it with `--rm`, and always with a private daemon.
    async fn clean_up(&mut self, pod_sandbox_id: String) -> anyhow::Result<()> {
        let stop = v1::StopPodSandboxRequest { pod_sandbox_id: pod_sandbox_id.clone() };
        self.client.runtime.stop_pod_sandbox(stop).await.map_err(refused).context("stopping the pod")?;
        if self.args.rm || self.private {
            let remove = v1::RemovePodSandboxRequest { pod_sandbox_id };
            self.client
                .runtime
                .remove_pod_sandbox(remove)
                .await
                .map_err(refused)
                .context("removing the pod")?;
        }
        Ok(())
    }
}

/// Returns a PID namespace for each container, the kubelet's default.
pub(crate) fn namespaces() -> v1::NamespaceOption {
    v1::NamespaceOption { pid: v1::NamespaceMode::Container.into(), ..Default::default() }
}

/// Returns the exit code for a missing or non-executable command, or else the daemon's refusal as an error.
fn cannot_start(status: tonic::Status) -> anyhow::Result<Ended> {
    let info = status.get_details_error_info().filter(|info| info.domain == runtime_cri::ERROR_DOMAIN);
    let failure = info.and_then(|info| StartFailure::from_name(&info.reason));
    let Some(failure) = failure else { return Err(refused(status)) };
    eprintln!("podvisor: {}", status.message());
    Ok(Ended::Exited(failure.exit_code()))
}
