//! Measures a boot from the guest's first instruction until the agent serves: instructions and exits.

use std::time::Duration;

use anyhow::{Context, bail};
use nix::time::{ClockId, clock_gettime};
use proto_vmm::{ExitCounts, VmStats};
use runtime_vm::Size;
use tests_e2e::built::Built;

use crate::figures::millions;
use crate::vms::{GuestFiles, ready_stream, spawn};

/// The design's budget and its aim, millions of instructions.
const BUDGET_MILLIONS: f64 = 120.0;
const AIM_MILLIONS: f64 = 60.0;

/// One boot.
struct Boot {
    to_ready: Duration,
    vmm: Duration,
    in_agent: Duration,
    kernel_clock: Duration,
    exits: ExitCounts,
}

/// Boots guests one after the other and prints the cost of each.
pub(crate) async fn bench(built: &Built, boots: u32, memory_bytes: u64) -> anyhow::Result<()> {
    let mut last = None;
    for number in 1..=boots {
        let boot = boot(built, memory_bytes).await.with_context(|| format!("boot {number}"))?;
        println!(
            "bench: boot {number}: {:.1} M instructions from kernel entry to agent-ready ({:.1} M of them in the agent, \
             {:.1} M by the kernel's own clock), {:.1} M before entry in the VMM",
            millions(boot.to_ready),
            millions(boot.in_agent),
            millions(boot.kernel_clock),
            millions(boot.vmm),
        );
        last = Some(boot);
    }
    let Some(last) = last else { bail!("no boot was asked for") };
    let exits = last.exits;
    println!(
        "bench: exits to agent-ready: {} MMIO reads, {} MMIO writes, {} port reads, {} port writes, {} others",
        exits.mmio_read,
        exits.mmio_write,
        exits.pio_in,
        exits.pio_out,
        exits.halt + exits.other,
    );
    let count = millions(last.to_ready);
    println!(
        "bench: to agent-ready {count:.1} M, {:.2} of the budget of {BUDGET_MILLIONS} M, {:.2} of the aim of {AIM_MILLIONS} M",
        count / BUDGET_MILLIONS,
        count / AIM_MILLIONS,
    );
    Ok(())
}

async fn boot(built: &Built, memory_bytes: u64) -> anyhow::Result<Boot> {
    let (started, files) = (spawn(built).await?, GuestFiles::open(built)?);
    let vm = &started.vm;
    vm.boot(Size::fixed(memory_bytes, 1), files.boot(""), Vec::new()).await?;
    let stream = ready_stream(vm).await?;
    let now = Duration::from(clock_gettime(ClockId::CLOCK_MONOTONIC)?);
    let ready = runtime_guest::ready(stream).await?;
    let VmStats { exits, boot_requested_ns, guest_entered_ns, .. } = vm.stats().await?;
    vm.shutdown().await?;
    Ok(Boot {
        to_ready: now.saturating_sub(Duration::from_nanos(guest_entered_ns)),
        vmm: Duration::from_nanos(guest_entered_ns.saturating_sub(boot_requested_ns)),
        kernel_clock: Duration::from_nanos(ready.entered_ns),
        in_agent: Duration::from_nanos(ready.ready_ns.saturating_sub(ready.entered_ns)),
        exits,
    })
}
