//! Measures the rate of a command's output to a client of the streaming server, as a ratio to a bare vsock
//! stream of the same VM. The ratio shows the cost of the agent, the daemon and SPDY.
//!
//! ```text
//!   writer ─ pipe ─ agent ─ vsock ─ VMM ─ unix socket ─ daemon ─ TCP, SPDY ─ here      the command
//!   writer ──────────────── vsock ─ VMM ─ unix socket ───────────────────── here      the bare stream
//! ```
//!
//! The writer (`tests/bench/writer`) runs in one container and writes the same pieces to either. A figure
//! covers the bytes between the first and the last one received, so it excludes the command's start.
//!
//! The node has one processor, so the rate is that of all the stages' work together. The time of the busiest
//! of them is printed as well: with a processor for each, the busiest sets the rate.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use proto_cri::v1;
use runtime_streaming::client::{COMMAND, Event, dial};
use serde_json::json;
use tests_e2e::client::Client;
use tests_e2e::{Host, spec};
use tests_registry::Layer;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

use crate::figures::instructions;
use crate::median::median;
use crate::stages::{Busiest, Ran, Stages};

/// Bytes of each stream.
const BYTES: usize = 32 << 20;

/// Streams of each kind, in turns.
const ROUNDS: usize = 5;

/// Bytes per read from the bare stream: the largest vsock packet.
const PIECE_BYTES: usize = 64 * 1024;

/// The writer's vsock port in the guest: any except the agent's.
const PORT: u32 = 5000;

/// Tries until the writer listens, and the pause between two.
const DIALS_MAX: u32 = 100;
const DIAL_PAUSE: Duration = Duration::from_millis(50);

/// Digits of a pod's id in the name of its run directory.
const RUN_NAME_DIGITS: usize = 24;

/// The writer's path in its image.
const WRITER: &str = "/writer";

/// The project's aim for the ratio.
const AIM: f64 = 0.5;

/// Prints the medians of both and their ratio.
pub(crate) async fn bench(host: &Host, writer: &Path) -> anyhow::Result<()> {
    let mut client = host.client();
    let image = image(host, &mut client, writer).await?;
    let pod = client.run_pod(&spec::pod("throughput", host.dir())).await.context("running a pod")?;
    let command = [WRITER, "vsock", &PORT.to_string(), &BYTES.to_string()];
    // The runtime's own filter allows no vsock sockets, but a container without one may have them.
    let container = client.run(&pod, spec::container("writer", &image, &command)).await?;
    let socket = host.dir().join("run/pods").join(&pod[..RUN_NAME_DIGITS]).join("vsock.sock");

    let (_, info) = client.pod_status_verbose(&pod).await?;
    let vmm = info["vmm"]["pid"].as_u64().context("the pod's VMM has no pid")?;
    let stages = Stages::of([host.daemon.pid(), u32::try_from(vmm)?]);

    bare(&socket, &stages).await?;
    exec(&mut client, &container, &stages).await?;
    let (mut bares, mut execs) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        bares.push(bare(&socket, &stages).await?);
        execs.push(exec(&mut client, &container, &stages).await?);
    }
    let all = |flows: &[Flow]| median(&mut flows.iter().map(|flow| flow.took).collect::<Vec<_>>());
    let (bare, exec) = (all(&bares), all(&execs));
    println!(
        "bench: stdout of an exec: {}, a bare vsock stream of the same VM: {}, ratio {:.2} (aim: at least {AIM})",
        rate(exec),
        rate(bare),
        ratio(bare, exec),
    );
    let busiest = |flows: &[Flow]| median(&mut flows.iter().map(|flow| flow.busiest.ran).collect::<Vec<_>>());
    let (bare, exec) = (busiest(&bares), busiest(&execs));
    println!(
        "bench: the busiest thread on an exec's way ({}): {:.2} instructions a byte, on the bare stream's ({}): {:.2}, \
         ratio {:.2}: what that of the rates would be if each thread had a processor",
        execs[0].busiest.thread,
        a_byte(exec),
        bares[0].busiest.thread,
        a_byte(bare),
        ratio(bare, exec),
    );
    client.remove_pod(&pod).await?;
    Ok(())
}

fn rate(took: Duration) -> String {
    format!("{:.1} MB/s ({:.1} instructions a byte)", BYTES as f64 / 1e6 / took.as_secs_f64(), a_byte(took))
}

