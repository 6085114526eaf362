//! Measures TCP between the node and pods by Debian's iperf3, beside the same calls between the node and
//! network namespaces on the same bridge, joined by a veth pair.
//!
//! ```text
//!   host ─ bridge ─ veth ─ namespace                                   iperf3 there
//!   host ─ bridge ─ veth ─ namespace ─ redirect ─ tap ─ VMM ─ guest    iperf3 there
//! ```
//!
//! For each work and each direction it prints the cost of a byte, a write or a round trip on the node, in
//! instructions if the clock counts them, and the namespaces' figure as a ratio of the pods': 1 is as fast as
//! they are, less is slower. The clock leaps while the node is idle, so waiting is a part of a figure.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, TcpStream};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use serde_json::Value;
use tests_e2e::client::Client;
use tests_e2e::{Host, spec};
use tests_registry::installed_layer;
use tokio::process::{Child, Command};

use crate::figures::instructions;
use crate::median::median;

const IPERF: &str = "/usr/bin/iperf3";
const MIB: f64 = 1048576.0;
/// Port of a shell's `nc` as an echo server.
const ECHO_PORT: u16 = 5202;
/// Memory of a container, with room for socket buffers.
const MEMORY_BYTES: i64 = 128 << 20;
/// Calls of each kind; the median counts.
const ROUNDS: usize = 3;
/// Bytes of a small write, and of an echoed message.
const SMALL_BYTES: usize = 64;
/// Round trips in a call, and uncounted ones before them.
const TRIPS: u32 = 500;
const TRIPS_WARM: u32 = 20;
/// Timeout of a call, in seconds.
const TIMEOUT_SECONDS: i64 = 1200;
/// Tries until a server listens, and the pause between two.
const DIALS_MAX: u32 = 100;
const DIAL_PAUSE: Duration = Duration::from_millis(100);
/// A part of iperf3's report if no server listens.
const REFUSED: &str = "Connection refused";
/// The last numbers of the namespaces' addresses. The plugin counts from the lowest and does not reach them.
const NAMESPACE_HOSTS: [u8; 2] = [250, 251];

/// The project's aim for the ratio.
const AIM: f64 = 0.5;

/// A stream of iperf3's.
struct Work {
    name: &'static str,
    options: &'static [&'static str],
    unit: &'static str,
    /// Bytes per figure.
    unit_bytes: f64,
}

const WORKS: [Work; 2] = [
    Work { name: "one TCP stream", options: &["-n", "32M"], unit: "a byte", unit_bytes: 1.0 },
    Work {
        name: "one TCP stream of writes of 64 bytes, without delay",
        options: &["-n", "1M", "-l", "64", "-N"],
        unit: "a write",
        unit_bytes: SMALL_BYTES as f64,
    },
];

/// A place for running iperf3.
enum End {
    Node { address: IpAddr },
    Namespace { name: String, address: IpAddr },
    Pod { client: Box<Client>, container: String, address: IpAddr },
}

/// A network namespace joined to the bridge by a veth pair, until it is dropped.
struct Namespace {
    name: String,
}

/// Prints each work in each way.
pub(crate) async fn bench(host: &Host) -> anyhow::Result<()> {
    let mut client = host.client();
    let image = image(host, &mut client).await?;
    let (mut ids, mut pods) = (Vec::new(), Vec::new());
    for name in ["one", "two"] {
        let id = client.run_pod(&spec::pod(name, host.dir())).await.context("running a pod")?;
        let address = client.pod_ip(&id).await?.parse().context("a pod's address")?;
        let line = format!("nc -ll -p {ECHO_PORT} -e cat & exec {IPERF} -s");
        let main = spec::with_memory(spec::shell("main", &image, &line), MEMORY_BYTES);
        let container = client.run(&id, main).await?;
        pods.push(End::Pod { client: Box::new(client.clone()), container, address });
        ids.push(id);
    }
    let IpAddr::V4(near) = pods[0].address() else { bail!("a pod's first address is of IPv6") };
    let on_bridge =
        |last| Ipv4Addr::from_octets([near.octets()[0], near.octets()[1], near.octets()[2], last]);
    let (mut namespaces, mut plain) = (Vec::new(), Vec::new());
    for last in NAMESPACE_HOSTS {
        let namespace = Namespace::join(&host.network.bridge, last, on_bridge(last)).await?;
        plain.push(End::Namespace { name: namespace.name.clone(), address: on_bridge(last).into() });
        namespaces.push(namespace);
    }
    let node = End::Node { address: on_bridge(1).into() };
    // Ends with this function.
    let mut servers = vec![node.serve(&[IPERF, "-s"])?];
    for end in &plain {
        servers.push(end.serve(&[IPERF, "-s"])?);
        servers.push(end.serve(&["busybox", "nc", "-ll", "-p", &ECHO_PORT.to_string(), "-e", "cat"])?);
    }
    for work in &WORKS {
        for (way, [from, to], [plain_from, plain_to]) in [
            ("host to pod", [&node, &pods[0]], [&node, &plain[0]]),
            ("pod to host", [&pods[0], &node], [&plain[0], &node]),
            ("pod to pod", [&pods[0], &pods[1]], [&plain[0], &plain[1]]),
        ] {
            let plain = work.between(plain_from, plain_to).await?;
            let pod = work.between(from, to).await?;
            print(work.name, way, work.unit, plain, pod);
        }
    }
    let (plain, pod) = (trips(plain[0].address())?, trips(pods[0].address())?);
    print("64 bytes there and back by TCP", "host and pod", "a round trip", plain, pod);
    drop((servers, namespaces));
    for id in &ids {
        client.remove_pod(id).await?;
    }
    Ok(())
}

