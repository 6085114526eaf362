//! `make bench`: what a pod's start costs, counted and not timed.
//!
//! It runs in the software node under `-icount shift=1`, where one CPU's clock advances by two
//! nanoseconds with each instruction and waiting costs nothing. So a duration there *is* a number of
//! instructions: of the guest, and of what KVM and the VMM do on its behalf in between. The same build
//! gives the same counts whatever else the machine does.

#![forbid(unsafe_code)]

mod boot;
mod pod;

use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;
use tests_e2e::host::Built;

/// Virtual nanoseconds per instruction under `-icount shift=1` (2 to the power of the shift).
const NS_PER_INSTRUCTION: f64 = 2.0;

#[derive(Debug, Parser)]
struct Args {
    /// Directory of `podvisor` and `podvisor-vmm`.
    #[arg(long)]
    bin: PathBuf,
    /// Directory of `vmlinux`, `root.erofs` and `scratch.ext4`.
    #[arg(long)]
    guest_image: PathBuf,
    /// Guests booted; the first one pays for cold caches of the node and is shown apart.
    #[arg(long, default_value_t = 3)]
    boots: u32,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let built = Built { bin: args.bin, guest_image: args.guest_image };
    boot::bench(&built, args.boots).await?;
    pod::bench(&built).await
}

/// Millions of instructions that fit into a duration of the node's clock.
fn millions(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e9 / NS_PER_INSTRUCTION / 1e6
}