fn a_byte(took: Duration) -> f64 {
    instructions(took) / BYTES as f64
}

fn ratio(bare: Duration, exec: Duration) -> f64 {
    bare.as_secs_f64() / exec.as_secs_f64()
}

/// An image of the writer alone.
async fn image(host: &Host, client: &mut Client, writer: &Path) -> anyhow::Result<String> {
    let program = std::fs::read(writer).with_context(|| format!("reading {}", writer.display()))?;
    let layer = Layer::builder().file(WRITER.trim_start_matches('/'), 0o755, program).build();
    host.registry.push_image("podvisor/writer", "latest", vec![layer], json!({})).await?;
    Ok(client.pull(&host.image("podvisor/writer:latest")).await?)
}

/// One bare stream, from its first byte to its last.
async fn bare(socket: &Path, stages: &Stages) -> anyhow::Result<Flow> {
    let mut stream = connect(socket).await?;
    let mut piece = vec![0; PIECE_BYTES];
    let mut carried = Carried::by(stages);
    loop {
        let count = stream.read(&mut piece).await?;
        if count == 0 {
            return carried.flow();
        }
        carried.add(count)?;
    }
}

/// Dials like the daemon, until a server listens.
async fn connect(socket: &Path) -> anyhow::Result<UnixStream> {
    const ACCEPTED: &[u8] = b"OK ";
    for _ in 0..DIALS_MAX {
        let mut stream = UnixStream::connect(socket).await?;
        stream.write_all(format!("CONNECT {PORT}\n").as_bytes()).await?;
        let mut answer = Vec::new();
        // Byte by byte: the bytes after the line belong to the stream.
        while let Ok(byte) = stream.read_u8().await {
            if byte == b'\n' && answer.starts_with(ACCEPTED) {
                return Ok(stream);
            }
            answer.push(byte);
        }
        tokio::time::sleep(DIAL_PAUSE).await;
    }
    bail!("nobody listens on vsock port {PORT} of the guest")
}

/// The output of one exec, from its first byte to its last.
async fn exec(client: &mut Client, container: &str, stages: &Stages) -> anyhow::Result<Flow> {
    let request = v1::ExecRequest {
        container_id: container.to_owned(),
        cmd: vec![WRITER.into(), "stdout".into(), BYTES.to_string()],
        stdout: true,
        ..Default::default()
    };
    let url = client.runtime.exec(request).await?.into_inner().url;
    let (mut sender, mut receiver) = dial(&url, COMMAND, None).await?;
    let error = sender.open(&[("streamtype", "error")]).await?;
    let stdout = sender.open(&[("streamtype", "stdout")]).await?;
    let mut carried = Carried::by(stages);
    let mut status = Vec::new();
    while let Some(event) = receiver.next().await? {
        let Event::Data { id, bytes, fin } = event else { continue };
        if id == stdout && !bytes.is_empty() {
            carried.add(bytes.len())?;
        } else if id == error {
            status.extend_from_slice(&bytes);
            if fin {
                break;
            }
        }
    }
    let status: serde_json::Value = serde_json::from_slice(&status).context("the exec's end")?;
    ensure!(status["status"] == "Success", "the exec ended with {status}");
    carried.flow()
}

/// The time for all the bytes.
struct Flow {
    took: Duration,
    busiest: Busiest,
}

/// The bytes received so far, and their times.
struct Carried<'a> {
    stages: &'a Stages,
    bytes: usize,
    first: Option<(Ran, Instant)>,
    last: Option<(Instant, Ran)>,
}

impl Carried<'_> {
    fn by(stages: &Stages) -> Carried<'_> {
        Carried { stages, bytes: 0, first: None, last: None }
    }

    fn add(&mut self, count: usize) -> anyhow::Result<()> {
        self.bytes += count;
        if self.first.is_none() {
            self.first = Some((self.stages.look()?, Instant::now()));
        }
        if self.bytes == BYTES {
            self.last = Some((Instant::now(), self.stages.look()?));
        }
        Ok(())
    }

    /// The flow from the first byte to the last.
    fn flow(self) -> anyhow::Result<Flow> {
        let (Some((before, first)), Some((last, after))) = (self.first, self.last) else {
            bail!("{} bytes came of {BYTES}", self.bytes)
        };
        Ok(Flow { took: last - first, busiest: after.busiest_since(&before)? })
    }
}
