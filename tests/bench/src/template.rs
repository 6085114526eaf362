//! Measures a start from a template beside a boot, up to the agent's report that it serves: instructions and exits. The guests
//! have no pod.

use std::fs::File;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, bail};
use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::time::{ClockId, clock_gettime};
use proto_agent::port;
use runtime_vm::{BootPlan, RestorePlan, Size, Spawn, Vm, VolumeCache};
use tests_e2e::built::Built;

use crate::figures::millions;

/// Longest wait for the agent: even in the slowest node a guest that boots is ready before.
const READY_TIMEOUT: Duration = Duration::from_secs(300);

/// A VMM's directory, and the VMM.
struct Started {
    vm: Vm,
    _dir: tempfile::TempDir,
}

/// Saves a guest, starts others from it, and prints what each cost.
pub(crate) async fn bench(built: &Built, starts: u32, memory_bytes: u64) -> anyhow::Result<()> {
    let size = Size::fixed(memory_bytes, 1);
    let kernel = File::open(built.guest_image.join("vmlinux"))?;
    let root_image = File::open(built.guest_image.join("root.erofs"))?;
    let host_ports = &[port::READY];
    let cmdline = format!("-- {}", proto_agent::TEMPLATE_ARGUMENT);
    let program_port = None;
    let plan =
        |cmdline| BootPlan { kernel: &kernel, root_image: &root_image, cmdline, host_ports, program_port };

    let started = spawn(built).await?;
    let begin = now()?;
    started.vm.boot(size, plan(""), Vec::new()).await?;
    ready(&started.vm).await.context("the guest that boots")?;
    let boot = now()?.saturating_sub(begin);
    started.vm.shutdown().await?;

    let started = spawn(built).await?;
    started.vm.boot(size, plan(&cmdline), Vec::new()).await?;
    runtime_guest::ready_and_done(started.vm.guest_stream(port::READY).await?).await?;
    let (memory, state) = (in_memory()?, in_memory()?);
    let begin = now()?;
    started.vm.save(&memory, &state).await?;
    let saved = now()?.saturating_sub(begin);
    started.vm.shutdown().await?;
    fcntl(&memory, FcntlArg::F_ADD_SEALS(SealFlag::F_SEAL_WRITE | SealFlag::F_SEAL_SHRINK))?;
    let kib = std::os::unix::fs::MetadataExt::blocks(&memory.metadata()?) / 2;
    println!(
        "bench: template: saved with {:.1} M instructions; {kib} KiB of memory and {} bytes of state",
        millions(saved),
        state.metadata()?.len(),
    );
    for number in 1..=starts {
        let started = spawn(built).await?;
        let begin = now()?;
        let plan = RestorePlan {
            memory: &memory,
            state: &state,
            first_writes: &[],
            root_image: &root_image,
            host_ports,
            program_port,
        };
        started.vm.restore(size, plan).await?;
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

async fn spawn(built: &Built) -> anyhow::Result<Started> {
    let dir = tempfile::Builder::new().prefix("podvisor-bench-").tempdir()?;
    let shared = dir.path().join("shared");
    std::fs::create_dir(&shared)?;
    let spawn = Spawn {
        binary: &built.bin.join("podvisor-vmm"),
        dir: dir.path(),
        shared: &shared,
        volume_cache: VolumeCache::default(),
        cgroups: &[],
        id: "bench",
        log: File::create(dir.path().join("vmm.log"))?,
        // As the daemon has it.
        console: Some(File::create(dir.path().join("console.log"))?),
    };
    Ok(Started { vm: Vm::spawn(spawn).await?, _dir: dir })
}

/// Waits for the agent's report.
async fn ready(vm: &Vm) -> anyhow::Result<()> {
    let stream = tokio::select! {
        stream = vm.guest_stream(port::READY) => stream?,
        report = vm.stopped() => bail!("the guest ended: {:?}\n{}", report.reason, report.console),
        () = tokio::time::sleep(READY_TIMEOUT) => bail!("the guest said nothing; its console:\n{}", vm.console().await?),
    };
    runtime_guest::ready(stream).await?;
    Ok(())
}

fn in_memory() -> anyhow::Result<File> {
    let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
    Ok(memfd_create(c"template", flags)?.into())
}

fn now() -> anyhow::Result<Duration> {
    Ok(clock_gettime(ClockId::CLOCK_MONOTONIC)?.into())
}

/// Page faults of the process that no disk was read for.
fn faults(pid: u32) -> anyhow::Result<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // `minflt`, the 10th field of proc_pid_stat(5); the 2nd is a name that may have spaces.
    let behind_name = stat.rsplit(')').next().unwrap_or_default();
    Ok(behind_name.split_whitespace().nth(7).context("a short line")?.parse()?)
}

/// Memory that the process has written to, in KiB.
fn private_kib(pid: u32) -> anyhow::Result<u64> {
    let text = std::fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("smaps_rollup"))?;
    let lines = text.lines().filter(|line| line.starts_with("Private_Dirty"));
    lines
        .map(|line| Ok(line.split_whitespace().nth(1).context("a line without a number")?.parse::<u64>()?))
        .sum()
}
