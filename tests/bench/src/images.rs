//! `bench-images`: the cost of images with a common base: network and processor during pulls, disk, and
//! memory while pods read them.
//!
//! The yardstick is the content of the distinct layers: each file's bytes, in whole pages. If a store unpacks
//! each image separately, it stores the base once for each image. If guests cache their reads, they cache it
//! once for each pod.

#![forbid(unsafe_code)]

mod cost;
mod numbers;

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, ensure};
use clap::Parser;
use proto_cri::v1;
use tests_e2e::built::Built;
use tests_e2e::client::Client;
use tests_e2e::{Host, spec};
use tests_registry::Layer;

use crate::cost::Cost;
use crate::numbers::Numbers;

const PAGE: u64 = 4096;
/// How often a container is asked whether it has read its image.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);
/// Bytes of a file of a layer: a shared library of middling size.
const FILE_BYTES: usize = 100 << 10;
/// A container's program: it reads every file of its image, and records the number of bytes.
const READ_ALL: &str = "find / -xdev -type f -exec cat {} + 2>/dev/null | wc -c >/dev/shm/reading; \
                        mv /dev/shm/reading /dev/shm/read; exec sleep 1000000";
/// How long a container may take to read its image. A software node reads some MiB in a second.
const READ_WITHIN: Duration = Duration::from_secs(1200);

