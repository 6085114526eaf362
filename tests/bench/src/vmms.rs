//! Rows of our VMM alone, without a daemon, a pod or a network, up to the agent's first message: booted, and
//! from a template. Both begin with the process.

use std::time::Instant;

use runtime_vm::Size;
use tests_e2e::built::Built;

use crate::handlers::SETTLED_WITHIN;
use crate::rows::{AGENT, RESTORED, Row};
use crate::vms::{GuestFiles, Template, boot_template, ready_stream, spawn};

/// The guest's memory, the same as the compared pods'.
const MEMORY_BYTES: u64 = 128 << 20;

/// Starts VMs in both ways.
pub(crate) async fn bench(built: &Built, starts: usize) -> anyhow::Result<Vec<Row>> {
    let (size, files) = (Size::fixed(MEMORY_BYTES, 1), GuestFiles::open(built)?);
    let mut booted = Vec::with_capacity(starts);
    for number in 0..=starts {
        tokio::time::sleep(SETTLED_WITHIN).await;
        let begun = Instant::now();
        let started = spawn(built).await?;
        started.vm.boot(size, files.boot(""), Vec::new()).await?;
        runtime_guest::ready(ready_stream(&started.vm).await?).await?;
        // The first one has cold caches.
        if number > 0 {
            booted.push(begun.elapsed());
        }
        started.vm.shutdown().await?;
    }
    let started = boot_template(built, &files, size).await?;
    let template = Template::save(&started.vm).await?;
    started.vm.shutdown().await?;
    let (mut restored, mut woken) = (Vec::with_capacity(starts), Vec::with_capacity(starts));
    for number in 0..=starts {
        tokio::time::sleep(SETTLED_WITHIN).await;
        let begun = Instant::now();
        let started = spawn(built).await?;
        started.vm.restore(size, files.restore(&template)).await?;
        let answered = begun.elapsed();
        runtime_guest::wake(started.vm.vsock_path(), &[7; 64]).await?;
        runtime_guest::ready(ready_stream(&started.vm).await?).await?;
        if number > 0 {
            restored.push(answered);
            woken.push(begun.elapsed());
        }
        started.vm.shutdown().await?;
    }
    let how = "podvisor-vmm, from a template";
    Ok(vec![
        Row::new("podvisor-vmm, boots", AGENT, booted),
        Row::new(how, RESTORED, restored),
        Row::new(how, AGENT, woken),
    ])
}
