//! `bench-density`: the cost of idle pods on a node.
//!
//! Pods with one container each, `sleep`, are started and left alone; then a container of each touches 64 MiB
//! and frees them. Both times, after a rest, the memory of the VMMs is split by purpose, and the node's own
//! account of used memory is printed beside it: a first pod alone, and each further one. All figures are the
//! kernel's, and none is a time.

#![forbid(unsafe_code)]

mod held;
mod vmm_memory;

use std::time::Duration;

use anyhow::{Context, ensure};
use clap::Parser;
use futures::future::try_join_all;
use tests_e2e::built::Built;
use tests_e2e::client::Client;
use tests_e2e::idle::Idle;
use tests_e2e::traces::vmms;
use tests_e2e::{Host, spec};

use crate::held::Held;
use crate::vmm_memory::VmmMemory;

/// Work of a container with 64 MiB: it reads zeros into one buffer of this size, and ends.
const TOUCH_AND_FREE: &str = "dd if=/dev/zero of=/dev/null bs=64M count=1 2>/dev/null";

/// Largest growth of a pod after its container has freed the touched memory, in KiB.
const KEPT_KIB_MAX: u64 = 8 << 10;

/// The aim for an idle pod, in KiB.
const POD_KIB_MAX: u64 = 40 << 10;

/// The aim for a VMM's own memory, in KiB.
const PRIVATE_KIB_MAX: u64 = 3 << 10;

#[derive(Debug, Parser)]
struct Args {
    #[command(flatten)]
    built: Built,
    /// Pods.
    #[arg(long, default_value_t = 10)]
    pods: usize,
    /// Seconds for pods to come to rest.
    #[arg(long, default_value_t = 60)]
    rest: u64,
    /// Also print each VMM's private memory by mapping, for the first pod.
    #[arg(long)]
    mappings: bool,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    ensure!(args.pods >= 2, "two pods at least");
    let rest = Duration::from_secs(args.rest);
    let host = Host::with(&args.built).await?;
    let mut client = host.client();
    let image = client.pull(&host.busybox()).await?;
    // The first pod's cost for the daemon does not count for a pod.
    let first = start(&mut client, &host, &image, "warm").await?;
    client.remove_pod(&first.0).await?;

    let empty = Node::now()?;
    let mut pods = vec![start(&mut client, &host, &image, "pod0").await?];
    tokio::time::sleep(rest).await;
    let alone = (Node::now()?, memory()?);
    print_pods("one pod at rest", &alone.1, 1);
    if args.mappings {
        for (name, kib) in VmmMemory::private_by_name(vmms()?[0])? {
            println!("bench:   private {kib:6} KiB in {name}");
        }
    }
    for number in 1..args.pods {
        pods.push(start(&mut client, &host, &image, &format!("pod{number}")).await?);
    }
    tokio::time::sleep(rest).await;
    let cold = memory()?;
    print_pods("pods at rest", &cold, args.pods);
    print_node(&empty, &alone.0, &Node::now()?, args.pods as u64 - 1);
    print_rest(&host).await?;

    for (_, container) in &pods {
        client.sh(container, TOUCH_AND_FREE).await.context("touching memory")?;
    }
    let touched = memory()?;
    print_pods("64 MiB touched and freed, at once", &touched, args.pods);
    tokio::time::sleep(rest).await;
    let after = memory()?;
    print_pods("64 MiB touched and freed, at rest", &after, args.pods);
    let kept = after.pss().saturating_sub(cold.pss()) / args.pods as u64;
    println!("bench: kept of 64 MiB touched and freed: {kept} KiB a pod (at most {KEPT_KIB_MAX})");
    let held = Held::by(host.daemon.pid())?;
    println!(
        "bench: daemon beside {} pods: RSS {} KiB, descriptors {}",
        args.pods, held.rss_kib, held.descriptors
    );
    for (pod, _) in pods {
        client.remove_pod(&pod).await?;
    }
    host.stop().await
}

