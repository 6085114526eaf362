//! The client against a small fake guest: a unix socket with CONNECT, ttrpc and stream frames, like the VMM
//! and the agent.

#![allow(clippy::unwrap_used, reason = "the fake guest's functions are test code too")]

use std::error::Error as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use proto_agent::agent::{self, *};
use proto_agent::agent_ttrpc::{Agent, create_agent};
use proto_agent::{RECLAIMED_BYTES_MAX, failure, frame, port, version};
use runtime_guest::{FailureReason, Guest, GuestError, RefusedCode, SignalTarget, ready};
use runtime_spec::{ContainerSlots, Signal, StartFailure};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Notify, mpsc};
use ttrpc::r#async::TtrpcContext;
use ttrpc::asynchronous::transport::Listener;

#[allow(unreachable_pub, reason = "it is public in the fuzz targets' crate")]
#[path = "../../../tests/fuzz/src/plan.rs"]
mod plan;

use plan::plan;

/// Answers as an agent with one container, `c1`, already exited with 3.
struct FakeAgent {
    /// Its only version of the protocol.
    protocol: u32,
}

fn status(code: ttrpc::Code, message: &str) -> ttrpc::Error {
    ttrpc::Error::RpcStatus(ttrpc::get_status(code, message))
}

#[async_trait]
impl Agent for FakeAgent {
    async fn hello(&self, _: &TtrpcContext, request: HelloRequest) -> ttrpc::Result<HelloResponse> {
        assert_eq!(request.protocol_newest, version::NEWEST);
        let (protocol_oldest, protocol_newest) = (self.protocol, self.protocol);
        Ok(HelloResponse { protocol_oldest, protocol_newest, ..Default::default() })
    }

    async fn configure_pod(
        &self,
        _: &TtrpcContext,
        request: ConfigurePodRequest,
    ) -> ttrpc::Result<ConfigurePodResponse> {
        assert_eq!(request.protocol_newest, version::NEWEST);
        Ok(ConfigurePodResponse {
            network_settings_known: true,
            nft_failures: request
                .nft_tables
                .iter()
                .zip(0..)
                .map(|(_, number)| (number, "no".into()))
                .collect(),
            ..Default::default()
        })
    }

    async fn create_container(
        &self,
        _: &TtrpcContext,
        request: CreateContainerRequest,
    ) -> ttrpc::Result<CreateContainerResponse> {
        if request.user == "nobody" {
            return Err(status(ttrpc::Code::INVALID_ARGUMENT, "user `nobody` is not there"));
        }
        // Users of a lying guest.
        let groups: usize = match request.user.as_str() {
            "chatty" => return Err(status(ttrpc::Code::INVALID_ARGUMENT, &"no\x1b[2J".repeat(10_000))),
            "grouped" => 65_537,
            "flooding" => 1 << 20,
            _ => 0,
        };
        let supplemental_groups = vec![1; groups];
        Ok(CreateContainerResponse {
            uid: 7,
            gid: request.image_slot,
            supplemental_groups,
            ..Default::default()
        })
    }

    async fn start_container(&self, _: &TtrpcContext, _: StartContainerRequest) -> ttrpc::Result<Empty> {
        let reason = agent::FailureReason::FAILURE_REASON_EXECUTABLE_NOT_FOUND;
        let status = failure::status(ttrpc::Code::NOT_FOUND, "executable file `x` not found", reason);
        Err(ttrpc::Error::RpcStatus(status))
    }

    async fn signal(&self, _: &TtrpcContext, _: SignalRequest) -> ttrpc::Result<SignalResponse> {
        Ok(SignalResponse { killed: (0..5000).collect(), ..Default::default() })
    }

    async fn reclaim(&self, _: &TtrpcContext, _: ReclaimRequest) -> ttrpc::Result<ReclaimResponse> {
        Ok(ReclaimResponse { reclaimed: u64::MAX, ..Default::default() })
    }

