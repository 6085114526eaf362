//! `bench-pull`: an image pulled and unpacked by the daemon, over containerd's pull and over `skopeo copy`
//! with `umoci unpack`.
//!
//! All pull the image from one registry over loopback, one after the other, round by round, each without any
//! part of it. The registry's own share of the processors does not count. Then the daemon pulls ten other
//! images at once. No pod is started.

#![forbid(unsafe_code)]

mod cost;
mod numbers;

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use clap::Parser;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use nix::unistd::{SysconfVar, sysconf};
use proto_cri::v1;
use serde_json::json;
use tests_e2e::Host;
use tests_e2e::built::Built;
use tests_e2e::client::Client;
use tests_e2e::containerd::Containerd;
use tests_registry::Layer;

use crate::cost::Cost;
use crate::numbers::Numbers;

/// Sizes of files, as powers of two: from 1 KiB to 128 KiB, 32 KiB on average.
const SIZES: std::ops::Range<u32> = 10..18;
/// Entries of a directory.
const FANOUT: usize = 40;
/// One entry of so many is a symbolic link.
const LINKS: usize = 20;
/// Of 64 bytes of a file, the incompressible ones; the others are equal everywhere.
const RANDOM_OF_64: usize = 24;

#[derive(Debug, Parser)]
struct Args {
    #[command(flatten)]
    built: Built,
    /// Entries of the image: 60,000 hold 1.8 GB.
    #[arg(long, default_value_t = 60_000)]
    entries: usize,
    /// Layers of the image.
    #[arg(long, default_value_t = 8)]
    layers: usize,
    /// Rounds; each figure is the middle one's.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Images pulled at once, each with a tenth of the entries.
    #[arg(long, default_value_t = 10)]
    at_once: usize,
}

/// Time of a pull.
#[derive(Clone, Copy, Debug)]
struct Taken {
    clock: Duration,
    processor: Duration,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let built = args.built.clone();
    let host = Host::with(&built).await?;
    let containerd = Containerd::start(host.dir(), &host.network, host.registry).await?;
    let mut numbers = Numbers::new();
    let image = push(&host, &mut numbers, "bench/large", args.entries, args.layers).await?;
    let (mut ours, mut theirs, mut tools) = (Vec::new(), Vec::new(), Vec::new());
    let mut peak = 0;
    for _ in 0..args.rounds {
        settle();
        let (taken, high) = pull(host.client(), host.daemon.pid(), &image).await?;
        ours.push(taken);
        peak = peak.max(high);
        settle();
        let other = Client::connect(&containerd.socket()).await?;
        theirs.push(pull(other, containerd.pid(), &image).await?.0);
        settle();
        tools.push(copy_and_unpack(host.dir(), &image)?);
    }
    let ours = middle(&mut ours);
    print("containerd's pull", ours, middle(&mut theirs));
    print("skopeo copy and umoci unpack", ours, middle(&mut tools));
    println!("bench: the daemon's memory while it pulls one image: at most {} MiB (64)", peak >> 20);
    let high = pull_at_once(&host, &mut numbers, &args).await?;
    println!("bench: while it pulls {} at once: at most {} MiB (128)", args.at_once, high >> 20);
    host.stop().await
}

fn print(name: &str, ours: Taken, others: Taken) {
    println!(
        "bench: pull over {name}: processor {:.2} ({:.1} s and {:.1} s), clock {:.2} ({:.1} s and {:.1} s); at most 0.5",
        ours.processor.as_secs_f64() / others.processor.as_secs_f64(),
        ours.processor.as_secs_f64(),
        others.processor.as_secs_f64(),
        ours.clock.as_secs_f64() / others.clock.as_secs_f64(),
        ours.clock.as_secs_f64(),
        others.clock.as_secs_f64(),
    );
}

/// Returns the middle one by each figure.
fn middle(taken: &mut [Taken]) -> Taken {
    let at = taken.len() / 2;
    taken.sort_by_key(|taken| taken.clock);
    let clock = taken[at].clock;
    taken.sort_by_key(|taken| taken.processor);
    Taken { clock, processor: taken[at].processor }
}

/// Flushes earlier writes to the disk, so they do not count for later work.
fn settle() {
    nix::unistd::sync();
}

async fn push(
    host: &Host,
    numbers: &mut Numbers,
    name: &str,
    entries: usize,
    layers: usize,
) -> anyhow::Result<String> {
    let mut held = 0;
    let layers = (0..layers)
        .map(|number| {
            let (layer, bytes) = layer(numbers, &format!("layer{number}"), entries / layers);
            held += bytes;
            layer
        })
        .collect::<Vec<_>>();
    let compressed = layers.iter().map(|layer| layer.bytes.len()).sum::<usize>();
    println!("bench: {name}: {entries} entries, {} MiB in {} MiB of gzip", held >> 20, compressed >> 20);
    host.registry.push_image(name, "latest", layers, json!({})).await?;
    Ok(host.image(&format!("{name}:latest")))
}

