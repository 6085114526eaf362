//! One container from pull to clean-up, by CRI calls. The pod is stopped and removed however it ends,
//! on Ctrl-C too.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, anyhow};
use proto_cri::v1;
use tokio::signal::unix::{SignalKind, signal};
use tracing::debug;

use super::Args;
use super::follow::{Decoder, print};
use crate::client::Client;

/// Between two looks at the log and the container's state. CRI has no call that waits for an exit.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// How long a container that is interrupted may take to end, seconds.
const STOP_GRACE_SECONDS: i64 = 5;

/// Exit status for a command that cannot be executed, and one that is not there, as shells have it.
const EXIT_NOT_EXECUTABLE: u8 = 126;
const EXIT_NOT_FOUND: u8 = 127;

/// What one run needs to know of itself.
struct Run<'a> {
    client: Client,
    args: &'a Args,
    logs: PathBuf,
    /// The daemon is ours alone: nobody could look at the pod afterwards.
    private: bool,
}

/// Runs the container; the exit code is its own.
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
    let outcome = run.container(&pod, config, image).await;
    let cleaned = run.clean_up(pod).await;
    let code = outcome?;
    cleaned?;
    Ok(ExitCode::from(code))
}

impl Run<'_> {
    /// The image's id; pulled only where it is not there, as `docker run` does.
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

    /// Limits given on the command line, for pod and container alike.
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

    async fn container(
        &mut self,
        pod: &str,
        pod_config: v1::PodSandboxConfig,
        image: String,
    ) -> anyhow::Result<u8> {
        let config = v1::ContainerConfig {
            metadata: Some(v1::ContainerMetadata { name: "main".into(), attempt: 0 }),
            image: Some(v1::ImageSpec {
                image,
                user_specified_image: self.args.image.clone(),
                ..Default::default()
            }),
            args: self.args.command.clone(),
            log_path: "main.log".into(),
            linux: Some(v1::LinuxContainerConfig {
                resources: self.resources(),
                security_context: Some(v1::LinuxContainerSecurityContext {
                    namespace_options: Some(namespaces()),
                    seccomp: Some(v1::SecurityProfile::default()),
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
        self.follow(container_id).await
    }

    /// Prints what the container writes until it has ended; an interrupt stops it first.
    async fn follow(&mut self, container_id: String) -> anyhow::Result<u8> {
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut terminate = signal(SignalKind::terminate())?;
        let mut log = Log::open(&self.logs.join("main.log"));
        loop {
            let request = v1::ContainerStatusRequest { container_id: container_id.clone(), verbose: false };
            let answer = self.client.runtime.container_status(request).await.map_err(refused)?.into_inner();
            let status = answer.status.context("the daemon answered without a status")?;
            // The state is read before the log: an exit is told only after its last byte is there.
            log.print()?;
            if status.state() == v1::ContainerState::ContainerExited {
                debug!(reason = status.reason, message = status.message, "exited");
                if status.reason == "OOMKilled" {
                    eprintln!("podvisor: the container was killed by its memory limit");
                }
                return Ok(u8::try_from(status.exit_code).unwrap_or(u8::MAX));
            }
            tokio::select! {
                () = tokio::time::sleep(LOOK_INTERVAL) => {}
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

    /// Stops the pod always; removes it unless it is kept in a shared daemon on purpose.
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

/// The log file as it grows.
struct Log {
    file: Option<std::fs::File>,
    path: PathBuf,
    decoder: Decoder,
}

impl Log {
    fn open(path: &Path) -> Log {
        Log { file: None, path: path.to_owned(), decoder: Decoder::default() }
    }

    /// Prints what has come since the last time.
    fn print(&mut self) -> anyhow::Result<()> {
        const CHUNK_BYTES: usize = 64 * 1024;
        if self.file.is_none() {
            self.file = std::fs::File::open(&self.path).ok();
        }
        let Some(file) = &mut self.file else { return Ok(()) };
        let mut chunk = vec![0; CHUNK_BYTES];
        loop {
            let length = file.read(&mut chunk).context("reading the container's log")?;
            if length == 0 {
                return Ok(());
            }
            let mut failed = None;
            self.decoder.feed(&chunk[..length], |stream, content| {
                if let Err(error) = print(stream, content) {
                    failed.get_or_insert(error);
                }
            });
            if let Some(error) = failed {
                return Err(error).context("writing the container's output");
            }
        }
    }
}

/// Each container in a PID namespace of its own, as the kubelet asks by default.
fn namespaces() -> v1::NamespaceOption {
    v1::NamespaceOption { pid: v1::NamespaceMode::Container.into(), ..Default::default() }
}

/// By value, as `map_err` gives it.
#[expect(clippy::needless_pass_by_value, reason = "map_err gives the status away")]
fn refused(status: tonic::Status) -> anyhow::Error {
    anyhow!("{}", status.message())
}

/// Shells tell a command that is not there from one that cannot be executed; so do we.
fn cannot_start(status: tonic::Status) -> anyhow::Result<u8> {
    let code = start_failure(status.message());
    let Some(code) = code else { return Err(refused(status)) };
    eprintln!("podvisor: {}", status.message());
    Ok(code)
}

fn start_failure(message: &str) -> Option<u8> {
    let message = message.to_ascii_lowercase();
    if message.contains("executable") && message.contains("not found") {
        Some(EXIT_NOT_FOUND)
    } else if message.contains("permission denied") || message.contains("not executable") {
        Some(EXIT_NOT_EXECUTABLE)
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_command_is_127_and_one_that_cannot_run_126() {
        assert_eq!(start_failure("executable file `nope` not found in $PATH"), Some(127));
        assert_eq!(start_failure("exec /data: Permission denied"), Some(126));
        assert_eq!(start_failure("booting the VM: the guest panicked"), None);
    }
}