/// Starts a pod with one sleeping container; returns both ids.
async fn start(
    client: &mut Client,
    host: &Host,
    image: &str,
    name: &str,
) -> anyhow::Result<(String, String)> {
    let pod = client.run_pod(&spec::pod(name, host.dir())).await.with_context(|| format!("pod {name}"))?;
    let container = client.run(&pod, spec::container("main", image, &["sleep", "1000000"])).await?;
    Ok((pod, container))
}

/// The memory of all VMMs together.
fn memory() -> anyhow::Result<VmmMemory> {
    let mut sum = VmmMemory::default();
    for pid in vmms()? {
        sum += VmmMemory::of(pid)?;
    }
    Ok(sum)
}

/// Prints each pod's share of the sum, and the ratio of both to the aim.
fn print_pods(what: &str, sum: &VmmMemory, pods: usize) {
    let pods = pods as u64;
    println!(
        "bench: {what}: PSS {} KiB a pod, {:.3} of the aim: RAM {}, VMM's own {} ({:.3} of the aim), program {}, images {}; RSS {}",
        sum.pss() / pods,
        ratio(sum.pss() / pods, POD_KIB_MAX),
        sum.ram / pods,
        sum.private / pods,
        ratio(sum.private / pods, PRIVATE_KIB_MAX),
        sum.program / pods,
        sum.images / pods,
        sum.rss / pods,
    );
}

/// Prints the node's cost of the first pod, and of each of `more` others.
fn print_node(empty: &Node, alone: &Node, all: &Node, more: u64) {
    println!(
        "bench: the node has less: {} KiB for the first pod, {} KiB for each of {more} others; of its kernel's own memory {} KiB each",
        empty.available.saturating_sub(alone.available),
        alone.available.saturating_sub(all.available) / more,
        all.kernel.saturating_sub(alone.kernel) / more,
    );
}

/// Prints the wakeups of the node by an idle pod.
async fn print_rest(host: &Host) -> anyhow::Result<()> {
    let pods = vmms()?;
    let exits = exits();
    let begun = std::time::Instant::now();
    let vmms = try_join_all(pods.iter().copied().map(Idle::measure)).await?;
    let exits = exits.zip(self::exits()).map(|(before, after)| {
        after.saturating_sub(before) as f64 / begun.elapsed().as_secs_f64() / pods.len() as f64
    });
    let daemon = Idle::measure(host.daemon.pid()).await?;
    println!(
        "bench: a pod that does nothing: {:.2} wake-ups a second of its VMM's threads, {} exits a second; the daemon {:.2} wake-ups a second",
        vmms.iter().map(Idle::wakeups_per_second).sum::<f64>() / pods.len() as f64,
        exits.map_or("unknown".to_owned(), |exits| format!("{exits:.2}")),
        daemon.wakeups_per_second(),
    );
    Ok(())
}

/// Exits of all guests of this node, if its debugfs is mounted.
fn exits() -> Option<u64> {
    std::fs::read_to_string("/sys/kernel/debug/kvm/exits").ok()?.trim().parse().ok()
}

fn ratio(one: u64, other: u64) -> f64 {
    one as f64 / other as f64
}

/// The node's memory, in KiB (proc_meminfo(5)).
struct Node {
    available: u64,
    /// The kernel's own unreclaimable memory: slabs, stacks, page tables, its own and guests', and areas of
    /// vmalloc.
    kernel: u64,
}

impl Node {
    fn now() -> anyhow::Result<Node> {
        let text = std::fs::read_to_string("/proc/meminfo")?;
        let field = |key: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'));
            line.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or(0)
        };
        let kernel =
            ["SUnreclaim", "KernelStack", "PageTables", "SecPageTables", "VmallocUsed", "Percpu"].map(field);
        Ok(Node { available: field("MemAvailable"), kernel: kernel.iter().sum() })
    }
}