/// The time of a MiB, by iperf3's report of the receiving side.
fn mebibyte(report: &[u8]) -> anyhow::Result<Duration> {
    let report: Value = serde_json::from_slice(report).context("iperf3's report")?;
    let bits = report.pointer("/end/sum_received/bits_per_second").and_then(Value::as_f64);
    let bits = bits.filter(|bits| *bits > 0.0).with_context(|| format!("iperf3 did nothing: {report}"))?;
    Ok(Duration::from_secs_f64(MIB * 8.0 / bits))
}

fn print(name: &str, way: &str, unit: &str, plain: f64, pod: f64) {
    println!(
        "bench: {name}, {way}: {pod:.2} instructions {unit}, by veth alone {plain:.2}, ratio {:.3} (aim: {AIM})",
        plain / pod,
    );
}

impl Work {
    /// Instructions of a unit, as a median.
    async fn between(&self, from: &End, to: &End) -> anyhow::Result<f64> {
        let address = to.address().to_string();
        let own = [IPERF, "-J", "-c", &address];
        let command: Vec<&str> = own.into_iter().chain(self.options.iter().copied()).collect();
        let mut took = Vec::new();
        for _ in 0..ROUNDS {
            took.push(mebibyte(&from.run(&command).await?)?);
        }
        Ok(instructions(median(&mut took)) / MIB * self.unit_bytes)
    }
}

impl End {
    fn address(&self) -> IpAddr {
        match self {
            End::Node { address } | End::Namespace { address, .. } | End::Pod { address, .. } => *address,
        }
    }

    /// The command as the node runs it. A pod has its server by itself.
    fn command(&self, command: &[&str]) -> Option<Command> {
        let entered = match self {
            End::Node { .. } => command.to_vec(),
            End::Namespace { name, .. } => {
                ["ip", "netns", "exec", name].into_iter().chain(command.iter().copied()).collect()
            }
            End::Pod { .. } => return None,
        };
        let mut built = Command::new(entered[0]);
        built.args(&entered[1..]).kill_on_drop(true);
        Some(built)
    }

    fn serve(&self, command: &[&str]) -> anyhow::Result<Child> {
        let mut command = self.command(command).context("a server in a pod")?;
        Ok(command.stdin(Stdio::null()).stdout(Stdio::null()).spawn()?)
    }

    /// Runs iperf3 as a client, as soon as the server listens, and returns its output. After a failure this
    /// is an error.
    async fn run(&self, command: &[&str]) -> anyhow::Result<Vec<u8>> {
        for _ in 0..DIALS_MAX {
            let printed = match (self, self.command(command)) {
                (End::Pod { client, container, .. }, _) => {
                    client.clone().exec(container, command, TIMEOUT_SECONDS).await?.stdout
                }
                (_, Some(mut command)) => command.output().await?.stdout,
                (_, None) => bail!("nothing to run"),
            };
            if !String::from_utf8_lossy(&printed).contains(REFUSED) {
                return Ok(printed);
            }
            tokio::time::sleep(DIAL_PAUSE).await;
        }
        bail!("nobody listens for {command:?}")
    }
}

impl Namespace {
    /// Makes a namespace with this address, named by its last number.
    async fn join(bridge: &str, last: u8, address: Ipv4Addr) -> anyhow::Result<Namespace> {
        let name = format!("bench-{}-{last}", std::process::id());
        let (outer, with_prefix) = (format!("pvb{last}"), format!("{address}/24"));
        ip(&["netns", "add", &name]).await?;
        let made = Namespace { name };
        let name = &made.name;
        ip(&["link", "add", &outer, "type", "veth", "peer", "name", "eth0", "netns", name]).await?;
        ip(&["link", "set", &outer, "master", bridge, "up"]).await?;
        ip(&["-n", name, "address", "add", &with_prefix, "dev", "eth0"]).await?;
        ip(&["-n", name, "link", "set", "eth0", "up"]).await?;
        Ok(made)
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        // The veth pair goes with it.
        let _ = std::process::Command::new("ip").args(["netns", "delete", &self.name]).status();
    }
}

async fn ip(arguments: &[&str]) -> anyhow::Result<()> {
    let output = Command::new("ip").args(arguments).output().await.context("running ip")?;
    ensure!(output.status.success(), "ip {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

/// Instructions of a round trip, as a median of means.
fn trips(to: IpAddr) -> anyhow::Result<f64> {
    let mut stream = TcpStream::connect((to, ECHO_PORT)).context("dialling the echo")?;
    stream.set_nodelay(true)?;
    let mut message = [0x5a; SMALL_BYTES];
    let mut trip = || {
        stream.write_all(&message)?;
        stream.read_exact(&mut message)
    };
    for _ in 0..TRIPS_WARM {
        trip()?;
    }
    let mut took = Vec::new();
    for _ in 0..ROUNDS {
        let begun = Instant::now();
        for _ in 0..TRIPS {
            trip()?;
        }
        took.push(begun.elapsed());
    }
    Ok(instructions(median(&mut took)) / f64::from(TRIPS))
}

async fn image(host: &Host, client: &mut Client) -> anyhow::Result<String> {
    let (mut layers, config) = tests_registry::busybox_image()?;
    layers.push(installed_layer(&[IPERF])?);
    host.registry.push_image("bench/iperf3", "1", layers, config).await?;
    Ok(client.pull(&host.image("bench/iperf3:1")).await?)
}
