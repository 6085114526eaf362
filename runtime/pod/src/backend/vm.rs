//! Pods' VMs: one VMM process each.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use proto_agent::port;
use proto_vmm::{Device, FilledSlot, PageRun, Slot, StopReport, VmStats};
use runtime_blocking::Pool;
use runtime_spans::{span, step};
use runtime_spec::{VmBounds, VolumeCache};
use runtime_vm::{BootPlan, RestorePlan, Size, Spawn, VmError};
use tokio::net::UnixStream;
use tokio::sync::watch;

use super::agent::{self, Agent, GuestReleases};
use super::error::{BackendError, BackendErrorKind};
use crate::host::logs::{self, VmmFiles};
use crate::host::{shared_dir, vmm_process};
use crate::installed::InstalledFile;
use crate::record::VmmProcess;

/// The source of VMs.
#[async_trait]
pub(crate) trait Vms: Debug + Send + Sync {
    /// Starts a VMM without a guest.
    async fn spawn(&self, request: SpawnRequest) -> Result<Arc<dyn Vm>, BackendError>;
    /// Finds a VMM started by an earlier daemon.
    async fn attach(&self, dir: &Path, vmm: VmmProcess) -> Result<Arc<dyn Vm>, BackendError>;
    /// Kills the VMM on record. If this one has ended, or none is on record, kills the holders of the control
    /// socket. An ended VMM is no error.
    async fn kill(&self, vmm: Option<VmmProcess>, control_socket: &Path) -> Result<(), BackendError>;
}

/// A VMM to start.
#[derive(Debug)]
pub(crate) struct SpawnRequest {
    pub(crate) id: String,
    /// An existing directory for the sockets.
    pub(crate) dir: PathBuf,
    /// The tmpfs with the VMM's logs, and with its root for the guest's access to the host's files. The call
    /// makes it.
    pub(crate) shared: PathBuf,
    /// The guest's cache of those files.
    pub(crate) volume_cache: VolumeCache,
    /// The cgroups to enter, one in each hierarchy of the node.
    pub(crate) cgroups: Vec<PathBuf>,
}

/// A VM to boot.
#[derive(Debug)]
pub(crate) struct BootRequest {
    pub(crate) bounds: VmBounds,
    pub(crate) kernel: File,
    pub(crate) root_image: File,
    /// Whether programs of the guest's containers may open streams to the daemon.
    pub(crate) program_port: bool,
}

/// A VM to be saved as a template.
#[derive(Debug)]
pub(crate) struct TemplateRequest {
    pub(crate) bounds: VmBounds,
    pub(crate) kernel: File,
    pub(crate) root_image: File,
}

/// A template, as a VMM gets it.
#[derive(Debug)]
pub(crate) struct TemplateParts {
    /// The guest's memory, sealed.
    pub(crate) memory: File,
    /// The state beside it, sealed.
    pub(crate) state: File,
    /// Pages of the memory written early by the guest.
    pub(crate) first_writes: Vec<PageRun>,
    /// Further pages read early by the guest.
    pub(crate) first_reads: Vec<PageRun>,
}

/// A VM to start from a template.
#[derive(Debug)]
pub(crate) struct RestoreRequest {
    pub(crate) bounds: VmBounds,
    pub(crate) template: TemplateParts,
    pub(crate) root_image: File,
    /// Whether programs of the guest's containers may open streams to the daemon.
    pub(crate) program_port: bool,
}

