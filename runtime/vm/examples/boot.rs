//! Boots a kernel by hand and prints what became of it:
//!
//! `boot --vmm podvisor-vmm --kernel vmlinux --root root.erofs [--memory-mib 128] [--vcpus 1]
//!  [--cmdline "…"] [--seconds 10] [--port 1026]`
//!
//! The program waits until the guest opens a stream to `--port`, ends, or the time is over, and prints when
//! that was, the counters, the console and the stop report.

use std::fs::File;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Parser;
use runtime_vm::{BootPlan, Device, Size, Slot, Spawn, Vm, VolumeCache};

#[derive(Debug, Parser)]
struct Arguments {
    #[arg(long)]
    vmm: PathBuf,
    #[arg(long)]
    kernel: PathBuf,
    #[arg(long)]
    root: PathBuf,
    #[arg(long, default_value_t = 128)]
    memory_mib: u64,
    #[arg(long, default_value_t = 1)]
    vcpus: u8,
    #[arg(long, default_value = "")]
    cmdline: String,
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    #[arg(long, default_value_t = 1026)]
    port: u32,
    /// A disk for the scratch slot, from the start.
    #[arg(long)]
    disk: Option<PathBuf>,
    /// An image plugged into the first pmem slot, a moment after boot.
    #[arg(long)]
    image: Option<PathBuf>,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    let dir = tempfile::tempdir()?;
    let log = dir.path().join("log");
    let started = Instant::now();
    let shared = dir.path().join("shared");
    std::fs::create_dir(&shared)?;
    let spawn = Spawn {
        binary: &arguments.vmm,
        dir: dir.path(),
        shared: &shared,
        volume_cache: VolumeCache::default(),
        cgroups: &[],
        id: "by-hand",
        log: File::create(&log)?,
        console: None,
    };
    let vm = Vm::spawn(spawn).await?;
    println!("spawned after {:?}", started.elapsed());
    let kernel = File::open(&arguments.kernel)?;
    let root = File::open(&arguments.root)?;
    let mut devices = Vec::new();
    if let Some(disk) = &arguments.disk {
        let image = File::options().read(true).write(true).open(disk)?;
        devices.push((Slot::SCRATCH, Device::Blk { image: image.into(), read_only: false }));
    }
    let plan = BootPlan {
        kernel: &kernel,
        root_image: &root,
        cmdline: &arguments.cmdline,
        host_ports: &[arguments.port],
    };
    let booted = vm.boot(Size::fixed(arguments.memory_mib << 20, arguments.vcpus), plan, devices).await;
    println!("booted after {:?}: {booted:?}", started.elapsed());
    if let (Ok(()), Some(image), Some(slot)) = (&booted, &arguments.image, Slot::pmems().next()) {
        println!("plugged: {:?}", vm.plug(slot, Device::Pmem { image: File::open(image)?.into() }).await);
    }
    if booted.is_ok() {
        let patience = Duration::from_secs(arguments.seconds);
        match tokio::time::timeout(patience, vm.guest_stream(arguments.port)).await {
            Ok(outcome) => {
                println!("stream after {:?}: {:?}", started.elapsed(), outcome.map(|_| "opened"));
            }
            Err(_) => println!("no stream to port {} in {patience:?}", arguments.port),
        }
        println!("{:?}", vm.stats().await);
        println!("--- console\n{}\n---", vm.console().await.unwrap_or_default());
    }
    vm.shutdown().await?;
    println!("{:?}", vm.stopped().await);
    println!("--- log\n{}", std::fs::read_to_string(&log)?);
    Ok(())
}
