//! `bench-crowd`: the cost of a node's daemon after many pods, and beside many.
//!
//! Four parts, each with its own daemon. *row*: pods made and removed one after another; the daemon's memory
//! and descriptors must not grow, nor the time of a start. *at-once*: pods starting at the same time,
//! compared with the same number one after another; on one processor this is their waiting for each other;
//! and the idle time in both. *present*: with many running pods, a list, and the start of one more compared
//! with the first one's, and the cost of idle pods. *restart*: a daemon killed beside running pods; the time
//! until it answers, and until it has recovered them all.
//!
//! Durations are the clock's. In a software node under `-icount` it counts instructions. Otherwise only the
//! ratios have a meaning, and only on an otherwise idle host.

#![forbid(unsafe_code)]

mod held;
mod median;
mod node_idle;
mod present;

use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use clap::{Parser, ValueEnum};
use futures::future::{try_join, try_join_all};
use proto_cri::v1::{PodSandboxStatsRequest, VersionRequest};
use tests_e2e::built::Built;
use tests_e2e::client::Client;
use tests_e2e::idle::{Idle, Thread};
use tests_e2e::traces::vmms;
use tests_e2e::{Host, spec};
use tonic::Code;

use crate::held::Held;
use crate::median::median;
use crate::node_idle::node_idle;
use crate::present::{AT_ONCE, make};

/// Starts and lists per median.
const SAMPLES: usize = 5;
/// Starts compared at either end of the row.
const ENDS: usize = 50;
/// How long the daemon works after starts or removals of pods: it refills its pools.
const SETTLED_WITHIN: Duration = Duration::from_secs(10);

#[derive(Debug, Parser)]
struct Args {
    #[command(flatten)]
    built: Built,
    /// Parts to run, with commas between them; all without it.
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Part>,
    /// Pods made and removed in a row.
    #[arg(long, default_value_t = 500)]
    row: usize,
    /// Pods starting at the same time.
    #[arg(long, default_value_t = 20)]
    at_once: usize,
    /// Pods present while one more is started.
    #[arg(long, default_value_t = 60)]
    present: usize,
    /// Pods present while the daemon is killed.
    #[arg(long, default_value_t = 50)]
    restart: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    Row,
    AtOnce,
    Present,
    Restart,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let built = args.built;
    let wanted = |part| args.only.is_empty() || args.only.contains(&part);
    if wanted(Part::Row) {
        row(&built, args.row).await?;
    }
    if wanted(Part::AtOnce) {
        at_once(&built, args.at_once).await?;
    }
    if wanted(Part::Present) {
        present(&built, args.present).await?;
    }
    if wanted(Part::Restart) {
        restart(&built, args.restart).await?;
    }
    Ok(())
}

