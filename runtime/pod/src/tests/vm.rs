//! Networks, VMs and images that exist in memory only.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use proto_vmm::{Device, FilledSlot, Slot, StopReason, StopReport, VmStats};
use runtime_net::{PodInterface, PodNetwork, PodNetworkSpec};
use runtime_spec::ImageConfig;
use tokio::net::UnixStream;
use tokio::sync::watch;

use super::Script;
use super::agent::FakeAgent;
use super::script::unreachable;
use crate::backend::{
    Agent, BackendError, BackendErrorKind, BootRequest, FoundImage, GuestReleases, ImageLease, ImageSource,
    Network, OpenedImage, RestoreRequest, SpawnRequest, TemplateRequest, Vm, Vms,
};
use crate::record::VmmProcess;

#[derive(Debug)]
pub(crate) struct FakeNetwork(pub(crate) Arc<Script>);

#[async_trait]
impl Network for FakeNetwork {
    async fn setup(&self, spec: &PodNetworkSpec) -> Result<PodNetwork, BackendError> {
        self.0.step("network.setup").await?;
        {
            let mut state = self.0.state();
            state.networks.insert(spec.pod_id.clone());
            state.spare_networks = state.spare_networks.saturating_sub(1);
        }
        self.0.done("network.setup").await?;
        let address: IpAddr = "10.1.0.7".parse().unwrap();
        Ok(PodNetwork {
            netns: PathBuf::from("/run/netns/fake"),
            interfaces: vec![PodInterface {
                name: "eth0".into(),
                mac: [2, 0, 0, 0, 0, 1],
                mtu: 1450,
                addresses: vec!["10.1.0.7/24".into()],
                tap: File::open("/dev/null")?.into(),
            }],
            routes: Vec::new(),
            neighbours: Vec::new(),
            ips: vec![address],
            settings: self.0.state().settings.clone(),
        })
    }

    async fn teardown(&self, spec: &PodNetworkSpec) -> Result<(), BackendError> {
        self.0.step("network.teardown").await?;
        self.0.state().networks.remove(&spec.pod_id);
        self.0.done("network.teardown").await
    }

    fn pod_ids(&self) -> Vec<String> {
        self.0.state().networks.iter().cloned().collect()
    }

    async fn collect_garbage(&self) {
        let _ = self.0.step("network.collect_garbage").await;
    }

    async fn make_spare(&self) -> Result<bool, BackendError> {
        let (waiting, wanted) = {
            let state = self.0.state();
            (state.spare_networks, state.spare_networks_wanted)
        };
        if waiting >= wanted {
            return Ok(false);
        }
        self.0.step("network.make_spare").await?;
        self.0.state().spare_networks += 1;
        Ok(true)
    }

    fn end_spares(&self) {
        self.0.state().spare_networks = 0;
    }

    fn spares(&self) -> usize {
        self.0.state().spare_networks
    }
}

#[derive(Debug)]
pub(crate) struct FakeVms(pub(crate) Arc<Script>);

#[async_trait]
impl Vms for FakeVms {
    async fn spawn(&self, request: SpawnRequest) -> Result<Arc<dyn Vm>, BackendError> {
        assert!(request.dir.is_dir(), "the vmm's directory exists");
        self.0.step("vm.spawn").await?;
        let vm = {
            let mut state = self.0.state();
            // Above the kernel's largest process id, so it never matches a real process.
            let pid = 5_000_000 + u32::try_from(state.vms.len()).unwrap();
            let vm = Arc::new(FakeVm::new(pid, request.dir.join("control.sock"), self.0.clone()));
            state.vms.insert(pid, vm.clone());
            vm
        };
        self.0.done("vm.spawn").await?;
        Ok(vm)
    }

    async fn attach(&self, _dir: &Path, vmm: VmmProcess) -> Result<Arc<dyn Vm>, BackendError> {
        self.0.step("vm.attach").await?;
        self.0.step(&format!("vm.attach {}", vmm.pid)).await?;
        let found = self.0.running().into_iter().find(|vm| vm.is(vmm));
        let ended = || BackendError::new(BackendErrorKind::Ended, "no such process");
        found.map(|vm| vm as Arc<dyn Vm>).ok_or_else(ended)
    }

    async fn kill(&self, vmm: Option<VmmProcess>, control_socket: &Path) -> Result<(), BackendError> {
        self.0.step("vm.kill").await?;
        for vm in self.0.running() {
            if vmm.is_some_and(|vmm| vm.is(vmm)) || *vm.control_socket.lock().unwrap() == control_socket {
                vm.kill();
            }
        }
        self.0.done("vm.kill").await
    }
}

