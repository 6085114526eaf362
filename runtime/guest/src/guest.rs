//! The calls, one method per RPC of `agent.proto`, their contract.
//!
//! Plans of `runtime-spec` go in and come out as wire messages by `convert.rs`, the only conversion between
//! the daemon's types and the agent's.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use proto_agent::agent::{
    AgentReady, AttachHostSocketsRequest, ConfigurePodRequest, HelloRequest, HelloResponse,
    PreparePodRequest, PublishVolumeRequest, ReclaimRequest, RemoveContainerRequest, ResizePodRequest,
    ResizeVolumeRequest, ShutdownRequest, StartContainerRequest, StatsRequest, StatsResponse, StreamKind,
    StreamOpen, StreamOpened, UpdateContainerRequest, UsageRequest, UsageResponse, WaitRequest, Wake,
};
use proto_agent::agent_ttrpc::AgentClient;
use proto_agent::{RECLAIMED_BYTES_MAX, port, version};
use runtime_fail_points::{Point, pass_async};
use runtime_spans::{GuestText, span, step};
use runtime_spec::{ContainerPlan, ContainerSlots, ExecPlan, Signal, User, VolumeLimits};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::net::UnixStream;
use ttrpc::context::Context;

use crate::connect::dial;
use crate::convert;
use crate::error::{GuestError, RefusedCode};
use crate::frames;
use crate::input::InputStream;
use crate::link::Link;
use crate::output::OutputStream;
use crate::process::{ProcessExit, SignalTarget};
use crate::published::PublishedVersion;
use crate::settings::ReplayedSettings;
use crate::text::{REFUSAL_CHARS_MAX, printable};

/// The first call to a guest left by an earlier daemon. All of a node's guests are called at once then, so a
/// healthy one may answer late. A guest that does not answer is ended.
const HELLO: Duration = Duration::from_secs(30);
/// Calls with little work: a guest that takes longer hangs.
const SHORT: Duration = Duration::from_secs(15);
/// Calls that mount, build or end containers: above the agent's own bounds for each step.
const LONG: Duration = Duration::from_secs(120);

/// Most supplementary groups of a process: `NGROUPS_MAX` (include/uapi/linux/limits.h).
const GROUPS_MAX: usize = 65_536;

/// Most processes in the answer to a signal (`agent.proto`). The daemon sends them on to the VMM, in one
/// packet.
const KILLED_MAX: usize = 4096;

/// Reads the agent's ready frame from the stream opened by the guest. An agent of another protocol is
/// refused.
pub async fn ready(mut stream: impl AsyncRead + Unpin) -> Result<AgentReady, GuestError> {
    read_ready(&mut stream).await
}

/// Reads the ready frame as [`ready`] does, and waits until the agent has ended the stream.
///
/// # Errors
/// The agent sends another message, or does not end the stream in time.
pub async fn ready_and_done(mut stream: impl AsyncRead + Unpin) -> Result<(), GuestError> {
    let method = "ready";
    read_ready(&mut stream).await?;
    match tokio::time::timeout(SHORT, stream.read(&mut [0])).await {
        Ok(Ok(0)) => Ok(()),
        Ok(Ok(_)) => Err(GuestError::Protocol { method, message: "more than one message".to_owned() }),
        Ok(Err(source)) => Err(GuestError::Unreachable { method, source }),
        Err(_) => Err(GuestError::Deadline { method }),
    }
}

async fn read_ready(stream: &mut (impl AsyncRead + Unpin)) -> Result<AgentReady, GuestError> {
    let ready: AgentReady = frames::read("ready", stream).await?;
    version::check_agent(ready.protocol_oldest, ready.protocol_newest)?;
    Ok(ready)
}

/// Wakes a guest restored from a template, through its VMM's vsock socket. The guest then reports [`ready`],
/// as a booted one does. No other guest may get the same `random_seed`.
///
/// # Errors
/// The guest does not take the message in time.
pub async fn wake(vsock_path: &Path, random_seed: &[u8; 64]) -> Result<(), GuestError> {
    reach(Point::AgentWake, "wake").await?;
    let mut stream = dial("wake", vsock_path, port::WAKE).await?;
    let message = Wake { random_seed: random_seed.to_vec(), ..Wake::default() };
    frames::write("wake", &mut stream, &message).await?;
    // The guest closes the stream once it has the message. Hanging up earlier would discard the message.
    let mut rest = [0];
    match tokio::time::timeout(SHORT, stream.read(&mut rest)).await {
        Ok(_) => Ok(()),
        Err(_) => Err(GuestError::Deadline { method: "wake" }),
    }
}

/// One guest's agent. Clones share the connection.
#[derive(Clone)]
pub struct Guest {
    link: Arc<Link>,
}

