//! A hostile guest's answers to each call of the daemon, at the VMM's vsock socket. The daemon's client
//! must come back with an answer within its bounds or with an error, in the time of the call's deadline.
//!
//! The clock is virtual. It moves on as soon as both sides wait, so a silent guest costs no time.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use proto_agent::agent::ConfigurePodRequest;
use proto_agent::port;
use protobuf::Message as _;
use runtime_guest::agent::StreamKind;
use runtime_guest::{
    Guest, GuestError, PublishedFile, PublishedVersion, SignalTarget, ready, ready_and_done,
};
use runtime_spec::{ContainerSlots, FileAccess, Signal, VolumeLimits};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::runtime::Builder;
use tokio::time::{Instant, sleep, timeout};

use crate::plan::plan;
use crate::script::Script;
use crate::texts::{check_error, check_text};

/// Calls of one script.
const CALLS_MAX: usize = 6;

/// Acts of the guest on one connection.
const ACTS_MAX: usize = 32;

/// Longest time of a call, in the virtual clock: a dial of 30 s and a deadline of 120 s.
const CALL_MAX: Duration = Duration::from_secs(151);

/// Longest time of `wait`. It ends with the guest's connection, after all silences of a script.
const WAIT_MAX: Duration = Duration::from_secs(100_000);

/// A guest's silence, beyond each deadline.
const SILENCE: Duration = Duration::from_secs(200);

/// Most groups of a user (`NGROUPS_MAX`).
const GROUPS_MAX: usize = 65_536;

/// Most processes in the answer to a signal (`agent.proto`).
const KILLED_MAX: usize = 4096;

/// Longest answer in bytes.
const ANSWER_BYTES_MAX: u64 = 256 << 10;

/// Bounds of the settings in the answer to `ConfigurePod`.
const FAILURES_MAX: usize = 64;
const REASON_CHARS_MAX: usize = 256;

/// Most bytes read from one output stream.
const OUTPUT_BYTES_MAX: u64 = 1 << 20;

/// Bytes of ttrpc's header: length, stream, type, flags (PROTOCOL.md).
const HEADER_BYTES: usize = 10;

/// ttrpc's type of an answer.
const RESPONSE: u8 = 2;

/// Runs a script, and fails if something does not hold.
pub fn run(input: &[u8]) {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let name = format!("podvisor-fuzz-agent-{}-{number}.sock", std::process::id());
    let path = std::env::temp_dir().join(name);
    let script = Script::new(input);
    let runtime = Builder::new_current_thread().enable_all().start_paused(true).build().expect("a runtime");
    runtime.block_on(async {
        let listener = UnixListener::bind(&path).expect("a socket");
        let guest = tokio::spawn(listen(listener, path.clone(), script.clone()));
        calls(&path, &script).await;
        guest.abort();
    });
    let _ = std::fs::remove_file(&path);
}

/// The guest behind its VMM's socket. Without a script it takes no connection.
async fn listen(listener: UnixListener, path: PathBuf, script: Script) {
    while let Ok((stream, _)) = listener.accept().await {
        if script.is_empty() {
            break;
        }
        tokio::spawn(serve(stream, script.clone()));
    }
    drop(listener);
    let _ = std::fs::remove_file(path);
}

async fn serve(mut stream: UnixStream, script: Script) -> Option<()> {
    let mut line = Vec::new();
    while line.last() != Some(&b'\n') && line.len() < 64 {
        line.push(stream.read_u8().await.ok()?);
    }
    let asked: u32 = std::str::from_utf8(&line).ok()?.trim().strip_prefix("CONNECT ")?.parse().ok()?;
    match script.below(16) {
        15 => stream.write_all(&script.bytes()).await.ok()?,
        _ => stream.write_all(b"OK 1\n").await.ok()?,
    }
    if asked == port::RPC { answer_calls(stream, &script).await } else { open(stream, &script).await }
}

/// A connection of calls.
async fn answer_calls(mut stream: UnixStream, script: &Script) -> Option<()> {
    let mut acts = 0;
    loop {
        let mut header = [0; HEADER_BYTES];
        // The daemon may wait for a guest without an answer. The guest then hangs up.
        timeout(SILENCE, stream.read_exact(&mut header)).await.ok()?.ok()?;
        let [a, b, c, d, ..] = header;
        let length = u32::from_be_bytes([a, b, c, d]) as usize;
        stream.read_exact(&mut vec![0; length]).await.ok()?;
        let id = u32::from_be_bytes([header[4], header[5], header[6], header[7]]);
        let mut is_answered = false;
        while !is_answered {
            acts += 1;
            if script.is_empty() || acts > ACTS_MAX {
                return None;
            }
            is_answered = act(&mut stream, id, script).await?;
        }
    }
}

