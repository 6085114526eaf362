//! The calls. One method per RPC of `agent.proto`, which is their contract.

use std::future::Future;
use std::path::{Path, PathBuf};
use std::time::Duration;

use proto_agent::agent::{
    AgentReady, ConfigurePodRequest, CreateContainerRequest, CreateContainerResponse, ExecRequest,
    RemoveContainerRequest, ResizePodRequest, ShutdownRequest, SignalRequest, StartContainerRequest,
    StatsRequest, StatsResponse, StreamKind, StreamOpen, StreamOpened, UpdateContainerRequest, UsageRequest,
    UsageResponse, WaitRequest, WaitResponse,
};
use proto_agent::agent_ttrpc::AgentClient;
use proto_agent::port;
use tokio::net::UnixStream;
use ttrpc::asynchronous::Client;
use ttrpc::asynchronous::transport::Socket;
use ttrpc::context::Context;

use crate::connect::dial;
use crate::error::{GuestError, RefusedCode};
use crate::frames;
use crate::input::InputStream;
use crate::output::OutputStream;

/// Calls that touch little: a guest that takes longer hangs.
const SHORT: Duration = Duration::from_secs(15);
/// Calls that mount, build or end containers: above the agent's own bounds for each step.
const LONG: Duration = Duration::from_secs(120);

/// Reads the agent's ready frame from the stream that the guest opened.
pub async fn ready(mut stream: UnixStream) -> Result<AgentReady, GuestError> {
    frames::read("ready", &mut stream).await
}

/// One guest's agent, connected. Clones share the connection; a connection that broke stays broken,
/// and the caller connects anew.
#[derive(Clone)]
pub struct Guest {
    client: AgentClient,
    socket: PathBuf,
}

impl std::fmt::Debug for Guest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Guest").field("socket", &self.socket).finish_non_exhaustive()
    }
}

impl Guest {
    /// Connects to the agent behind this vsock socket of the VMM.
    pub async fn connect(vsock_path: &Path) -> Result<Guest, GuestError> {
        let stream = dial("connect", vsock_path, port::RPC).await?;
        let client = AgentClient::new(Client::new(Socket::new(stream)));
        Ok(Guest { client, socket: vsock_path.to_owned() })
    }

    /// Names, files, network, disk, seed and clock: the first call.
    pub async fn configure_pod(&self, request: &ConfigurePodRequest) -> Result<(), GuestError> {
        let call = self.client.configure_pod(context(LONG), request);
        within("ConfigurePod", LONG, call).await.map(drop)
    }

    /// Builds a container and holds it before exec.
    pub async fn create_container(
        &self,
        request: &CreateContainerRequest,
    ) -> Result<CreateContainerResponse, GuestError> {
        within("CreateContainer", LONG, self.client.create_container(context(LONG), request)).await
    }

    /// Releases a created container.
    pub async fn start_container(&self, request: &StartContainerRequest) -> Result<(), GuestError> {
        within("StartContainer", LONG, self.client.start_container(context(LONG), request)).await.map(drop)
    }

    /// Changes a container's limits, all of them or none.
    pub async fn update_container(&self, request: &UpdateContainerRequest) -> Result<(), GuestError> {
        within("UpdateContainer", LONG, self.client.update_container(context(LONG), request)).await.map(drop)
    }

    /// Takes on the processors and the memory device that the machine was given.
    pub async fn resize_pod(&self, request: &ResizePodRequest) -> Result<(), GuestError> {
        within("ResizePod", LONG, self.client.resize_pod(context(LONG), request)).await.map(drop)
    }

    /// Ends and forgets a container; an unknown one is no error.
    pub async fn remove_container(&self, request: &RemoveContainerRequest) -> Result<(), GuestError> {
        within("RemoveContainer", LONG, self.client.remove_container(context(LONG), request)).await.map(drop)
    }

    /// Starts one more process in a running container.
    pub async fn exec(&self, request: &ExecRequest) -> Result<(), GuestError> {
        within("Exec", LONG, self.client.exec(context(LONG), request)).await.map(drop)
    }