impl std::fmt::Debug for Guest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Guest").field("socket", &self.link.socket()).finish_non_exhaustive()
    }
}

impl Guest {
    /// Connects to the agent behind the VMM's vsock socket, after its [`ready`] frame.
    pub async fn connect(vsock_path: &Path) -> Result<Guest, GuestError> {
        reach(Point::AgentConnect, "connect").await?;
        let link = Arc::new(Link::new(vsock_path));
        link.client("connect").await?;
        Ok(Guest { link })
    }

    /// Connects to an agent configured by an earlier daemon. An agent of another protocol is refused.
    pub async fn reconnect(vsock_path: &Path) -> Result<Guest, GuestError> {
        let guest = Guest::connect(vsock_path).await?;
        let (protocol_oldest, protocol_newest) = (version::OLDEST, version::NEWEST);
        let request = HelloRequest { protocol_oldest, protocol_newest, ..Default::default() };
        let call = async move |client: AgentClient| client.hello(context(HELLO), &request).await;
        check_hello(guest.call(Point::AgentHello, "Hello", HELLO, call).await)?;
        Ok(guest)
    }

    /// Does the work common to all pods, in a guest waiting for one. The agent's version is at least
    /// [`PREPARE`](version::PREPARE).
    pub async fn prepare_pod(&self, request: PreparePodRequest) -> Result<(), GuestError> {
        let call = async |client: AgentClient| client.prepare_pod(context(LONG), &request).await;
        self.call(Point::AgentPreparePod, "PreparePod", LONG, call).await.map(drop)
    }

    /// Names, files, network, disk, seed and clock: the first call. Returns the outcome for the network's
    /// settings.
    pub async fn configure_pod(
        &self,
        mut request: ConfigurePodRequest,
    ) -> Result<ReplayedSettings, GuestError> {
        (request.protocol_oldest, request.protocol_newest) = (version::OLDEST, version::NEWEST);
        let call = async |client: AgentClient| client.configure_pod(context(LONG), &request).await;
        let response = self.call(Point::AgentConfigurePod, "ConfigurePod", LONG, call).await?;
        Ok(ReplayedSettings::of(response))
    }

    /// Creates a container and holds it before exec. Returns the user found in the image by the agent.
    pub async fn create_container(
        &self,
        plan: &ContainerPlan,
        slots: &ContainerSlots,
    ) -> Result<User, GuestError> {
        const METHOD: &str = "CreateContainer";
        let request = convert::create_container(METHOD, plan, slots)?;
        let answer = self
            .call(Point::AgentCreateContainer, METHOD, LONG, async |client: AgentClient| {
                client.create_container(context(LONG), &request).await
            })
            .await?;
        let groups = answer.supplemental_groups;
        if groups.len() > GROUPS_MAX {
            let message =
                format!("a user of {} groups, and the kernel has {GROUPS_MAX} at most", groups.len());
            return Err(GuestError::Protocol { method: METHOD, message });
        }
        Ok(User { uid: answer.uid, gid: answer.gid, groups })
    }

    /// Mounts a container's sockets of the node over their recreated files.
    pub async fn attach_host_sockets(&self, container_id: &str) -> Result<(), GuestError> {
        let request =
            AttachHostSocketsRequest { container_id: container_id.to_owned(), ..Default::default() };
        self.call(Point::AgentAttachHostSockets, "AttachHostSockets", LONG, async |client: AgentClient| {
            client.attach_host_sockets(context(LONG), &request).await
        })
        .await
        .map(drop)
    }

    /// Releases a created container.
    pub async fn start_container(&self, container_id: &str) -> Result<(), GuestError> {
        let request = StartContainerRequest { container_id: container_id.to_owned(), ..Default::default() };
        self.call(Point::AgentStartContainer, "StartContainer", LONG, async |client: AgentClient| {
            client.start_container(context(LONG), &request).await
        })
        .await
        .map(drop)
    }

    /// Writes these files of a container's cgroup, all of them or none.
    pub async fn update_container(
        &self,
        container_id: &str,
        cgroup_files: BTreeMap<String, String>,
    ) -> Result<(), GuestError> {
        let request = UpdateContainerRequest {
            container_id: container_id.to_owned(),
            cgroup_files: cgroup_files.into_iter().collect(),
            ..Default::default()
        };
        self.call(Point::AgentUpdateContainer, "UpdateContainer", LONG, async |client: AgentClient| {
            client.update_container(context(LONG), &request).await
        })
        .await
        .map(drop)
    }