    async fn wait(&self, _: &TtrpcContext, _: WaitRequest) -> ttrpc::Result<WaitResponse> {
        let reason = ExitReason::EXIT_REASON_ERROR.into();
        Ok(WaitResponse { exit_code: 3, reason, ..Default::default() })
    }
}

/// Serves a stream connection once it is open.
async fn serve_stream(mut stream: UnixStream) {
    let mut header = [0; frame::HEADER_BYTES];
    stream.read_exact(&mut header).await.unwrap();
    let mut body = vec![0; frame::body_bytes(header).unwrap()];
    stream.read_exact(&mut body).await.unwrap();
    let open: StreamOpen = frame::decode(&body).unwrap();
    let known = open.container_id == "c1";
    let error = if known { String::new() } else { "there is no container".to_owned() };
    let opened = StreamOpened { error, ..Default::default() };
    stream.write_all(&frame::encode(&opened).unwrap()).await.unwrap();
    match open.kind.enum_value_or_default() {
        StreamKind::STREAM_KIND_STDIN => {
            // Echoes the input, reversed, after the half-close: proof of both.
            let mut text = Vec::new();
            stream.read_to_end(&mut text).await.unwrap();
            std::fs::write(std::env::temp_dir().join(format!("podvisor-guest-{}", std::process::id())), text)
                .unwrap();
        }
        _ if known => {
            let text = b"0123456789";
            let from = usize::try_from(open.offset).unwrap();
            stream.write_all(&text[from..]).await.unwrap();
            let total = stream.read_u64_le().await.unwrap();
            assert_eq!(total, 10);
            stream.shutdown().await.unwrap();
        }
        _ => {}
    }
}

/// Listens as the VMM does.
fn start(dir: &Path) -> PathBuf {
    start_speaking(dir, version::NEWEST)
}

fn start_speaking(dir: &Path, protocol: u32) -> PathBuf {
    let path = dir.join("vsock.sock");
    let listener = UnixListener::bind(&path).unwrap();
    let (rpc, connections) = mpsc::channel::<std::io::Result<UnixStream>>(8);
    let incoming = tokio_stream_of(connections);
    tokio::spawn(async move {
        let service = create_agent(Arc::new(FakeAgent { protocol }));
        let mut server = ttrpc::asynchronous::Server::new()
            .add_listener(Listener::new(incoming))
            .register_service(service);
        server.start().await.unwrap();
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut line = String::new();
            while !line.ends_with('\n') {
                line.push(char::from(stream.read_u8().await.unwrap()));
            }
            let wanted: u32 = line.trim().strip_prefix("CONNECT ").unwrap().parse().unwrap();
            match wanted {
                port::RPC => {
                    stream.write_all(b"OK 1073741824\n").await.unwrap();
                    rpc.send(Ok(stream)).await.unwrap();
                }
                port::STREAM => {
                    stream.write_all(b"OK 1073741825\n").await.unwrap();
                    tokio::spawn(serve_stream(stream));
                }
                _ => stream.write_all(b"NO\n").await.unwrap(),
            }
        }
    });
    path
}

fn tokio_stream_of(
    mut receiver: mpsc::Receiver<std::io::Result<UnixStream>>,
) -> impl futures::Stream<Item = std::io::Result<UnixStream>> + Send {
    futures::stream::poll_fn(move |context| receiver.poll_recv(context))
}

#[tokio::test]
async fn answers_and_refusals_come_through() {
    let dir = tempfile::tempdir().unwrap();
    let guest = Guest::connect(&start(dir.path())).await.unwrap();
    let slots = ContainerSlots { image: 4, ..ContainerSlots::default() };
    let created = guest.create_container(&plan("app"), &slots).await.unwrap();
    assert_eq!((created.uid, created.gid), (7, 4));
    let refused = guest.create_container(&plan("nobody"), &slots).await.unwrap_err();
    assert_eq!(refused.refused(), Some(RefusedCode::InvalidArgument));
    assert!(refused.source().unwrap().to_string().contains("user `nobody`"));
    let missing = guest.start_container("c1").await.unwrap_err();
    assert_eq!(missing.refused(), Some(RefusedCode::NotFound));
    assert_eq!(missing.reason(), Some(FailureReason::Start(StartFailure::ExecutableNotFound)));
    assert_eq!(refused.reason(), None);
    let exit = guest.wait("c1", "").await.unwrap();
    assert_eq!((exit.exit_code, exit.reason), (3, runtime_spec::ExitReason::Error));
}

