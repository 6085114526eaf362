//! Boots a kernel by hand, or restores a VM from a template, and prints the outcome:
//!
//! `boot --vmm podvisor-vmm --kernel vmlinux --root root.erofs [--memory-mib 128] [--vcpus 1] [--cmdline "…"]
//! [--seconds 10] [--port 1026]`
//!
//! With `--save DIR` a VM with the command line `-- template` is saved there after it has opened a stream.
//! With `--restore DIR` another VM continues from there.
//!
//! The program waits until the guest opens a stream to `--port`, the VM ends, or the time is over. It prints
//! the time, the counters, the console and the stop report.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Parser;
use runtime_vm::{BootPlan, Device, RestorePlan, Size, Slot, Spawn, Vm, VmError, VolumeCache};

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
    /// The directory to save the VM to.
    #[arg(long)]
    save: Option<PathBuf>,
    /// The directory of a saved VM to restore instead of booting.
    #[arg(long)]
    restore: Option<PathBuf>,
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
        program_port: None,
    };
    let size = Size::fixed(arguments.memory_mib << 20, arguments.vcpus);
    let booted = match &arguments.restore {
        Some(dir) => restore(&vm, dir, size, plan).await,
        None => vm.boot(size, plan, devices).await,
    };
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
        if let Some(dir) = &arguments.save {
            let [memory, state] = ["memory", "state"].map(|name| File::create(dir.join(name)));
            let (memory, state) = (memory?, state?);
            println!("saved after {:?}: {:?}", started.elapsed(), vm.save(&memory, &state).await);
            let blocks = std::os::unix::fs::MetadataExt::blocks(&memory.metadata()?);
            println!("memory of {} KiB, state of {} bytes", blocks / 2, state.metadata()?.len());
        }
        println!("--- console\n{}\n---", vm.console().await.unwrap_or_default());
    }
    vm.shutdown().await?;
    println!("{:?}", vm.stopped().await);
    println!("--- log\n{}", std::fs::read_to_string(&log)?);
    Ok(())
}

/// Restores the VM saved in `dir`, from copies in memory.
async fn restore(vm: &Vm, dir: &Path, size: Size, plan: BootPlan<'_>) -> Result<(), VmError> {
    use nix::fcntl::{FcntlArg, SealFlag, fcntl};
    use nix::sys::memfd::{MFdFlags, memfd_create};
    let in_memory = |name: &str| -> std::io::Result<File> {
        let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
        let mut copy = File::from(memfd_create(c"template", flags)?);
        std::io::copy(&mut File::open(dir.join(name))?, &mut copy)?;
        fcntl(&copy, FcntlArg::F_ADD_SEALS(SealFlag::F_SEAL_WRITE | SealFlag::F_SEAL_SHRINK))?;
        Ok(copy)
    };
    let [memory, state] = ["memory", "state"].map(|name| in_memory(name).map_err(VmError::Duplicate));
    let (memory, state) = (&memory?, &state?);
    let (root_image, host_ports) = (plan.root_image, plan.host_ports);
    vm.restore(
        size,
        RestorePlan {
            memory,
            state,
            first_writes: &[],
            first_reads: &[],
            root_image,
            host_ports,
            program_port: None,
        },
    )
    .await
}