fn ms(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

/// Starts a pod and returns its id, and how long the call took.
async fn start(client: &mut Client, host: &Host, name: &str) -> anyhow::Result<(String, Duration)> {
    let config = spec::pod(name, host.dir());
    let begun = Instant::now();
    let pod = client.run_pod(&config).await.with_context(|| format!("starting pod {name}"))?;
    Ok((pod, begun.elapsed()))
}

async fn row(built: &Built, pods: usize) -> anyhow::Result<()> {
    ensure!(pods >= 2 * ENDS, "a row has at least {} pods", 2 * ENDS);
    let host = Host::with(built).await?;
    let mut client = host.client();
    let (mut starts, mut first) = (Vec::with_capacity(pods), None);
    for number in 0..pods {
        let (pod, took) = start(&mut client, &host, &format!("row{number}")).await?;
        client.remove_pod(&pod).await?;
        starts.push(took);
        // Not after the first pod: allocators and pools grow to a pod's size.
        if number + 1 == ENDS {
            first = Some(Held::by(host.daemon.pid())?);
        }
    }
    let (first, last) = (first.context("no figures")?, Held::by(host.daemon.pid())?);
    let (early, late) = (median(&mut starts[..ENDS]), median(&mut starts[pods - ENDS..]));
    println!(
        "bench: {pods} pods in a row: start {:.0} ms at first, {:.0} ms at last, ratio {:.3} (at most 1.1)",
        ms(early),
        ms(late),
        late.as_secs_f64() / early.as_secs_f64(),
    );
    println!(
        "bench: daemon after {ENDS} and after {pods} pods: RSS {} and {} KiB, descriptors {} and {}",
        first.rss_kib, last.rss_kib, first.descriptors, last.descriptors
    );
    host.stop().await
}

async fn at_once(built: &Built, pods: usize) -> anyhow::Result<()> {
    let host = Host::with(built).await?;
    let mut client = host.client();
    // The first start pays for the bridge.
    let (pod, _) = start(&mut client, &host, "first").await?;
    client.remove_pod(&pod).await?;
    tokio::time::sleep(SETTLED_WITHIN).await;
    let (begun, idle) = (Instant::now(), node_idle()?);
    for number in 0..pods {
        start(&mut client, &host, &format!("row{number}")).await?;
    }
    let (row, row_idle) = (begun.elapsed(), node_idle()? - idle);
    remove_all(&host).await?;
    tokio::time::sleep(SETTLED_WITHIN).await;
    let (begun, idle) = (Instant::now(), node_idle()?);
    make(&host, "", pods, pods).await?;
    let (together, together_idle) = (begun.elapsed(), node_idle()? - idle);
    println!(
        "bench: {pods} pods: {:.0} ms one after another, of which the node idles {:.0}; {:.0} ms at once, of which it idles {:.0}; \
         ratio {:.3} (at most 0.95), where nothing idles {:.3}",
        ms(row),
        ms(row_idle),
        ms(together),
        ms(together_idle),
        together.as_secs_f64() / row.as_secs_f64(),
        row.saturating_sub(row_idle).as_secs_f64() / row.as_secs_f64(),
    );
    remove_all(&host).await?;
    host.stop().await
}

async fn present(built: &Built, pods: usize) -> anyhow::Result<()> {
    let host = Host::with(built).await?;
    let mut client = host.client();
    // The first start pays for the bridge.
    let (pod, _) = start(&mut client, &host, "first").await?;
    client.remove_pod(&pod).await?;
    let alone = one_more(&mut client, &host, "alone", Duration::ZERO).await?;
    let alone_rested = one_more(&mut client, &host, "rested", SETTLED_WITHIN).await?;
    make(&host, "", pods, AT_ONCE).await?;
    let mut lists = Vec::new();
    for _ in 0..SAMPLES {
        let begun = Instant::now();
        ensure!(client.pods().await?.len() == pods, "pods are missing from the list");
        lists.push(begun.elapsed());
    }
    println!("bench: {pods} pods present: list {:.1} ms", ms(median(&mut lists)));
    let crowded = one_more(&mut client, &host, "crowded", Duration::ZERO).await?;
    let crowded_rested = one_more(&mut client, &host, "crowd-rested", SETTLED_WITHIN).await?;
    for (when, alone, crowded) in
        [("on a node at rest", alone_rested, crowded_rested), ("right after a removal", alone, crowded)]
    {
        println!(
            "bench: {pods} pods present: a start {when} {:.0} ms alone, {:.0} ms beside them, ratio {:.3} (at most 1.15)",
            ms(alone),
            ms(crowded),
            crowded.as_secs_f64() / alone.as_secs_f64(),
        );
    }
    idle(&host, pods).await?;
    let held = Held::by(host.daemon.pid())?;
    println!("bench: daemon beside {pods} pods: RSS {} KiB, descriptors {}", held.rss_kib, held.descriptors);
    remove_all(&host).await?;
    host.stop().await
}

/// Prints the cost of idle pods for a start beside them: CPU use of their VMMs and the daemon, and the
/// wakeups of their threads.
async fn idle(host: &Host, pods: usize) -> anyhow::Result<()> {
    let (vmms, daemon) =
        try_join(try_join_all(vmms()?.into_iter().map(Idle::measure)), Idle::measure(host.daemon.pid()))
            .await?;
    println!(
        "bench: {pods} pods that do nothing: VMMs {:.2} % of a CPU and {:.1} wake-ups a second, the daemon {:.2} % and {:.1}",
        vmms.iter().map(Idle::cpu_percent).sum::<f64>(),
        vmms.iter().map(Idle::wakeups_per_second).sum::<f64>(),
        daemon.cpu_percent(),
        daemon.wakeups_per_second(),
    );
    for thread in by_name(vmms.iter().flat_map(|vmm| &vmm.threads)) {
        println!(
            "bench:   threads named {} together: {:.2} % and {:.1} a second",
            thread.name, thread.cpu_percent, thread.wakeups_per_second
        );
    }
    Ok(())
}

/// Sums of the threads of each name.
fn by_name<'threads>(threads: impl Iterator<Item = &'threads Thread>) -> Vec<Thread> {
    let mut sums: Vec<Thread> = Vec::new();
    for thread in threads {
        match sums.iter_mut().find(|sum| sum.name == thread.name) {
            Some(sum) => {
                sum.cpu_percent += thread.cpu_percent;
                sum.wakeups_per_second += thread.wakeups_per_second;
            }
            None => sums.push(thread.clone()),
        }
    }
    sums
}

/// Starts and removes a pod some times, each after a rest; returns the median start.
async fn one_more(client: &mut Client, host: &Host, name: &str, rest: Duration) -> anyhow::Result<Duration> {
    let mut starts = Vec::new();
    for sample in 0..SAMPLES {
        tokio::time::sleep(rest).await;
        let (pod, took) = start(client, host, &format!("{name}{sample}")).await?;
        client.remove_pod(&pod).await?;
        starts.push(took);
    }
    Ok(median(&mut starts))
}

async fn restart(built: &Built, pods: usize) -> anyhow::Result<()> {
    let mut host = Host::with(built).await?;
    make(&host, "", pods, AT_ONCE).await?;
    let begun = Instant::now();
    host.daemon.kill_and_restart().await?;
    let mut client = host.client();
    client.runtime.version(VersionRequest::default()).await?;
    let answers = begun.elapsed();
    let listed = client.pods().await?;
    ensure!(listed.len() == pods, "the daemon lists {} of {pods} pods", listed.len());
    // Figures are waited for a moment only: they are asked for again until the pod is recovered.
    try_join_all(listed.iter().map(|pod| {
        let (mut client, pod_sandbox_id) = (host.client(), pod.id.clone());
        async move {
            loop {
                let request = PodSandboxStatsRequest { pod_sandbox_id: pod_sandbox_id.clone() };
                match client.runtime.pod_sandbox_stats(request).await {
                    Err(status) if status.code() == Code::Unavailable => {}
                    answered => return answered,
                }
            }
        }
    }))
    .await?;
    println!(
        "bench: a restart beside {pods} pods: {:.0} ms until Version answers, {:.0} ms until all are recovered",
        ms(answers),
        ms(begun.elapsed()),
    );
    remove_all(&host).await?;
    host.stop().await
}

async fn remove_all(host: &Host) -> anyhow::Result<()> {
    let pods = host.client().pods().await?;
    for batch in pods.chunks(AT_ONCE) {
        try_join_all(batch.iter().map(|pod| {
            let mut client = host.client();
            async move { client.remove_pod(&pod.id).await }
        }))
        .await?;
    }
    Ok(())
}