    /// How a process ended, once it has. No deadline: it may run for years.
    pub async fn wait(&self, request: &WaitRequest) -> Result<WaitResponse, GuestError> {
        let answer = self.client.wait(Context::default(), request).await;
        answer.map_err(|error| GuestError::from_ttrpc("Wait", error))
    }

    /// Signals a process, or all of a container's.
    pub async fn signal(&self, request: &SignalRequest) -> Result<(), GuestError> {
        within("Signal", SHORT, self.client.signal(context(SHORT), request)).await.map(drop)
    }

    /// The guest's memory and processes.
    pub async fn stats(&self) -> Result<StatsResponse, GuestError> {
        within("Stats", SHORT, self.client.stats(context(SHORT), &StatsRequest::default())).await
    }

    /// What containers and interfaces have used.
    pub async fn usage(&self) -> Result<UsageResponse, GuestError> {
        within("Usage", SHORT, self.client.usage(context(SHORT), &UsageRequest::default())).await
    }

    /// Ends all containers and lets go of the disk.
    pub async fn shutdown(&self) -> Result<(), GuestError> {
        let request = ShutdownRequest::default();
        within("Shutdown", SHORT, self.client.shutdown(context(SHORT), &request)).await.map(drop)
    }

    /// Opens the output of a container's first process from byte `offset` on; what is before it counts as
    /// acknowledged. A newer stream of the same output ends an older one.
    pub async fn output(
        &self,
        container_id: &str,
        kind: StreamKind,
        offset: u64,
    ) -> Result<OutputStream, GuestError> {
        let container_id = container_id.to_owned();
        let open = StreamOpen { container_id, kind: kind.into(), offset, ..Default::default() };
        Ok(OutputStream::new(self.open(&open).await?))
    }

    /// Opens the output of a command, for reading only and only once. To close it before its end is to hang up on
    /// the command.
    pub async fn exec_output(
        &self,
        container_id: &str,
        exec_id: &str,
        kind: StreamKind,
    ) -> Result<UnixStream, GuestError> {
        let (container_id, exec_id) = (container_id.to_owned(), exec_id.to_owned());
        let open = StreamOpen { container_id, exec_id, kind: kind.into(), ..Default::default() };
        self.open(&open).await
    }

    /// Opens a process's stdin.
    pub async fn input(&self, container_id: &str, exec_id: &str) -> Result<InputStream, GuestError> {
        let open = StreamOpen {
            container_id: container_id.to_owned(),
            exec_id: exec_id.to_owned(),
            kind: StreamKind::STREAM_KIND_STDIN.into(),
            ..Default::default()
        };
        Ok(InputStream::new(self.open(&open).await?))
    }

    /// Connects to a TCP port of the pod's loopback. Each side's half-close is passed on.
    pub async fn port(&self, port: u16) -> Result<UnixStream, GuestError> {
        let open = StreamOpen {
            kind: StreamKind::STREAM_KIND_PORT.into(),
            port: u32::from(port),
            ..Default::default()
        };
        self.open(&open).await
    }

    async fn open(&self, open: &StreamOpen) -> Result<UnixStream, GuestError> {
        const METHOD: &str = "open stream";
        let mut stream = dial(METHOD, &self.socket, port::STREAM).await?;
        frames::write(METHOD, &mut stream, open).await?;
        let opened: StreamOpened = frames::read(METHOD, &mut stream).await?;
        if opened.error.is_empty() {
            return Ok(stream);
        }
        let (message, code) = (opened.error, RefusedCode::Other);
        Err(GuestError::Refused { method: METHOD, message, code, reason: None })
    }
}

/// The deadline that the agent sees.
fn context(deadline: Duration) -> Context {
    Context { timeout_nano: i64::try_from(deadline.as_nanos()).unwrap_or(i64::MAX), ..Default::default() }
}

/// The deadline that we keep, whatever the agent does.
async fn within<T>(
    method: &'static str,
    deadline: Duration,
    call: impl Future<Output = ttrpc::Result<T>>,
) -> Result<T, GuestError> {
    match tokio::time::timeout(deadline, call).await {
        Ok(answer) => answer.map_err(|error| GuestError::from_ttrpc(method, error)),
        Err(_) => Err(GuestError::Deadline { method }),
    }
}