#[derive(Debug)]
pub(crate) struct FakeVm {
    pid: u32,
    pub(crate) control_socket: Mutex<PathBuf>,
    script: Arc<Script>,
    stopped: watch::Sender<Option<StopReport>>,
    pub(crate) agent: Arc<FakeAgent>,
    /// Devices by slot: an image or a disk by its name, another by its kind.
    pub(crate) slots: Mutex<BTreeMap<u8, String>>,
    /// Number of disks waiting for free space on the node.
    pub(crate) full_disks: watch::Sender<u32>,
    /// Memory of a guest to be saved.
    memory_bytes: AtomicU64,
    /// Whether the VM was restored from a template.
    restored: AtomicBool,
}

impl FakeVm {
    fn new(pid: u32, control_socket: PathBuf, script: Arc<Script>) -> Self {
        let stopped = watch::Sender::new(None);
        let agent = Arc::new(FakeAgent::new(script.clone(), pid, stopped.clone()));
        FakeVm {
            pid,
            control_socket: Mutex::new(control_socket),
            script,
            stopped,
            agent,
            slots: Mutex::default(),
            full_disks: watch::Sender::new(0),
            memory_bytes: AtomicU64::new(0),
            restored: AtomicBool::new(false),
        }
    }

    fn is(&self, vmm: VmmProcess) -> bool {
        vmm == VmmProcess::of_this_boot(self.pid, self.start_time())
    }

    pub(crate) fn process_id(&self) -> u32 {
        self.pid
    }

    pub(crate) fn runs(&self) -> bool {
        self.stopped.borrow().is_none()
    }

    /// Ends it, as a crashing guest would.
    pub(crate) fn crash(&self, console: &str) {
        let reason = StopReason::GuestPanic { message: "no more".into() };
        self.end(reason, console);
    }

    /// Ends its VMM, as the host's kernel would.
    pub(crate) fn kill(&self) {
        self.end(StopReason::Vmm { message: "the VMM was killed by signal 9".into() }, "");
    }

    pub(crate) fn end(&self, reason: StopReason, console: &str) {
        end(&self.stopped, reason, console);
    }

    async fn step(&self, step: &str) -> Result<(), BackendError> {
        self.agent.step_of_vm(step, self.pid).await
    }

    /// The device's name, and the call for plugging it.
    fn name(&self, slot: Slot, device: &Device<OwnedFd>) -> (&'static str, String) {
        let opened =
            |file: &OwnedFd| self.script.state().opened.remove(&file.as_raw_fd()).unwrap_or_default();
        match device {
            Device::Blk { read_only: false, image } if slot == Slot::SCRATCH => {
                let disk = File::from(image.try_clone().unwrap());
                assert!(disk.metadata().unwrap().len() > 0, "the scratch disk has a size");
                ("vm.plug_scratch", "scratch".to_owned())
            }
            Device::Pmem { image } => ("vm.plug_image", format!("image {}", opened(image))),
            Device::Blk { read_only: false, image } => ("vm.plug_disk", format!("disk {}", opened(image))),
            Device::Blk { read_only: true, image } => ("vm.plug_disk_ro", format!("disk {}", opened(image))),
            Device::Net { .. } => ("vm.plug_net", "net".to_owned()),
            Device::Balloon => ("vm.plug_balloon", "balloon".to_owned()),
            Device::Layered { .. } | Device::Vsock { .. } | Device::Rng | Device::Fs { .. } => {
                panic!("a pod plugs no {:?}", device.kind())
            }
        }
    }
}

/// Ends a VM, once.
pub(super) fn end(stopped: &watch::Sender<Option<StopReport>>, reason: StopReason, console: &str) {
    let report = StopReport { reason, registers: None, console: console.into(), exits: Default::default() };
    stopped.send_if_modified(|stopped| {
        let first = stopped.is_none();
        stopped.get_or_insert(report);
        first
    });
}

#[async_trait]
impl Vm for FakeVm {
    fn pid(&self) -> u32 {
        self.pid
    }

    fn written_bytes(&self) -> u64 {
        let mut state = self.script.state();
        state.written_bytes += state.written_bytes_each;
        state.flushing = state.flushing.saturating_sub(1);
        state.written_bytes
    }

    fn start_time(&self) -> u64 {
        u64::from(self.pid) * 10
    }

    fn release(&self) -> String {
        "0.9".to_owned()
    }