/// One pod's VM.
#[async_trait]
pub(crate) trait Vm: Debug + Send + Sync {
    fn pid(&self) -> u32;
    /// Bytes that the VMM's process has written to file systems and disks so far; 0 if unknown.
    fn written_bytes(&self) -> u64;
    /// The start time of the VMM's process, in clock ticks since the host's boot.
    fn start_time(&self) -> u64;
    /// The VMM's release of Podvisor, as it reports it.
    fn release(&self) -> String;
    /// Whether the VMM has slots for volumes.
    fn has_volume_slots(&self) -> bool;
    /// Whether the VMM has a balloon to plug.
    fn has_balloon(&self) -> bool;
    /// Whether the VMM lets programs of its guest open streams to a port of their own.
    fn has_program_port(&self) -> bool;
    /// Waits for the next stream opened by a program of the guest.
    async fn program_stream(&self) -> Result<UnixStream, BackendError>;
    async fn boot(&self, request: BootRequest) -> Result<(), BackendError>;
    /// Boots a guest for a template, and waits until its agent is idle.
    async fn boot_template(&self, request: TemplateRequest) -> Result<(), BackendError>;
    /// Pauses such a guest for good and writes it to two empty files: its memory and its state.
    async fn save(&self, memory: &File, state: &File) -> Result<(), BackendError>;
    /// Starts the VM from a template instead of `boot`. After a failure of kind [`BackendErrorKind::Refused`]
    /// the VM can still be booted. On success the VM has its devices and runs; its agent waits for `wake`.
    async fn restore(&self, request: RestoreRequest) -> Result<(), BackendError>;
    /// Wakes the agent of a restored guest with unique random numbers.
    async fn wake(&self) -> Result<(), BackendError>;
    /// Waits until the booted guest's agent reports it is ready, and connects to it.
    async fn wait_ready(&self) -> Result<(Arc<dyn Agent>, GuestReleases), BackendError>;
    /// Connects to an agent that is already serving.
    async fn connect(&self) -> Result<Arc<dyn Agent>, BackendError>;
    async fn plug(&self, slot: Slot, device: Device<OwnedFd>) -> Result<(), BackendError>;
    async fn unplug(&self, slot: Slot) -> Result<(), BackendError>;
    /// Ends the waits of killed processes for file locks of volumes.
    async fn interrupt_lock_waits(&self, pids: &[u32]) -> Result<(), BackendError>;
    /// Carries out the guest's requests for files of the node with these supplementary groups.
    async fn share_groups(&self, groups: &BTreeSet<u32>) -> Result<(), BackendError>;
    /// All filled slots, regardless of who plugged the devices.
    async fn filled_slots(&self) -> Result<Vec<FilledSlot>, BackendError>;
    /// Offers the guest memory of this total size, through the device in [`Slot::MEM`]. The guest takes it or
    /// gives it back in its own time.
    async fn resize(&self, memory_bytes: u64) -> Result<(), BackendError>;
    /// Resolves when the guest has taken all memory offered by the last `resize`, or given back as much.
    async fn resized(&self);
    /// Makes vCPUs until there are so many, for the agent to bring up.
    async fn make_vcpus(&self, count: u8) -> Result<(), BackendError>;
    /// Binds the VMM and its share to these CPUs of the host; an empty list removes the binding.
    async fn pin(&self, cpus: &[u32]) -> Result<(), BackendError>;
    /// Moves the VMM to these cgroups, one in each hierarchy of the node. Memory taken so far stays accounted
    /// to the old ones.
    async fn enter_cgroups(&self, cgroups: &[PathBuf]) -> Result<(), BackendError>;
    /// Sets the VMM's OOM score on the host, -1000 to 1000: a higher one is killed first when memory is
    /// short.
    async fn set_oom_score(&self, score: i32) -> Result<(), BackendError>;
    /// Number of the VM's disks waiting for free space on the node, as it changes.
    fn full_disks(&self) -> watch::Receiver<u32>;
    async fn stats(&self) -> Result<VmStats, BackendError>;
    async fn console(&self) -> Result<String, BackendError>;
    /// Ends the VMM, and returns when its process is gone. The call is idempotent.
    async fn shutdown(&self) -> Result<(), BackendError>;
    /// Resolves when the VM has ended. It may be called any number of times.
    async fn stopped(&self) -> StopReport;
}

/// VMs in VMM processes of our own.
#[derive(Debug)]
pub(crate) struct SpawnedVms {
    pub(crate) binary: InstalledFile,
    /// Threads for searching `/proc`.
    pub(crate) kernel: Pool,
}

