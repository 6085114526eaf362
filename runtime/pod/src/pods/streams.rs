//! Commands in containers, attached clients, and forwarded ports.

use std::convert::Infallible;
use std::time::Duration;

use runtime_spec::ExecSpec;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::oneshot;

use super::Pods;
use super::ask::detached;
use crate::container::attach::{AttachRequest, attach};
use crate::error::{PodError, PodErrorKind};
use crate::io::exec::Exec;
use crate::io::streams::ProcessStreams;
use crate::view::{ExecOutput, PodState};

impl Pods {
    /// Runs a command in a running container. Without a time-out it may run for ever.
    ///
    /// # Errors
    /// The container does not run, the command cannot be started, or it took too long and was killed. It is
    /// killed as well when this call is dropped.
    pub async fn exec_sync(
        &self,
        container_id: &str,
        command: Vec<String>,
        timeout: Option<Duration>,
    ) -> Result<ExecOutput, PodError> {
        let exec = self.new_exec(container_id, ExecSpec { command, tty: false, stdin: false }).await?;
        // Detached: when the caller goes away, somebody has to end the command.
        let (_here, gone) = oneshot::channel::<Infallible>();
        detached(exec.run(timeout, async move { drop(gone.await) })).await
    }

    /// Starts a command in a running container and returns its streams. The command goes on until its end is
    /// awaited, or its client is reported as gone.
    ///
    /// # Errors
    /// The container does not run, or the command cannot be started.
    pub async fn exec(&self, container_id: &str, spec: ExecSpec) -> Result<ProcessStreams, PodError> {
        detached(self.new_exec(container_id, spec).await?.streams()).await
    }

    /// Returns a running container's streams, output from now on.
    ///
    /// # Errors
    /// The container does not run, or has no stdin and one is wanted.
    pub async fn attach(
        &self,
        container_id: &str,
        request: AttachRequest,
    ) -> Result<ProcessStreams, PodError> {
        self.check_running(container_id)?;
        let live = self.live(&self.container_entry(container_id)?.view.pod_id).await?;
        attach(&live, &self.container_entry(container_id)?, request).await
    }

    /// Connects to a TCP port inside the pod and carries bytes both ways, each way to its own end.
    ///
    /// # Errors
    /// The pod does not run, or the port does not answer. A connection that breaks later is no error.
    pub async fn forward<C>(&self, pod_id: &str, port: u16, client: C) -> Result<(), PodError>
    where
        C: AsyncRead + AsyncWrite + Send + Unpin,
    {
        let live = self.live(pod_id).await?;
        let pod = live.call("connecting to the port", live.agent.port(port)).await?;
        if let Err(error) = runtime_ways::carry(client, pod).await {
            tracing::debug!(pod_id, port, %error, "a forwarded connection broke off");
        }
        Ok(())
    }

    /// Whether a pod's ports could be connected to now.
    ///
    /// # Errors
    /// There is no such pod, or it does not run.
    pub fn check_ready(&self, pod_id: &str) -> Result<(), PodError> {
        let entry = self.pod_entry(pod_id)?;
        if entry.view.state == PodState::Ready && !*entry.recovered.borrow() {
            return Ok(());
        }
        self.live_now(pod_id).map(drop)
    }

    async fn new_exec(&self, container_id: &str, spec: ExecSpec) -> Result<Exec, PodError> {
        if spec.command.is_empty() {
            return Err(PodError::new(PodErrorKind::InvalidArgument, "cmd: is empty"));
        }
        self.check_running(container_id)?;
        let live = self.live(&self.container_entry(container_id)?.view.pod_id).await?;
        // Again: while the pod was recovered, the container may have been found to have ended.
        self.check_running(container_id)?;
        let container = self.container_entry(container_id)?;
        let id = container.view.id.clone();
        Ok(Exec { live, container_id: id, process: container.process, spec })
    }
}