    fn has_volume_slots(&self) -> bool {
        !self.script.state().without_volume_slots
    }

    fn has_balloon(&self) -> bool {
        !self.script.state().without_balloon
    }

    fn has_program_port(&self) -> bool {
        true
    }

    async fn program_stream(&self) -> Result<UnixStream, BackendError> {
        loop {
            let next = self.script.state().program_streams.pop_front();
            if let Some(stream) = next {
                stream.set_nonblocking(true)?;
                return Ok(UnixStream::from_std(stream)?);
            }
            tokio::select! {
                () = self.script.dialled.notified() => {}
                _ = self.stopped() => return Err(unreachable("the VM has ended")),
            }
        }
    }

    async fn boot(&self, request: BootRequest) -> Result<(), BackendError> {
        assert!(request.root_image.metadata()?.is_file());
        self.step("vm.boot").await
    }

    async fn boot_template(&self, request: TemplateRequest) -> Result<(), BackendError> {
        assert!(request.bounds.boot.memory_bytes > 0, "the template has a size");
        self.memory_bytes.store(request.bounds.boot.memory_bytes, Ordering::Relaxed);
        self.step("vm.boot_template").await
    }

    async fn save(&self, memory: &File, state: &File) -> Result<(), BackendError> {
        self.step("vm.save").await?;
        memory.set_len(self.memory_bytes.load(Ordering::Relaxed))?;
        memory.write_all_at(format!("guest {}", self.pid).as_bytes(), 0)?;
        state.write_all_at(b"state", 0)?;
        self.script.done("vm.save").await
    }

    async fn restore(&self, request: RestoreRequest) -> Result<(), BackendError> {
        let mut first = [0; 13];
        request.template.memory.read_exact_at(&mut first, 0)?;
        let sealed = request.template.memory.write_all_at(b"x", 0).is_err()
            && request.template.memory.set_len(0).is_err();
        self.restored.store(true, Ordering::Relaxed);
        self.script.state().restored.push((sealed, first.to_vec()));
        self.step("vm.restore").await
    }

    async fn wake(&self) -> Result<(), BackendError> {
        self.step("vm.wake").await
    }

    async fn wait_ready(&self) -> Result<(Arc<dyn Agent>, GuestReleases), BackendError> {
        if self.restored.load(Ordering::Relaxed) && self.script.state().silent_restored {
            return Err(unreachable("the agent said nothing"));
        }
        self.step("vm.wait_ready").await?;
        let protocol = self.script.state().protocol.unwrap_or(proto_agent::version::NEWEST);
        let releases = GuestReleases { kernel: "6.12".into(), agent: "0.9".into(), protocol };
        Ok((self.agent.clone(), releases))
    }

    async fn connect(&self) -> Result<Arc<dyn Agent>, BackendError> {
        self.step("vm.connect").await?;
        Ok(self.agent.clone())
    }

    async fn plug(&self, slot: Slot, device: Device<OwnedFd>) -> Result<(), BackendError> {
        let (step, name) = self.name(slot, &device);
        self.step(step).await?;
        if let Some(before) = self.slots.lock().unwrap().insert(slot.number(), name.clone()) {
            return Err(self.script.violate(format!("slot {slot} is to have {name}, and has {before}")));
        }
        if self.script.state().unheard {
            return Err(unreachable("the answer to a plug was lost"));
        }
        self.script.done(step).await
    }

    async fn unplug(&self, slot: Slot) -> Result<(), BackendError> {
        self.step("vm.unplug").await?;
        if let Some(user) = self.agent.user_of(slot.number()) {
            return Err(self
                .script
                .violate(format!("slot {slot} is to be emptied, and container {user} uses it")));
        }
        if self.slots.lock().unwrap().remove(&slot.number()).is_none() {
            return Err(self.script.violate(format!("slot {slot} is to be emptied, and is empty")));
        }
        self.script.done("vm.unplug").await
    }

    async fn interrupt_lock_waits(&self, pids: &[u32]) -> Result<(), BackendError> {
        self.step(&format!("vm.interrupt_lock_waits {pids:?}")).await?;
        self.agent.interrupted();
        Ok(())
    }

    async fn share_groups(&self, groups: &BTreeSet<u32>) -> Result<(), BackendError> {
        self.step(&format!("vm.share_groups {groups:?}")).await
    }

