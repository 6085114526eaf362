//! `podvisor port-forward`: forwards local ports to a pod's ports. Each connection has its own session, so a
//! stalled connection does not block others.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, anyhow, bail};
use proto_cri::v1;
use runtime_streaming::client::{self as streaming, Event};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::client::{self, Client};
use crate::complete;
use crate::config::Config;
use crate::daemon::Daemon;
use crate::resolve;
use crate::session::Trust;
use crate::show::out;

/// Bytes per read from a connection.
const CHUNK_BYTES: usize = 16 * 1024;

/// Longest error text shown, in bytes.
const TEXT_BYTES_MAX: usize = 4 * 1024;

/// Arguments of `podvisor port-forward`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Local address to listen on.
    #[arg(long, value_name = "IP", default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST))]
    address: IpAddr,
    #[command(flatten)]
    trust: Trust,
    /// A pod's id, or its beginning, or its name.
    #[arg(add = complete::pods())]
    pod: String,
    /// Local port and the pod's; one number is both, a local 0 any free one.
    #[arg(value_name = "[LOCAL:]PORT", required = true, value_parser = parse_ports)]
    ports: Vec<Ports>,
}

/// A local port, and the pod's port behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Ports {
    local: u16,
    pod: u16,
}

fn parse_ports(text: &str) -> Result<Ports, String> {
    let (local, pod) = text.split_once(':').unwrap_or((text, text));
    let number = |text: &str| text.parse::<u16>().map_err(|_| format!("`{text}` is no port"));
    let ports = Ports { local: number(local)?, pod: number(pod)? };
    if ports.pod == 0 { Err("the pod's port cannot be 0".into()) } else { Ok(ports) }
}

/// Forwards until the process is interrupted.
pub(crate) async fn port_forward(config: &Config, args: Args) -> anyhow::Result<ExitCode> {
    let daemon = Daemon::dial(config).await?;
    let id = resolve::pod(&daemon, &args.pod).await?;
    let client = daemon.client;
    let (mut listening, trust) = (JoinSet::new(), Arc::new(args.trust));
    for ports in args.ports {
        let listener = TcpListener::bind((args.address, ports.local))
            .await
            .with_context(|| format!("listening on {}, port {}", args.address, ports.local))?;
        let at = listener.local_addr()?;
        out::print(&format!("forwarding {at} to port {} of the pod\n", ports.pod))?;
        let pod = Pod { client: client.clone(), trust: Arc::clone(&trust), id: id.clone(), port: ports.pod };
        listening.spawn(accept(listener, pod));
    }
    match listening.join_next().await {
        Some(ended) => Err(ended?),
        None => Ok(ExitCode::SUCCESS),
    }
}

/// The pod and the port behind a local port.
#[derive(Clone)]
struct Pod {
    client: Client,
    trust: Arc<Trust>,
    id: String,
    port: u16,
}

/// Accepts connections. Returns only on a permanent failure.
async fn accept(listener: TcpListener, pod: Pod) -> anyhow::Error {
    loop {
        let connection = match listener.accept().await {
            Ok((connection, _)) => connection,
            Err(error) => return anyhow!(error).context("accepting a connection"),
        };
        let pod = pod.clone();
        tokio::spawn(async move {
            if let Err(error) = forward(pod, connection).await {
                out::complain(format_args!("{error:#}"));
            }
        });
    }
}

async fn forward(pod: Pod, mut connection: TcpStream) -> anyhow::Result<()> {
    let Pod { mut client, trust, id, port } = pod;
    let request = v1::PortForwardRequest { pod_sandbox_id: id, port: vec![i32::from(port)] };
    let answer = client.runtime.port_forward(request).await.map_err(client::refused)?;
    let (mut sender, mut receiver) = trust.dial(&answer.into_inner().url, streaming::FORWARD).await?;
    let port = port.to_string();
    let headers = |kind| [("streamtype", kind), ("port", port.as_str()), ("requestid", "0")];
    let error = sender.open(&headers("error")).await?;
    sender.send(error, "".into(), true).await?;
    let data = sender.open(&headers("data")).await?;
    let (mut from_local, mut to_local) = connection.split();
    let outward = async {
        let mut chunk = vec![0; CHUNK_BYTES];
        loop {
            let count = from_local.read(&mut chunk).await?;
            sender.send(data, chunk[..count].to_vec().into(), count == 0).await?;
            if count == 0 {
                return std::future::pending::<anyhow::Result<()>>().await;
            }
        }
    };
    let inward = async {
        let mut open = HashMap::from([(error, Vec::new()), (data, Vec::new())]);
        while !open.is_empty() {
            match receiver.next().await? {
                Some(Event::Data { id, bytes, fin }) => {
                    if id == data {
                        to_local.write_all(&bytes).await?;
                    } else if let Some(text) = open.get_mut(&id)
                        && text.len() < TEXT_BYTES_MAX
                    {
                        text.extend_from_slice(&bytes);
                    }
                    if fin {
                        ended(&mut open, id)?;
                    }
                    if fin && id == data {
                        to_local.shutdown().await?;
                    }
                }
                Some(Event::Reset { id }) => ended(&mut open, id)?,
                Some(_) => {}
                None => bail!("the daemon broke off the session"),
            }
        }
        Ok(())
    };
    tokio::select! {
        outcome = outward => outcome,
        outcome = inward => outcome,
    }
}

/// Marks a stream as ended. Fails if an error text came on it.
fn ended(open: &mut HashMap<u32, Vec<u8>>, id: u32) -> anyhow::Result<()> {
    match open.remove(&id) {
        Some(text) if !text.is_empty() => bail!("{}", String::from_utf8_lossy(&text)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_one_number_or_two() {
        assert_eq!(parse_ports("80"), Ok(Ports { local: 80, pod: 80 }));
        assert_eq!(parse_ports("0:80"), Ok(Ports { local: 0, pod: 80 }));
        for bad in ["", "80:", ":80", "80:0", "65536", "1:2:3", "http"] {
            assert!(parse_ports(bad).is_err(), "{bad}");
        }
    }
}