    /// Brings `vcpus` processors up, and binds the memory device if the VM has one in a slot.
    pub async fn resize_pod(&self, vcpus: u8, memory_slot: Option<u8>) -> Result<(), GuestError> {
        let request = ResizePodRequest {
            vcpus: u32::from(vcpus),
            memory_slot: u32::from(memory_slot.unwrap_or_default()),
            ..Default::default()
        };
        self.call(Point::AgentResizePod, "ResizePod", LONG, async |client: AgentClient| {
            client.resize_pod(context(LONG), &request).await
        })
        .await
        .map(drop)
    }

    /// Sends a version of a published volume. It replaces the old one once it is complete. A version already
    /// in the guest is not sent.
    pub async fn publish_volume(&self, version: &PublishedVersion) -> Result<(), GuestError> {
        // A different number for each transfer to one guest: its transfers come one after another.
        let transfer = u64::try_from(realtime_ns()).unwrap_or_default();
        if self.publish_piece(&version.begin(transfer)).await? {
            return Ok(());
        }
        for piece in version.pieces(transfer) {
            self.publish_piece(&piece).await?;
        }
        Ok(())
    }

    /// Returns whether the guest has the version and needs no further pieces.
    async fn publish_piece(&self, piece: &PublishVolumeRequest) -> Result<bool, GuestError> {
        let call = async |client: AgentClient| client.publish_volume(context(SHORT), piece).await;
        Ok(self.call(Point::AgentPublishVolume, "PublishVolume", SHORT, call).await?.current)
    }

    /// Gives a memory volume of the pod other bounds.
    pub async fn resize_volume(&self, volume: &str, limits: VolumeLimits) -> Result<(), GuestError> {
        let request = ResizeVolumeRequest {
            volume: volume.to_owned(),
            limits: Some(convert::volume_limits(limits)).into(),
            ..Default::default()
        };
        self.call(Point::AgentResizeVolume, "ResizeVolume", SHORT, async |client: AgentClient| {
            client.resize_volume(context(SHORT), &request).await
        })
        .await
        .map(drop)
    }

    /// Kills the rest of a container and forgets it. An unknown container is no error.
    pub async fn remove_container(&self, container_id: &str) -> Result<(), GuestError> {
        let request = RemoveContainerRequest { container_id: container_id.to_owned(), ..Default::default() };
        self.call(Point::AgentRemoveContainer, "RemoveContainer", LONG, async |client: AgentClient| {
            client.remove_container(context(LONG), &request).await
        })
        .await
        .map(drop)
    }

    /// Starts one more process in a running container. `exec_id` is the caller's choice and not empty. Its
    /// program does not begin later than `within` after the call has reached the agent, and never later than
    /// the agent's own bound. An older agent knows only the latter.
    pub async fn exec(
        &self,
        container_id: &str,
        exec_id: &str,
        plan: &ExecPlan,
        within: Option<Duration>,
    ) -> Result<(), GuestError> {
        const METHOD: &str = "Exec";
        let request = convert::exec(METHOD, container_id, exec_id, plan, within)?;
        self.call(Point::AgentExec, METHOD, LONG, async |client: AgentClient| {
            client.exec(context(LONG), &request).await
        })
        .await
        .map(drop)
    }

    /// Waits for a process's end; an empty `exec_id` names the container's first process. The call has no
    /// deadline, since the process may run for years.
    pub async fn wait(&self, container_id: &str, exec_id: &str) -> Result<ProcessExit, GuestError> {
        let request = WaitRequest {
            container_id: container_id.to_owned(),
            exec_id: exec_id.to_owned(),
            ..Default::default()
        };
        reach(Point::AgentWait, "Wait").await?;
        let call = async |client: AgentClient| client.wait(Context::default(), &request).await;
        Ok(convert::process_exit(&self.link.call("Wait", call).await?))
    }

    /// Sends a signal to a process, or to all of a container's. Ended processes are no error. Returns the
    /// processes that survived a SIGKILL so far, according to the agent, by their ids in the guest, at most
    /// 4096.
    pub async fn signal(
        &self,
        container_id: &str,
        target: SignalTarget<'_>,
        signal: Signal,
    ) -> Result<Vec<u32>, GuestError> {
        let request = convert::signal(container_id, target, signal);
        self.call(Point::AgentSignal, "Signal", SHORT, async |client: AgentClient| {
            client.signal(context(SHORT), &request).await
        })
        .await
        .map(|answer| {
            let mut killed = answer.killed;
            killed.truncate(KILLED_MAX);
            killed
        })
    }

    /// The guest's memory, processes and clock.
    pub async fn stats(&self) -> Result<StatsResponse, GuestError> {
        let request = StatsRequest { realtime_ns: realtime_ns(), ..Default::default() };
        self.call(Point::AgentStats, "Stats", SHORT, async |client: AgentClient| {
            client.stats(context(SHORT), &request).await
        })
        .await
    }