    async fn filled_slots(&self) -> Result<Vec<FilledSlot>, BackendError> {
        self.step("vm.filled_slots").await?;
        let slots = self.slots.lock().unwrap();
        let filled = slots.iter().filter_map(|(number, name)| {
            let slot = Slot::new(*number)?;
            Some(FilledSlot { slot, kind: slot.kind()?, read_only: false, bytes: image_bytes(name) })
        });
        Ok(filled.collect())
    }

    async fn make_vcpus(&self, count: u8) -> Result<(), BackendError> {
        self.step(&format!("vm.make_vcpus {count}")).await
    }

    async fn resize(&self, memory_bytes: u64) -> Result<(), BackendError> {
        self.step(&format!("vm.resize {}", memory_bytes >> 20)).await
    }

    async fn resized(&self) {
        if self.step("vm.resized").await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    async fn pin(&self, cpus: &[u32]) -> Result<(), BackendError> {
        self.step(&format!("vm.pin {cpus:?}")).await
    }

    async fn enter_cgroups(&self, cgroups: &[PathBuf]) -> Result<(), BackendError> {
        assert!(cgroups.iter().all(|cgroup| cgroup.is_dir()), "the pod's cgroups are there");
        self.step("vm.enter_cgroups").await
    }

    async fn set_oom_score(&self, score: i32) -> Result<(), BackendError> {
        self.step(&format!("vm.oom_score {score}")).await
    }

    fn full_disks(&self) -> watch::Receiver<u32> {
        self.full_disks.subscribe()
    }

    async fn stats(&self) -> Result<VmStats, BackendError> {
        self.script.step("vm.stats").await?;
        Ok(VmStats { boot_requested_ns: 1, guest_entered_ns: 2, ..VmStats::default() })
    }

    async fn console(&self) -> Result<String, BackendError> {
        Ok("hello from the console".into())
    }

    async fn shutdown(&self) -> Result<(), BackendError> {
        self.script.step("vm.shutdown").await?;
        self.end(StopReason::Requested, "");
        self.script.done("vm.shutdown").await
    }

    async fn stopped(&self) -> StopReport {
        let mut stopped = self.stopped.subscribe();
        let report = stopped.wait_for(Option::is_some).await.unwrap();
        report.clone().unwrap()
    }
}

#[derive(Debug)]
pub(crate) struct FakeImages(pub(crate) Arc<Script>);

#[async_trait]
impl ImageSource for FakeImages {
    fn find(&self, name: &str) -> Option<FoundImage> {
        let config = ImageConfig { cmd: vec!["/bin/app".into()], ..ImageConfig::default() };
        let (id, reference) = (format!("sha256:{name}"), format!("registry/{name}@sha256:00"));
        let bytes = image_bytes(name);
        name.starts_with("image").then_some(FoundImage { id, reference, tags: Vec::new(), bytes, config })
    }

    fn is_listed(&self, id: &str) -> bool {
        !self.0.state().removed_images.contains(id)
    }

    async fn open(&self, id: &str) -> Result<OpenedImage, BackendError> {
        if self.0.state().failing.contains("images.open") {
            return Err(BackendError::failed("images.open was scripted to fail"));
        }
        let file = File::open("/dev/null")?;
        self.0.state().opened.insert(file.as_raw_fd(), id.to_owned());
        Ok(OpenedImage { device: Device::Pmem { image: file.into() }, lease: self.lease(id) })
    }

    fn lease_again(&self, id: &str) -> Option<ImageLease> {
        Some(self.lease(id))
    }

    async fn users_are_known(&self) -> Result<(), BackendError> {
        let mut state = self.0.state();
        state.users_known_with = Some(state.leases.clone());
        Ok(())
    }
}

impl FakeImages {
    fn lease(&self, id: &str) -> ImageLease {
        *self.0.state().leases.entry(id.to_owned()).or_default() += 1;
        ImageLease::new(FakeLease { script: self.0.clone(), id: id.to_owned() })
    }
}

/// A use of an image, counted until it is dropped.
#[derive(Debug)]
struct FakeLease {
    script: Arc<Script>,
    id: String,
}

impl Drop for FakeLease {
    fn drop(&mut self) {
        let mut state = self.script.state();
        let count = state.leases.entry(self.id.clone()).or_default();
        *count = count.saturating_sub(1);
        if *count == 0 {
            state.leases.remove(&self.id);
        }
    }
}

/// Size of the image: `image-<n>g` has n GiB, all others nothing.
fn image_bytes(name: &str) -> u64 {
    let gib = name.rsplit_once('-').and_then(|(_, size)| size.strip_suffix('g')?.parse::<u64>().ok());
    gib.unwrap_or(0) << 30
}
