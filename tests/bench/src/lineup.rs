//! `bench-lineup`: compares a pod's start with its alternatives, in one run and by one clock.
//!
//! ```text
//!   floor         a process ─ KVM ─ a guest of one instruction
//!   runc, crun    a process ─ a container
//!   podvisor-vmm  a process ─ a VM with our agent
//!   Firecracker   a process ─ a VM with our agent
//!   a pod         RunPodSandbox ─ a VM with an agent ─ CreateContainer, StartContainer ─ a container
//! ```
//!
//! Each is started some times, alone on a node at rest, and measured up to its marks; the last mark is a byte
//! seen outside. Nothing else runs: the daemon is started after the others. Pods are also started several at
//! the same time, and both again beside running pods. In a software node under `-icount` the clock counts
//! instructions (see `make bench`'s `main.rs`); otherwise durations are printed.

#![forbid(unsafe_code)]

mod figures;
mod firecracker;
mod first_byte;
mod handlers;
mod pods;
mod present;
mod programs;
mod rows;
mod runtimes;
mod staged;
mod vmms;
mod vms;

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::ensure;
use clap::Parser;
use tests_e2e::Host;
use tests_e2e::built::Built;

use crate::first_byte::first_bytes;
use crate::pods::Crowd;
use crate::rows::Row;
use crate::runtimes::Runtime;

#[derive(Debug, Parser)]
struct Args {
    #[command(flatten)]
    built: Built,
    /// The program running a VM of one instruction.
    #[arg(long)]
    floor: PathBuf,
    /// A Firecracker; without one there are no rows of it.
    #[arg(long)]
    firecracker: Option<PathBuf>,
    /// Starts of each kind, after a first one with cold caches.
    #[arg(long, default_value_t = 50)]
    starts: usize,
    /// Pods starting at the same time; with 1 there are no rows of it.
    #[arg(long, default_value_t = 20)]
    at_once: usize,
    /// Running pods; with 0 there are no rows of it.
    #[arg(long, default_value_t = 60)]
    present: usize,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    ensure!(args.starts > 0, "one start at least");
    let (memory, built) = staged::stage(&args.built)?;
    programs::stage_libraries(&built.bin.join("podvisor-vmm"))?;
    let mut rows = Vec::new();
    let ended = line_up(&args, &built, memory.path(), &mut rows).await;
    // Also if one of them failed.
    rows::print(&rows);
    ended
}

/// Starts all of them, one kind after the other.
async fn line_up(args: &Args, built: &Built, memory: &Path, rows: &mut Vec<Row>) -> anyhow::Result<()> {
    rows.push(floor(&args.floor, memory, args.starts)?);
    let rootfs = runtimes::unpack_image(memory)?;
    for name in runtimes::RUNTIMES {
        if let Some(runtime) = Runtime::prepare(name, &rootfs, memory)? {
            rows.push(runtime.bench(args.starts)?);
        }
    }
    match &args.firecracker {
        Some(program) if program.is_file() => {
            rows.extend(firecracker::bench(program, built, memory, args.starts).await?);
        }
        Some(program) => println!("bench: there is no {}, and Firecracker has no row", program.display()),
        None => println!("bench: no Firecracker is given, and has no row"),
    }
    rows.extend(vmms::bench(built, args.starts).await?);
    let mut host = Host::with(built).await?;
    let crowd = Crowd { at_once: args.at_once, present: args.present };
    rows.extend(pods::bench(&mut host, memory, args.starts, crowd).await?);
    host.stop().await
}

fn floor(program: &Path, memory: &Path, starts: usize) -> anyhow::Result<Row> {
    let program = programs::stage(program, memory)?;
    let took = first_bytes(starts, |_| Command::new(&program))?;
    Ok(Row::new("KVM alone, a guest of one hlt", "the guest's first exit", took))
}