#[async_trait]
impl Vms for SpawnedVms {
    async fn spawn(&self, request: SpawnRequest) -> Result<Arc<dyn Vm>, BackendError> {
        shared_dir::make(&request.shared).map_err(|error| {
            BackendError::failed(format!("mounting {}: {error}", request.shared.display()))
        })?;
        let logs_dir = request.shared.join(shared_dir::LOGS);
        let VmmFiles { log, console } = logs::make_files(&logs_dir).map_err(|error| {
            BackendError::failed(format!("making the VMM's logs in {}: {error}", logs_dir.display()))
        })?;
        let spawn = Spawn {
            binary: &self.binary.path(),
            dir: &request.dir,
            shared: &request.shared.join(shared_dir::ROOT),
            volume_cache: match request.volume_cache {
                VolumeCache::None => proto_vmm::VolumeCache::None,
                VolumeCache::Auto => proto_vmm::VolumeCache::Auto,
                VolumeCache::Always => proto_vmm::VolumeCache::Always,
            },
            cgroups: &request.cgroups,
            id: &request.id,
            log,
            console: Some(console),
        };
        Ok(Arc::new(SpawnedVm(runtime_vm::Vm::spawn(spawn).await?)))
    }

    async fn attach(&self, dir: &Path, vmm: VmmProcess) -> Result<Arc<dyn Vm>, BackendError> {
        if !vmm_process::alive(vmm) {
            return Err(BackendError::new(BackendErrorKind::Ended, "its VMM has ended"));
        }
        Ok(Arc::new(SpawnedVm(runtime_vm::Vm::attach(dir, vmm.pid, vmm.start_time).await?)))
    }

    async fn kill(&self, vmm: Option<VmmProcess>, control_socket: &Path) -> Result<(), BackendError> {
        let socket = control_socket.to_owned();
        let find = move || match vmm.filter(|vmm| vmm_process::alive(*vmm)) {
            Some(vmm) => vec![vmm],
            None => vmm_process::find(&socket),
        };
        for process in self.kernel.run(find).await? {
            vmm_process::kill(process).await.map_err(BackendError::failed)?;
        }
        Ok(())
    }
}

/// A VM in a VMM process of our own.
#[derive(Debug)]
struct SpawnedVm(runtime_vm::Vm);

#[async_trait]
impl Vm for SpawnedVm {
    fn pid(&self) -> u32 {
        self.0.pid()
    }

    fn written_bytes(&self) -> u64 {
        vmm_process::written_bytes(self.0.pid())
    }

    fn start_time(&self) -> u64 {
        self.0.start_time()
    }

    fn release(&self) -> String {
        self.0.release().to_owned()
    }

    fn has_volume_slots(&self) -> bool {
        self.0.has_volume_slots()
    }

    fn has_balloon(&self) -> bool {
        self.0.has_balloon()
    }

    fn has_program_port(&self) -> bool {
        self.0.has_program_port()
    }

    async fn program_stream(&self) -> Result<UnixStream, BackendError> {
        Ok(self.0.guest_stream(port::HOST_SOCKET).await?)
    }

    async fn boot(&self, request: BootRequest) -> Result<(), BackendError> {
        let BootRequest { bounds, kernel, root_image, program_port } = request;
        let share = runtime_vm::Device::Fs { tag: proto_agent::SHARE_TAG.to_owned() };
        let devices = vec![(Slot::FS, share)];
        let plan = BootPlan {
            kernel: &kernel,
            root_image: &root_image,
            cmdline: "",
            host_ports: &[port::READY],
            program_port: program_port.then_some(port::HOST_SOCKET),
        };
        Ok(self.0.boot(size(&bounds), plan, devices).await?)
    }

    async fn boot_template(&self, request: TemplateRequest) -> Result<(), BackendError> {
        let TemplateRequest { bounds, kernel, root_image } = request;
        if !self.0.has_templates() {
            return Err(VmError::NoTemplates { release: self.release() }.into());
        }
        let (cmdline, host_ports) = (&format!("-- {}", proto_agent::TEMPLATE_ARGUMENT), &[port::READY]);
        let program_port = None;
        let plan = BootPlan { kernel: &kernel, root_image: &root_image, cmdline, host_ports, program_port };
        self.0.boot(size(&bounds), plan, Vec::new()).await?;
        agent::waits(self.0.guest_stream(port::READY).await?).await
    }

    async fn save(&self, memory: &File, state: &File) -> Result<(), BackendError> {
        Ok(self.0.save(memory, state).await?)
    }