#[derive(Debug, Parser)]
struct Args {
    #[command(flatten)]
    built: Built,
    /// Images with the base in common.
    #[arg(long, default_value_t = 10)]
    images: usize,
    /// Number of pods, each reading all of one of the images.
    #[arg(long, default_value_t = 20)]
    pods: usize,
    /// MiB of the base.
    #[arg(long, default_value_t = 200)]
    base_mib: usize,
    /// MiB of each image's own top layer.
    #[arg(long, default_value_t = 5)]
    top_mib: usize,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let built = args.built.clone();
    let host = Host::with(&built).await?;
    let mut client = host.client();
    let pushed = push(&host, &args).await?;
    let images = pull(&host, &mut client, &pushed.names).await?;
    let (said, directory) = client.image_usage().await?;
    let (taken, files) = du(&directory)?;
    println!(
        "bench: {} images over one base: disk {:.1} MiB, of distinct layers {:.3} (at most 1.1); ImageFsInfo over du {:.4} (0.99 to 1.01)",
        images.len(),
        mib(taken),
        ratio(taken, pushed.distinct_bytes),
        ratio(said, taken),
    );
    read(&host, &mut client, &images, args.pods).await?;
    let cached = cached(&mut client).await?;
    let resident = resident(&files)?;
    println!(
        "bench: {} pods have read all of their images: resident of the store {:.1} MiB, cached in guests {:.1} MiB, both of distinct \
         layers {:.3} (at most 1.15)",
        args.pods,
        mib(resident),
        mib(cached),
        ratio(resident + cached, pushed.distinct_bytes),
    );
    for pod in client.pods().await? {
        client.remove_pod(&pod.id).await?;
    }
    host.stop().await
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

fn ratio(one: u64, other: u64) -> f64 {
    one as f64 / other as f64
}

/// The images in the registry.
struct Pushed {
    names: Vec<String>,
    /// Content of their distinct layers, in bytes.
    distinct_bytes: u64,
}

async fn push(host: &Host, args: &Args) -> anyhow::Result<Pushed> {
    let (busybox, config) = tests_registry::busybox_image()?;
    let mut numbers = Numbers::new();
    let (base, base_bytes) = layer(&mut numbers, "base", args.base_mib);
    // The program, the one large file of its image.
    let mut distinct_bytes = base_bytes + whole_pages(std::fs::metadata("/bin/busybox")?.len());
    let mut names = Vec::new();
    for number in 0..args.images {
        let (top, bytes) = layer(&mut numbers, "top", args.top_mib);
        distinct_bytes += bytes;
        let layers = busybox.iter().chain([&base, &top]).cloned().collect();
        let tag = number.to_string();
        host.registry.push_image("bench/shared", &tag, layers, config.clone()).await?;
        names.push(host.image(&format!("bench/shared:{tag}")));
    }
    Ok(Pushed { names, distinct_bytes })
}

/// A layer of so many MiB, and the bytes in it.
fn layer(numbers: &mut Numbers, directory: &str, mib: usize) -> (Layer, u64) {
    let files = (mib << 20) / FILE_BYTES;
    let mut builder = Layer::builder().dir(directory, 0o755);
    for file in 0..files {
        builder = builder.file(&format!("{directory}/{file}"), 0o644, numbers.bytes(FILE_BYTES));
    }
    (builder.build(), files as u64 * whole_pages(FILE_BYTES as u64))
}

fn whole_pages(bytes: u64) -> u64 {
    bytes.next_multiple_of(PAGE)
}

/// Pulls the images one after the other, and prints the daemon's cost of the first one and of the others.
async fn pull(host: &Host, client: &mut Client, names: &[String]) -> anyhow::Result<Vec<String>> {
    let mut images = Vec::new();
    let mut costs = Vec::new();
    for name in names {
        let before = Cost::of(host.daemon.pid())?;
        images.push(client.pull(name).await?);
        costs.push(Cost::of(host.daemon.pid())?.since(&before));
    }
    let [first, others @ ..] = &costs[..] else { anyhow::bail!("no image") };
    let count = others.len().max(1) as u64;
    let mean = |figure: fn(&Cost) -> u64| others.iter().map(figure).sum::<u64>() / count;
    println!(
        "bench: pulls: the first writes {:.1} MiB and takes {} ticks of a processor, each of the others {:.1} MiB and {} ticks",
        mib(first.written),
        first.ticks,
        mib(mean(|cost| cost.written)),
        mean(|cost| cost.ticks),
    );
    Ok(images)
}

/// Adds up the disk usage of the files below a directory, each once, and returns their paths.
fn du(directory: &Path) -> anyhow::Result<(u64, Vec<PathBuf>)> {
    let (mut taken, mut files) = (0, Vec::new());
    let mut left = vec![directory.to_owned()];
    let mut seen = std::collections::BTreeSet::new();
    while let Some(directory) = left.pop() {
        taken += std::fs::metadata(&directory)?.blocks() * 512;
        for entry in std::fs::read_dir(&directory)? {
            let entry = entry?;
            let found = entry.metadata()?;
            if found.is_dir() {
                left.push(entry.path());
            } else if found.is_file() && seen.insert(found.ino()) {
                taken += found.blocks() * 512;
                files.push(entry.path());
            }
        }
    }
    Ok((taken, files))
}

/// Starts the pods, each with a container reading all of its image.
async fn read(host: &Host, client: &mut Client, images: &[String], pods: usize) -> anyhow::Result<()> {
    for number in 0..pods {
        let pod = client.run_pod(&spec::pod(&format!("reader{number}"), host.dir())).await?;
        let image = &images[number % images.len()];
        let container = client.run(&pod, spec::shell("main", image, READ_ALL)).await?;
        let reading = async {
            loop {
                let read = client.sh(&container, "cat /dev/shm/read 2>/dev/null || echo 0").await?;
                match read.trim().parse::<u64>()? {
                    0 => tokio::time::sleep(LOOK_INTERVAL).await,
                    bytes => return anyhow::Ok(bytes),
                }
            }
        };
        let read = tokio::time::timeout(READ_WITHIN, reading).await.context("an image is not read")??;
        ensure!(read > FILE_BYTES as u64, "pod {number} has read {read} bytes alone");
    }
    Ok(())
}

/// Adds up the page caches of all guests, in bytes.
async fn cached(client: &mut Client) -> anyhow::Result<u64> {
    let request = v1::ListContainersRequest::default();
    let containers = client.runtime.list_containers(request).await?.into_inner().containers;
    let mut sum = 0;
    for container in containers {
        let kib = client.sh(&container.id, "awk '/^Cached:/ {print $2}' /proc/meminfo").await?;
        sum += kib.trim().parse::<u64>()? << 10;
    }
    Ok(sum)
}

/// Bytes of these files in the node's page cache (fincore(1)).
fn resident(files: &[PathBuf]) -> anyhow::Result<u64> {
    let output =
        Command::new("fincore").args(["--bytes", "--noheadings", "--output", "RES"]).args(files).output()?;
    ensure!(output.status.success(), "fincore: {}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout)?;
    text.lines().map(|line| Ok(line.trim().parse::<u64>()?)).sum()
}