    /// Has the guest give back memory used for cached files, and returns the number of bytes, at most
    /// [`RECLAIMED_BYTES_MAX`]: a counter of the whole node adds it up.
    pub async fn reclaim(&self) -> Result<u64, GuestError> {
        let request = ReclaimRequest::default();
        self.call(Point::AgentReclaim, "Reclaim", SHORT, async |client: AgentClient| {
            client.reclaim(context(SHORT), &request).await
        })
        .await
        .map(|answer| answer.reclaimed.min(RECLAIMED_BYTES_MAX))
    }

    /// Usage of containers and interfaces up to now.
    pub async fn usage(&self) -> Result<UsageResponse, GuestError> {
        let request = UsageRequest { realtime_ns: realtime_ns(), ..Default::default() };
        self.call(Point::AgentUsage, "Usage", SHORT, async |client: AgentClient| {
            client.usage(context(SHORT), &request).await
        })
        .await
    }

    /// Ends all containers and releases the disk.
    pub async fn shutdown(&self) -> Result<(), GuestError> {
        let request = ShutdownRequest::default();
        self.call(Point::AgentShutdown, "Shutdown", SHORT, async |client: AgentClient| {
            client.shutdown(context(SHORT), &request).await
        })
        .await
        .map(drop)
    }

    /// Opens the output of a container's first process from byte `offset` on. Everything before counts as
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

    /// Opens the output of a command, only for reading and only once. Closing it before its end hangs up on
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

    /// Runs a call with our own deadline, independent of the agent.
    async fn call<T>(
        &self,
        point: Point,
        method: &'static str,
        deadline: Duration,
        call: impl AsyncFnOnce(AgentClient) -> ttrpc::Result<T>,
    ) -> Result<T, GuestError> {
        let span = span!(
            "agent",
            otel.name = format_args!("agent {method}"),
            otel.kind = "client",
            rpc.system = "ttrpc",
            rpc.method = method
        );
        let calling = async {
            reach(point, method).await?;
            match tokio::time::timeout(deadline, self.link.call(method, call)).await {
                Ok(answer) => answer,
                Err(_) => {
                    // A call cancelled during its write breaks its connection.
                    self.link.give_up().await;
                    Err(GuestError::Deadline { method })
                }
            }
        };
        step(span, calling).await
    }

    async fn open(&self, open: &StreamOpen) -> Result<UnixStream, GuestError> {
        const METHOD: &str = "open stream";
        reach(Point::AgentStream, METHOD).await?;
        let mut stream = dial(METHOD, self.link.socket(), port::STREAM).await?;
        frames::write(METHOD, &mut stream, open).await?;
        let opened: StreamOpened = frames::read(METHOD, &mut stream).await?;
        if opened.error.is_empty() {
            return Ok(stream);
        }
        let message = GuestText(printable(&opened.error, REFUSAL_CHARS_MAX));
        let code = RefusedCode::Other;
        Err(GuestError::Refused { method: METHOD, message, code, reason: None })
    }
}

/// Refuses an agent of another protocol. A missing answer is no refusal: a guest must not be given up just
/// because it is slow when the daemon comes back. Later calls detect a hanging one.
fn check_hello(answer: Result<HelloResponse, GuestError>) -> Result<(), GuestError> {
    match answer {
        Ok(answer) => Ok(version::check_agent(answer.protocol_oldest, answer.protocol_newest)?),
        Err(GuestError::Deadline { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}

/// The host's clock, followed by the guest's; 0 if it is not credible.
fn realtime_ns() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_nanos()).unwrap_or_default()
}

/// The deadline as the agent sees it.
fn context(deadline: Duration) -> Context {
    Context { timeout_nano: i64::try_from(deadline.as_nanos()).unwrap_or(i64::MAX), ..Default::default() }
}

/// Passes a point. A test's failure there counts as an unreachable guest.
async fn reach(point: Point, method: &'static str) -> Result<(), GuestError> {
    pass_async(point).await.map_err(GuestError::unreachable(method))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guest_that_says_nothing_is_not_refused_and_one_of_another_protocol_is() {
        check_hello(Err(GuestError::Deadline { method: "Hello" })).unwrap();
        let gone = GuestError::unreachable("Hello")(std::io::ErrorKind::ConnectionReset.into());
        assert!(matches!(check_hello(Err(gone)), Err(GuestError::Unreachable { .. })));
        let newest = version::NEWEST;
        let speaking = |oldest, newest| {
            Ok(HelloResponse { protocol_oldest: oldest, protocol_newest: newest, ..Default::default() })
        };
        check_hello(speaking(newest, newest + 1)).unwrap();
        assert!(matches!(check_hello(speaking(newest + 1, newest + 1)), Err(GuestError::Version(_))));
    }
}