#[tokio::test]
async fn what_a_guest_that_lies_answers_is_bounded() {
    let dir = tempfile::tempdir().unwrap();
    let guest = Guest::connect(&start(dir.path())).await.unwrap();
    let slots = ContainerSlots::default();
    let create = async |user: &str| guest.create_container(&plan(user), &slots).await;
    let chatty = create("chatty").await.unwrap_err().source().unwrap().to_string();
    assert!(
        chatty.contains("no[2Jno") && !chatty.contains('\x1b') && chatty.len() < 4200,
        "{}",
        chatty.len()
    );
    let grouped = create("grouped").await.unwrap_err();
    assert!(matches!(grouped, GuestError::Protocol { .. }), "{grouped}");
    assert!(grouped.to_string().contains("65537 groups"), "{grouped}");
    let killed = guest.signal("c1", SignalTarget::Container, Signal(9)).await.unwrap();
    assert_eq!(killed.len(), 4096);
    assert_eq!(guest.reclaim().await.unwrap(), RECLAIMED_BYTES_MAX);
    // A message of a MiB is not taken in, and the next call has a connection again.
    let flooding = create("flooding").await.unwrap_err();
    assert!(matches!(flooding, GuestError::Unreachable { .. }), "{flooding}");
    assert_eq!(create("app").await.unwrap().uid, 7);
}

#[tokio::test]
async fn an_output_stream_goes_on_at_its_offset_and_ends_when_all_is_acknowledged() {
    let dir = tempfile::tempdir().unwrap();
    let guest = Guest::connect(&start(dir.path())).await.unwrap();
    let mut output = guest.output("c1", StreamKind::STREAM_KIND_STDOUT, 4).await.unwrap();
    let mut text = [0; 6];
    output.read_exact(&mut text).await.unwrap();
    assert_eq!(&text, b"456789");
    output.acknowledge(10).await.unwrap();
    assert_eq!(output.read(&mut text).await.unwrap(), 0);
}

#[tokio::test]
async fn a_stream_that_does_not_open_says_why() {
    let dir = tempfile::tempdir().unwrap();
    let guest = Guest::connect(&start(dir.path())).await.unwrap();
    let error = guest.output("c2", StreamKind::STREAM_KIND_STDERR, 0).await.unwrap_err();
    assert!(matches!(error, GuestError::Refused { ref message, .. } if message.0 == "there is no container"));
}

#[tokio::test]
async fn input_reaches_the_guest_as_records_in_their_order() {
    let dir = tempfile::tempdir().unwrap();
    let guest = Guest::connect(&start(dir.path())).await.unwrap();
    let mut input = guest.input("c1", "").await.unwrap();
    input.resize(80, 24).await.unwrap();
    input.write(b"typed").await.unwrap();
    input.end().await.unwrap();
    drop(input);
    let file = std::env::temp_dir().join(format!("podvisor-guest-{}", std::process::id()));
    while !std::fs::read(&file).is_ok_and(|text| text == b"\x01\x50\0\x18\0\0\x05\0\0\0typed\x02\0\0\0\0") {
        tokio::task::yield_now().await;
    }
    std::fs::remove_file(file).unwrap();
}

#[tokio::test]
async fn a_guest_that_is_not_there_is_unreachable() {
    let dir = tempfile::tempdir().unwrap();
    let error = Guest::connect(&dir.path().join("none")).await.unwrap_err();
    assert!(matches!(error, GuestError::Unreachable { .. }));
}

