//! Measures a start from a template beside a boot, up to the agent's readiness: instructions and exits. The
//! guests have no pod.

use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use nix::time::{ClockId, clock_gettime};
use runtime_vm::{Size, Vm};
use tests_e2e::built::Built;

use crate::figures::millions;
use crate::vms::{GuestFiles, Template, boot_template, ready_stream, spawn};

/// Saves a guest, starts others from it, and prints the cost of each.
pub(crate) async fn bench(built: &Built, starts: u32, memory_bytes: u64) -> anyhow::Result<()> {
    let size = Size::fixed(memory_bytes, 1);
    let files = GuestFiles::open(built)?;

    let started = spawn(built).await?;
    let begin = now()?;
    started.vm.boot(size, files.boot(""), Vec::new()).await?;
    ready(&started.vm).await.context("the guest that boots")?;
    let boot = now()?.saturating_sub(begin);
    started.vm.shutdown().await?;

    let started = boot_template(built, &files, size).await?;
    let begin = now()?;
    let template = Template::save(&started.vm).await?;
    let saved = now()?.saturating_sub(begin);
    started.vm.shutdown().await?;
    let kib = std::os::unix::fs::MetadataExt::blocks(&template.memory.metadata()?) / 2;
    println!(
        "bench: template: saved with {:.1} M instructions; {kib} KiB of memory and {} bytes of state",
        millions(saved),
        template.state.metadata()?.len(),
    );
    for number in 1..=starts {
        let started = spawn(built).await?;
        let begin = now()?;
        started.vm.restore(size, files.restore(&template)).await?;
        let restored = now()?;
        runtime_guest::wake(started.vm.vsock_path(), &[7; 64]).await?;
        let woken = now()?;
        ready(&started.vm).await.context("the guest that is restored")?;
        let total = now()?.saturating_sub(begin);
        let exits = started.vm.stats().await?.exits;
        println!(
            "bench: template {number}: {:.1} M instructions to agent-ready ({:.1} M to the restore, {:.1} M to the wake-up), \
             {:.2} of a boot's {:.1} M; {} MMIO and {} port exits; {} page faults of the VMM's, {} KiB of its own",
            millions(total),
            millions(restored.saturating_sub(begin)),
            millions(woken.saturating_sub(restored)),
            millions(total) / millions(boot),
            millions(boot),
            exits.mmio_read + exits.mmio_write,
            exits.pio_in + exits.pio_out,
            faults(started.vm.pid())?,
            private_kib(started.vm.pid())?,
        );
        started.vm.shutdown().await?;
    }
    Ok(())
}

/// Waits for the agent's report.
async fn ready(vm: &Vm) -> anyhow::Result<()> {
    runtime_guest::ready(ready_stream(vm).await?).await?;
    Ok(())
}

fn now() -> anyhow::Result<Duration> {
    Ok(clock_gettime(ClockId::CLOCK_MONOTONIC)?.into())
}

/// Page faults of the process without disk reads.
fn faults(pid: u32) -> anyhow::Result<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // `minflt`, the 10th field of proc_pid_stat(5); the 2nd is a name, possibly with spaces.
    let behind_name = stat.rsplit(')').next().unwrap_or_default();
    Ok(behind_name.split_whitespace().nth(7).context("a short line")?.parse()?)
}

/// Memory written by the process, in KiB.
fn private_kib(pid: u32) -> anyhow::Result<u64> {
    let text = std::fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("smaps_rollup"))?;
    let lines = text.lines().filter(|line| line.starts_with("Private_Dirty"));
    lines
        .map(|line| Ok(line.split_whitespace().nth(1).context("a line without a number")?.parse::<u64>()?))
        .sum()
}