/// One act of the guest after request `id`. Returns whether the request has its answer, `None` at a hang-up.
async fn act(stream: &mut UnixStream, id: u32, script: &Script) -> Option<bool> {
    let frame = |id: u32, kind: u8, flags: u8, body: &[u8]| {
        let length = u32::try_from(body.len()).unwrap_or(u32::MAX).to_be_bytes();
        [&length[..], &id.to_be_bytes(), &[kind, flags], body].concat()
    };
    let (bytes, is_answer) = match script.below(9) {
        0 => (frame(id, RESPONSE, 0, &field(2, &script.bytes())), true),
        1 => (frame(id, RESPONSE, 0, &field(2, &entries(script))), true),
        2 => (frame(id, RESPONSE, 0, &field(1, &refusal(script))), true),
        3 => (frame(id, RESPONSE, 0, &script.bytes()), true),
        4 => {
            let other = id.wrapping_add(u32::from(script.u8())).wrapping_sub(2);
            let (kind, flags) = (script.u8(), script.u8());
            (frame(other, kind, flags, &script.bytes()), false)
        }
        // A length of its own.
        5 => ([&script.u32().to_be_bytes()[..], &script.bytes()].concat(), false),
        6 => (script.bytes(), false),
        7 => {
            sleep(SILENCE).await;
            return Some(true);
        }
        _ => return None,
    };
    stream.write_all(&bytes).await.ok()?;
    Some(is_answer)
}

/// A status: code, message, and a reason in its details (status.proto and any.proto of google).
fn refusal(script: &Script) -> Vec<u8> {
    let (code, message) = (script.u8() % 20, script.text());
    let mut status = [vec![1 << 3, code], field(2, message.as_bytes())].concat();
    if script.below(2) == 1 {
        let reason = match script.below(4) {
            0 => script.bytes(),
            reason => vec![1 << 3, reason as u8],
        };
        let url = b"type.googleapis.com/podvisor.agent.v1.Failure";
        status.extend(field(3, &[field(1, url), field(2, &reason)].concat()));
    }
    status
}

/// One field many times: numbers or messages, around the product's bounds.
fn entries(script: &Script) -> Vec<u8> {
    let number = 1 + script.below(8) as u8;
    let times = [1, 65, 4097, 65_537, 140_000][script.below(5)];
    let entry = if script.below(2) == 0 {
        vec![number << 3, script.u8() & 0x7f]
    } else {
        let length = script.below(16);
        field(number, &script.take(length))
    };
    entry.repeat(times)
}

/// A field with a length, as protobuf has it.
fn field(number: u8, content: &[u8]) -> Vec<u8> {
    let mut bytes = vec![number << 3 | 2];
    let mut length = content.len();
    while length > 0x7f {
        bytes.push(length as u8 | 0x80);
        length >>= 7;
    }
    bytes.push(length as u8);
    bytes.extend(content);
    bytes
}

/// A byte stream's connection: the answer to its opening, and bytes.
async fn open(mut stream: UnixStream, script: &Script) -> Option<()> {
    let length = stream.read_u32_le().await.ok()? as usize;
    stream.read_exact(&mut vec![0; length]).await.ok()?;
    for _ in 0..ACTS_MAX {
        if script.is_empty() || !piece(&mut stream, script).await? {
            break;
        }
    }
    stream.shutdown().await.ok()?;
    // The daemon's bytes are read, so its writes do not wait.
    let mut rest = [0; 1024];
    while stream.read(&mut rest).await.is_ok_and(|count| count > 0) {}
    Some(())
}

/// One act on a stream of frames. Returns false at its end.
async fn piece(stream: &mut UnixStream, script: &Script) -> Option<bool> {
    let frame = |body: &[u8]| {
        let length = u32::try_from(body.len()).unwrap_or(u32::MAX).to_le_bytes();
        [&length[..], body].concat()
    };
    let bytes = match script.below(7) {
        0 => frame(&[]),
        1 => frame(&field(1, &script.bytes())),
        2 => frame(&script.bytes()),
        3 => [&script.u32().to_le_bytes()[..], &script.bytes()].concat(),
        4 => script.bytes(),
        5 => {
            sleep(SILENCE).await;
            return Some(true);
        }
        _ => return Some(false),
    };
    stream.write_all(&bytes).await.ok()?;
    Some(true)
}

/// The daemon's side.
async fn calls(path: &Path, script: &Script) {
    let mut guest = None;
    for _ in 0..CALLS_MAX {
        if script.is_empty() {
            return;
        }
        if guest.is_none() {
            let connecting = async {
                if script.below(2) == 0 { Guest::connect(path).await } else { Guest::reconnect(path).await }
            };
            guest = within(CALL_MAX, connecting).await;
        }
        match (script.below(20), &guest) {
            (0, _) => is_ready(script).await,
            (1, _) => drop(within(CALL_MAX, runtime_guest::wake(path, &[7; 64])).await),
            (call_number, Some(guest)) => call(call_number, guest).await,
            (_, None) => {}
        }
    }
}