/// Leads connections to another socket, until they are cut.
fn lead(dir: &Path, to: PathBuf) -> (PathBuf, Arc<Notify>) {
    let (path, cut) = (dir.join("leading.sock"), Arc::new(Notify::new()));
    let (listener, cut_here) = (UnixListener::bind(&path).unwrap(), cut.clone());
    tokio::spawn(async move {
        loop {
            let (mut from, _) = listener.accept().await.unwrap();
            let (mut to, cut) = (UnixStream::connect(&to).await.unwrap(), cut_here.clone());
            tokio::spawn(async move {
                tokio::select! {
                    _ = tokio::io::copy_bidirectional(&mut from, &mut to) => {}
                    () = cut.notified() => {}
                }
            });
        }
    });
    (path, cut)
}

#[tokio::test]
async fn a_connection_that_broke_is_made_anew_by_the_next_call() {
    let dir = tempfile::tempdir().unwrap();
    let (socket, cut) = lead(dir.path(), start(dir.path()));
    let guest = Guest::connect(&socket).await.unwrap();
    guest.wait("c1", "").await.unwrap();
    cut.notify_waiters();
    // Only the first call on it fails.
    let broken = guest.wait("c1", "").await.unwrap_err();
    assert!(matches!(broken, GuestError::Unreachable { .. }), "{broken}");
    guest.wait("c1", "").await.unwrap();
    guest.clone().wait("c1", "").await.unwrap();
}

#[tokio::test]
async fn readiness_is_one_frame_and_noise_is_refused() {
    let (mut guest, host) = UnixStream::pair().unwrap();
    let sent = AgentReady {
        agent_version: "1".into(),
        ready_ns: 5,
        protocol_oldest: version::OLDEST,
        protocol_newest: version::NEWEST + 1,
        ..Default::default()
    };
    guest.write_all(&frame::encode(&sent).unwrap()).await.unwrap();
    assert_eq!(ready(host).await.unwrap(), sent);

    let (mut guest, host) = UnixStream::pair().unwrap();
    guest.write_all(&[0xff; 64]).await.unwrap();
    assert!(matches!(ready(host).await, Err(GuestError::Protocol { .. })));
    let (guest, host) = UnixStream::pair().unwrap();
    drop(guest);
    assert!(matches!(ready(host).await, Err(GuestError::Unreachable { .. })));
}

#[tokio::test]
async fn a_guest_of_another_protocol_is_refused_by_both_versions() {
    let (mut guest, host) = UnixStream::pair().unwrap();
    // An agent from before versions were stated.
    let old = AgentReady { agent_version: "0".into(), ..Default::default() };
    guest.write_all(&frame::encode(&old).unwrap()).await.unwrap();
    let error = ready(host).await.unwrap_err();
    assert!(error.to_string().contains("the agent speaks version 0 "), "{error}");

    let dir = tempfile::tempdir().unwrap();
    let error = Guest::reconnect(&start_speaking(dir.path(), version::NEWEST + 1)).await.unwrap_err();
    assert!(matches!(error, GuestError::Version(_)), "{error}");
    let dir = tempfile::tempdir().unwrap();
    let guest = Guest::reconnect(&start(dir.path())).await.unwrap();
    guest.configure_pod(ConfigurePodRequest::default()).await.unwrap();
}

#[tokio::test]
async fn settings_that_a_guest_does_not_take_come_back_by_their_place() {
    let dir = tempfile::tempdir().unwrap();
    let guest = Guest::connect(&start(dir.path())).await.unwrap();
    let request = ConfigurePodRequest { nft_tables: vec![Default::default(); 2], ..Default::default() };
    let replayed = guest.configure_pod(request).await.unwrap();
    assert!(replayed.known && replayed.sysctl_failures.is_empty());
    assert_eq!(replayed.nft_failures, [(0, "no".to_owned()), (1, "no".to_owned())]);
}