    async fn restore(&self, request: RestoreRequest) -> Result<(), BackendError> {
        let RestoreRequest { bounds, template, root_image, program_port } = request;
        let plan = RestorePlan {
            memory: &template.memory,
            state: &template.state,
            first_writes: &template.first_writes,
            first_reads: &template.first_reads,
            root_image: &root_image,
            host_ports: &[port::READY],
            program_port: program_port.then_some(port::HOST_SOCKET),
        };
        self.0.restore(size(&bounds), plan).await?;
        // A running guest cannot be booted any more.
        let late = |error: VmError| BackendError::new(BackendErrorKind::Unreachable, error);
        let share = runtime_vm::Device::Fs { tag: proto_agent::SHARE_TAG.to_owned() };
        self.0.plug(Slot::FS, share).await.map_err(late)?;
        // The template has one vCPU.
        if bounds.boot.vcpus > 1 {
            self.0.make_vcpus(bounds.boot.vcpus).await.map_err(late)?;
        }
        Ok(())
    }

    async fn wake(&self) -> Result<(), BackendError> {
        agent::wake(self.0.vsock_path()).await
    }

    async fn wait_ready(&self) -> Result<(Arc<dyn Agent>, GuestReleases), BackendError> {
        let waiting = async {
            let stream = self.0.guest_stream(port::READY).await?;
            agent::ready(stream).await
        };
        let releases = step(span!("wait for the agent"), waiting).await?;
        let agent = step(span!("connect to the agent"), agent::connect(self.0.vsock_path())).await?;
        Ok((agent, releases))
    }

    async fn connect(&self) -> Result<Arc<dyn Agent>, BackendError> {
        agent::reconnect(self.0.vsock_path()).await
    }

    async fn plug(&self, slot: Slot, device: Device<OwnedFd>) -> Result<(), BackendError> {
        Ok(self.0.plug(slot, device).await?)
    }

    async fn unplug(&self, slot: Slot) -> Result<(), BackendError> {
        Ok(self.0.unplug(slot).await?)
    }

    async fn interrupt_lock_waits(&self, pids: &[u32]) -> Result<(), BackendError> {
        Ok(self.0.interrupt_lock_waits(pids).await?)
    }

    async fn share_groups(&self, groups: &BTreeSet<u32>) -> Result<(), BackendError> {
        Ok(self.0.share_groups(groups).await?)
    }

    async fn filled_slots(&self) -> Result<Vec<FilledSlot>, BackendError> {
        Ok(self.0.filled_slots().await?)
    }

    async fn resize(&self, memory_bytes: u64) -> Result<(), BackendError> {
        Ok(self.0.resize(memory_bytes).await?)
    }

    async fn resized(&self) {
        self.0.resized().await;
    }

    async fn make_vcpus(&self, count: u8) -> Result<(), BackendError> {
        Ok(self.0.make_vcpus(count).await?)
    }

    async fn pin(&self, cpus: &[u32]) -> Result<(), BackendError> {
        Ok(self.0.pin(cpus)?)
    }

    async fn enter_cgroups(&self, cgroups: &[PathBuf]) -> Result<(), BackendError> {
        Ok(self.0.enter_cgroups(cgroups)?)
    }

    async fn set_oom_score(&self, score: i32) -> Result<(), BackendError> {
        Ok(self.0.set_oom_score(score)?)
    }

    fn full_disks(&self) -> watch::Receiver<u32> {
        self.0.full_disks()
    }

    async fn stats(&self) -> Result<VmStats, BackendError> {
        Ok(self.0.stats().await?)
    }

    async fn console(&self) -> Result<String, BackendError> {
        Ok(self.0.console().await?)
    }

    async fn shutdown(&self) -> Result<(), BackendError> {
        Ok(self.0.shutdown().await?)
    }

    async fn stopped(&self) -> StopReport {
        self.0.stopped().await
    }
}

fn size(bounds: &VmBounds) -> Size {
    Size {
        memory_bytes: bounds.boot.memory_bytes,
        memory_max_bytes: bounds.most.memory_bytes,
        vcpus: bounds.boot.vcpus,
        vcpus_max: bounds.most.vcpus,
    }
}

impl From<VmError> for BackendError {
    fn from(error: VmError) -> Self {
        let kind = match &error {
            VmError::Refused { .. } | VmError::NoTemplates { .. } => BackendErrorKind::Refused,
            VmError::Old { .. } | VmError::Version { .. } => BackendErrorKind::Precondition,
            VmError::Pin { .. } => BackendErrorKind::Invalid,
            _ => BackendErrorKind::Unreachable,
        };
        BackendError::new(kind, error)
    }
}
