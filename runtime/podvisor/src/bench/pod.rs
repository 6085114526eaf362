//! One measured pod after another.

use std::time::Instant;

use proto_cri::v1;

use super::figures::Round;
use crate::daemon::{Daemon, DaemonError};
use crate::run::{confined, namespaces, pod_metadata};
use crate::show::out;

/// The namespace of the measured pods.
const NAMESPACE: &str = "podvisor-bench";

/// The measurement: the image, and the current pod.
pub(super) struct Bench<'a> {
    daemon: &'a Daemon,
    /// The image's id, and its name.
    image: (String, String),
    /// The pod to be removed.
    pod: Option<String>,
}

impl<'a> Bench<'a> {
    pub(super) fn new(daemon: &'a Daemon, id: String, name: String) -> Bench<'a> {
        Bench { daemon, image: (id, name), pod: None }
    }

    /// Starts a pod, measures it, and removes it.
    pub(super) async fn round(&mut self, handler: &str, number: u16) -> Result<Round, DaemonError> {
        let mut runtime = self.daemon.client.runtime.clone();
        let config = pod(number);
        let begun = Instant::now();
        let request =
            v1::RunPodSandboxRequest { config: Some(config.clone()), runtime_handler: handler.to_owned() };
        let answer = self.daemon.ask_long("RunPodSandbox", runtime.run_pod_sandbox(request)).await?;
        let pod = answer.pod_sandbox_id;
        self.pod = Some(pod.clone());
        let request = v1::CreateContainerRequest {
            pod_sandbox_id: pod.clone(),
            config: Some(self.container()),
            sandbox_config: Some(config),
        };
        let answer = self.daemon.ask_long("CreateContainer", runtime.create_container(request)).await?;
        let container_id = answer.container_id;
        let request = v1::StartContainerRequest { container_id: container_id.clone() };
        self.daemon.ask_long("StartContainer", runtime.start_container(request)).await?;
        let start_ms = milliseconds(begun);
        let begun = Instant::now();
        let request = v1::ExecSyncRequest { container_id, cmd: vec!["true".into()], timeout: 0 };
        self.daemon.ask_long("ExecSync", runtime.exec_sync(request)).await?;
        let exec_ms = milliseconds(begun);
        let request = v1::PodSandboxStatsRequest { pod_sandbox_id: pod };
        let stats = self.daemon.ask_long("PodSandboxStats", runtime.pod_sandbox_stats(request)).await?;
        let memory_bytes = stats.stats.as_ref().and_then(memory_bytes);
        let begun = Instant::now();
        self.remove().await?;
        Ok(Round { start_ms, exec_ms, stop_ms: milliseconds(begun), memory_bytes })
    }

    /// Removes the current pod of an interrupted round, as far as possible.
    pub(super) async fn clean_up(&mut self) {
        if let Err(error) = self.remove().await {
            out::complain(error);
        }
    }

    async fn remove(&mut self) -> Result<(), DaemonError> {
        let Some(pod) = &self.pod else { return Ok(()) };
        self.daemon.stop_pod(pod).await?;
        self.daemon.remove_pod(pod).await?;
        self.pod = None;
        Ok(())
    }

    fn container(&self) -> v1::ContainerConfig {
        let (image, name) = self.image.clone();
        v1::ContainerConfig {
            metadata: Some(v1::ContainerMetadata { name: "main".into(), attempt: 0 }),
            image: Some(v1::ImageSpec { image, user_specified_image: name, ..Default::default() }),
            command: vec!["sleep".into(), "1000000".into()],
            linux: Some(v1::LinuxContainerConfig {
                security_context: Some(v1::LinuxContainerSecurityContext {
                    namespace_options: Some(namespaces(v1::NamespaceMode::Container)),
                    ..confined()
                }),
                ..Default::default()
            }),
            ..Default::default()
        }
    }
}

fn pod(number: u16) -> v1::PodSandboxConfig {
    let name = format!("bench-{}-{number}", std::process::id());
    v1::PodSandboxConfig {
        metadata: Some(pod_metadata(&name, NAMESPACE)),
        hostname: name,
        linux: Some(v1::LinuxPodSandboxConfig {
            security_context: Some(v1::LinuxSandboxSecurityContext {
                namespace_options: Some(namespaces(v1::NamespaceMode::Container)),
                seccomp: Some(v1::SecurityProfile::default()),
                ..Default::default()
            }),
            ..Default::default()
        }),
        ..Default::default()
    }
}

/// A number of milliseconds.
fn milliseconds(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1000.0
}

/// The memory of a pod on the node: what its cgroup is charged with, or for a pod of another runtime its
/// containers' working set.
fn memory_bytes(stats: &v1::PodSandboxStats) -> Option<u64> {
    let memory = stats.linux.as_ref()?.memory.as_ref()?;
    memory.usage_bytes.as_ref().or(memory.working_set_bytes.as_ref()).map(|value| value.value)
}
