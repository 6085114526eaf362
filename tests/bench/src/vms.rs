//! VMs without a pod and without a daemon: a started VMM, its agent's report, and a guest saved as a
//! template.

use std::fs::File;
use std::time::Duration;

use anyhow::bail;
use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use proto_agent::port;
use runtime_vm::{BootPlan, RestorePlan, Size, Spawn, Vm, VolumeCache};
use tests_e2e::built::Built;
use tokio::net::UnixStream;

/// Longest wait for the agent: even in the slowest node a booting guest is ready before.
const READY_TIMEOUT: Duration = Duration::from_secs(300);

/// The guest's ports of the host.
const HOST_PORTS: &[u32] = &[port::READY];

/// A VMM's directory, and the VMM.
pub(crate) struct Started {
    pub(crate) vm: Vm,
    _dir: tempfile::TempDir,
}

/// Files for starting guests.
pub(crate) struct GuestFiles {
    kernel: File,
    root_image: File,
}

/// A saved guest with a waiting agent.
pub(crate) struct Template {
    pub(crate) memory: File,
    pub(crate) state: File,
}

impl GuestFiles {
    pub(crate) fn open(built: &Built) -> anyhow::Result<GuestFiles> {
        let open = |name| File::open(built.guest_image.join(name));
        Ok(GuestFiles { kernel: open("vmlinux")?, root_image: open("root.erofs")? })
    }

    /// The boot of a guest, with this addition to its command line.
    pub(crate) fn boot<'a>(&'a self, cmdline: &'a str) -> BootPlan<'a> {
        let (kernel, root_image) = (&self.kernel, &self.root_image);
        BootPlan { kernel, root_image, cmdline, host_ports: HOST_PORTS, program_port: None }
    }

    /// The start of a guest from the template.
    pub(crate) fn restore<'a>(&'a self, template: &'a Template) -> RestorePlan<'a> {
        RestorePlan {
            memory: &template.memory,
            state: &template.state,
            first_writes: &[],
            first_reads: &[],
            root_image: &self.root_image,
            host_ports: HOST_PORTS,
            program_port: None,
        }
    }
}

impl Template {
    /// Saves a guest with a waiting agent.
    pub(crate) async fn save(vm: &Vm) -> anyhow::Result<Template> {
        let (memory, state) = (in_memory()?, in_memory()?);
        vm.save(&memory, &state).await?;
        fcntl(&memory, FcntlArg::F_ADD_SEALS(SealFlag::F_SEAL_WRITE | SealFlag::F_SEAL_SHRINK))?;
        Ok(Template { memory, state })
    }
}

/// Boots a guest until its agent waits, to be saved.
pub(crate) async fn boot_template(built: &Built, files: &GuestFiles, size: Size) -> anyhow::Result<Started> {
    let started = spawn(built).await?;
    let cmdline = format!("-- {}", proto_agent::TEMPLATE_ARGUMENT);
    started.vm.boot(size, files.boot(&cmdline), Vec::new()).await?;
    runtime_guest::ready_and_done(started.vm.guest_stream(port::READY).await?).await?;
    Ok(started)
}

/// Starts a VMM without a guest.
pub(crate) async fn spawn(built: &Built) -> anyhow::Result<Started> {
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

/// Waits for the stream of the agent's report.
pub(crate) async fn ready_stream(vm: &Vm) -> anyhow::Result<UnixStream> {
    tokio::select! {
        stream = vm.guest_stream(port::READY) => Ok(stream?),
        report = vm.stopped() => bail!("the guest ended: {:?}\n{}", report.reason, report.console),
        () = tokio::time::sleep(READY_TIMEOUT) => bail!("the guest said nothing; its console:\n{}", vm.console().await?),
    }
}

fn in_memory() -> anyhow::Result<File> {
    let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
    Ok(memfd_create(c"template", flags)?.into())
}
