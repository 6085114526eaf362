//! `make bench`: the cost of a pod's start, counted and not timed; and the cost of commands, of their output
//! and of work on files, as ratios.
//!
//! The program runs in the software node under `-icount shift=1`: one CPU's clock advances by two nanoseconds
//! with each instruction, and waiting costs nothing. So a duration there *is* a number of instructions: of
//! the guest, and of KVM and the VMM on its behalf. One build gives equal counts in every run, however busy
//! the host is. Elsewhere the counts are only times, but the ratios still hold: both of their sides are
//! measured in turns in one run.

#![forbid(unsafe_code)]

mod boot;
mod confined;
mod data;
mod exec;
mod figures;
mod handlers;
mod median;
mod network;
mod pod;
mod slow_disk;
mod staged;
mod stages;
mod template;
mod throughput;
mod vms;
mod volumes;

use std::path::PathBuf;

use clap::{Parser, ValueEnum};
use tests_e2e::Host;
use tests_e2e::built::Built;

use crate::staged::stage;

#[derive(Debug, Parser)]
struct Args {
    #[command(flatten)]
    built: Built,
    /// The static program writing in a guest.
    #[arg(long)]
    writer: PathBuf,
    /// Parts to run, with commas between them; all without it.
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Part>,
    /// Guests booted; the first one pays for cold caches of the node and is shown separately.
    #[arg(long, default_value_t = 3)]
    boots: u32,
    /// Pods started in a row for each kind of start, after a first one with cold caches.
    #[arg(long, default_value_t = 3)]
    starts: u32,
    /// Memory of the booted guests.
    #[arg(long, default_value_t = 128)]
    memory_mib: u64,
}

/// The measured parts; each has a file of its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    Boot,
    Template,
    Pod,
    Exec,
    Confined,
    Throughput,
    Volumes,
    Data,
    SlowDisk,
    Network,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let (memory, built) = stage(&args.built)?;
    let wanted = |part| args.only.is_empty() || args.only.contains(&part);
    // Before the daemon's start: its instructions would be counted too.
    if wanted(Part::Boot) {
        boot::bench(&built, args.boots, args.memory_mib << 20).await?;
    }
    if wanted(Part::Template) {
        template::bench(&built, args.boots, args.memory_mib << 20).await?;
    }
    let mut host = Host::with(&built).await?;
    if wanted(Part::Pod) {
        pod::bench(&mut host, memory.path(), args.starts).await?;
    }
    if wanted(Part::Exec) {
        exec::bench(&host).await?;
    }
    if wanted(Part::Confined) {
        confined::bench(&host).await?;
    }
    if wanted(Part::Throughput) {
        throughput::bench(&host, &args.writer).await?;
    }
    if wanted(Part::Volumes) {
        volumes::bench(&host).await?;
    }
    if wanted(Part::Data) {
        data::bench(&host).await?;
    }
    if wanted(Part::SlowDisk) {
        slow_disk::bench(&host).await?;
    }
    if wanted(Part::Network) {
        network::bench(&host).await?;
    }
    host.stop().await
}