/// The ready frame on a stream of its own.
async fn is_ready(script: &Script) {
    let (here, mut there) = UnixStream::pair().expect("a pair");
    let is_done_asked = script.below(2) == 1;
    let guest = async move {
        for _ in 0..ACTS_MAX {
            if script.is_empty() || piece(&mut there, script).await != Some(true) {
                break;
            }
        }
    };
    let daemon = async {
        if is_done_asked {
            within(CALL_MAX, ready_and_done(here)).await;
        } else if let Some(ready) = within(CALL_MAX, ready(here)).await {
            assert!(ready.compute_size() <= u64::from(proto_agent::FRAME_BYTES_MAX));
        }
    };
    tokio::join!(guest, daemon);
}

async fn call(number: usize, guest: &Guest) {
    let stdout = StreamKind::STREAM_KIND_STDOUT;
    match number {
        2 => {
            let (plan, slots) = (plan("u"), ContainerSlots::default());
            if let Some(user) = within(CALL_MAX, guest.create_container(&plan, &slots)).await {
                assert!(user.groups.len() <= GROUPS_MAX, "{} groups", user.groups.len());
            }
        }
        3 => {
            let configuring = guest.configure_pod(ConfigurePodRequest::default());
            for failures in within(CALL_MAX, configuring)
                .await
                .iter()
                .flat_map(|settings| [&settings.sysctl_failures, &settings.nft_failures])
            {
                assert!(failures.len() <= FAILURES_MAX, "{} failures", failures.len());
                failures.iter().for_each(|(_, reason)| check_text(reason, REASON_CHARS_MAX));
            }
        }
        4 => {
            if let Some(usage) = within(CALL_MAX, guest.usage()).await {
                assert!(usage.compute_size() <= ANSWER_BYTES_MAX, "{} bytes", usage.compute_size());
            }
        }
        5 => {
            if let Some(stats) = within(CALL_MAX, guest.stats()).await {
                assert!(stats.compute_size() <= ANSWER_BYTES_MAX, "{} bytes", stats.compute_size());
            }
        }
        6 => {
            let signalling = guest.signal("c", SignalTarget::Container, Signal(9));
            if let Some(killed) = within(CALL_MAX, signalling).await {
                assert!(killed.len() <= KILLED_MAX, "{} processes", killed.len());
            }
        }
        7 => drop(within(CALL_MAX, guest.start_container("c")).await),
        8 => drop(within(CALL_MAX, guest.publish_volume(&version())).await),
        9 => drop(within(CALL_MAX, guest.reclaim()).await),
        10 => drop(within(WAIT_MAX, guest.wait("c", "")).await),
        11 => {
            let opened = within(CALL_MAX, guest.output("c", stdout, 0)).await;
            let Some((reader, mut acknowledger)) = opened.map(runtime_guest::OutputStream::into_split) else {
                return;
            };
            let mut bytes = Vec::new();
            let mut reader = reader.take(OUTPUT_BYTES_MAX);
            let reading = timeout(WAIT_MAX, reader.read_to_end(&mut bytes)).await;
            let _ = reading.expect("the guest ends the stream");
            let _ = timeout(WAIT_MAX, acknowledger.acknowledge(bytes.len() as u64)).await;
        }
        12 => {
            let Some(mut input) = within(CALL_MAX, guest.input("c", "e")).await else { return };
            let _ = timeout(WAIT_MAX, input.resize(80, 24)).await.expect("the guest reads");
            let _ = timeout(WAIT_MAX, input.write(b"typed")).await.expect("the guest reads");
            let _ = timeout(WAIT_MAX, input.end()).await.expect("the guest reads");
        }
        13 => drop(within(CALL_MAX, guest.exec_output("c", "e", stdout)).await),
        14 => drop(within(CALL_MAX, guest.port(80)).await),
        15 => drop(within(CALL_MAX, guest.attach_host_sockets("c")).await),
        16 => drop(within(CALL_MAX, guest.resize_pod(2, Some(3))).await),
        17 => {
            let limits = VolumeLimits { bytes: 1, inodes: 1 };
            within(CALL_MAX, guest.resize_volume("v", limits)).await;
        }
        18 => drop(within(CALL_MAX, guest.remove_container("c")).await),
        _ => drop(within(CALL_MAX, guest.shutdown()).await),
    }
}

/// Waits for a call, checks the texts of its error, and returns its answer.
async fn within<T>(longest: Duration, call: impl Future<Output = Result<T, GuestError>>) -> Option<T> {
    let begin = Instant::now();
    let answer = timeout(longest, call).await;
    let answer = answer.unwrap_or_else(|_| panic!("no end after {:?}", begin.elapsed()));
    match answer {
        Ok(answer) => Some(answer),
        Err(error) => {
            check_error(&error);
            None
        }
    }
}

/// A volume of two pieces.
fn version() -> PublishedVersion {
    let access = FileAccess { mode: 0o640, uid: 0, gid: 0 };
    let content = Some(vec![1; 100 << 10]);
    PublishedVersion {
        volume: "v".into(),
        container_id: None,
        version: Some("..1".into()),
        root: access,
        top: access,
        files: vec![PublishedFile { path: "f".into(), access, content }],
    }
}