/// A layer with so many entries, and the bytes of its files.
fn layer(numbers: &mut Numbers, top: &str, entries: usize) -> (Layer, usize) {
    let mut builder = Layer::builder().dir(top, 0o755);
    let mut held = 0;
    let mut directory = top.to_owned();
    for entry in 1..entries {
        if entry % FANOUT == 1 {
            directory = format!("{top}/{entry}");
            builder = builder.dir(&directory, 0o755);
            continue;
        }
        let path = format!("{directory}/{entry}");
        if entry % LINKS == 0 {
            builder = builder.symlink(&path, &(entry - 1).to_string());
            continue;
        }
        let spread = u64::from(SIZES.end - SIZES.start);
        let size = 1_usize << (u64::from(SIZES.start) + numbers.next() % spread);
        builder = builder.file(&path, 0o644, content(numbers, size));
        held += size;
    }
    (builder.build(), held)
}

fn content(numbers: &mut Numbers, size: usize) -> Vec<u8> {
    let mut content = vec![b'.'; size];
    for piece in content.chunks_mut(64) {
        let random = RANDOM_OF_64.min(piece.len());
        piece[..random].copy_from_slice(&numbers.bytes(random));
    }
    content
}

/// Lets a runtime pull the image and remove it again. Returns the cost of the pull and the process's peak of
/// memory, in bytes.
async fn pull(mut client: Client, pid: u32, image: &str) -> anyhow::Result<(Taken, u64)> {
    forget_peak(pid)?;
    let (before, start) = (Cost::of(pid)?, Instant::now());
    let id = client.pull(image).await?;
    let (clock, cost) = (start.elapsed(), Cost::of(pid)?.since(&before));
    let peak = peak(pid)?;
    let spec = v1::ImageSpec { image: id, ..Default::default() };
    client.images.remove_image(v1::RemoveImageRequest { image: Some(spec) }).await?;
    Ok((Taken { clock, processor: of_ticks(cost.ticks)? }, peak))
}

fn of_ticks(ticks: u64) -> anyhow::Result<Duration> {
    let in_a_second = sysconf(SysconfVar::CLK_TCK)?.context("no ticks")?;
    Ok(Duration::from_secs_f64(ticks as f64 / in_a_second as f64))
}

/// Resets the peak of a process's memory (proc_pid_clear_refs(5)).
fn forget_peak(pid: u32) -> anyhow::Result<()> {
    Ok(std::fs::write(format!("/proc/{pid}/clear_refs"), "5")?)
}

/// The peak resident memory of a process, in bytes.
fn peak(pid: u32) -> anyhow::Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).context("no VmHWM")?;
    let kib = line.trim().trim_end_matches(" kB").parse::<u64>()?;
    Ok(kib << 10)
}

/// Copies an image out of the registry and unpacks it, with dedicated programs.
fn copy_and_unpack(dir: &Path, image: &str) -> anyhow::Result<Taken> {
    let dir = tempfile::tempdir_in(dir)?;
    let (layout, bundle) = (dir.path().join("layout"), dir.path().join("bundle"));
    let (before, start) = (children()?, Instant::now());
    run(Command::new("skopeo")
        .args(["copy", "--quiet", "--insecure-policy", "--src-tls-verify=false"])
        .arg(format!("docker://{image}"))
        .arg(format!("oci:{}:image", layout.display())))?;
    run(Command::new("umoci")
        .args(["unpack", "--image"])
        .arg(format!("{}:image", layout.display()))
        .arg(&bundle))?;
    let (clock, processor) = (start.elapsed(), children()? - before);
    Ok(Taken { clock, processor })
}

fn run(command: &mut Command) -> anyhow::Result<()> {
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("running {command:?}"))?;
    let error = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?}: {}: {error}", output.status);
    Ok(())
}

/// Processor time of ended children.
fn children() -> anyhow::Result<Duration> {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN)?;
    let microseconds = usage.user_time().num_microseconds() + usage.system_time().num_microseconds();
    Ok(Duration::from_micros(u64::try_from(microseconds)?))
}

/// Pulls several images at once, and returns the daemon's peak of memory, in bytes.
async fn pull_at_once(host: &Host, numbers: &mut Numbers, args: &Args) -> anyhow::Result<u64> {
    let mut images = Vec::new();
    for number in 0..args.at_once {
        let name = format!("bench/image{number}");
        images.push(push(host, numbers, &name, args.entries / 10, 2).await?);
    }
    forget_peak(host.daemon.pid())?;
    let pulls = images.iter().map(|image| {
        let mut client = host.client();
        async move { client.pull(image).await }
    });
    futures::future::try_join_all(pulls).await?;
    peak(host.daemon.pid())
}
