//! A VM as the daemon sees it: the connection and the process, joined.
//!
//! ```text
//!   spawn ─> started ──boot──> running ──guest's end, shutdown, kill──> stopped (report published)
//!                                 ▲
//!   attach ───────────────────────┘
//! ```

use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use proto_vmm::{
    BALLOON_VERSION, BootConfig, Device, FilledSlot, Request, Response, STREAM_NUMBERS_VERSION, Slot,
    StopReport, VCPUS_VERSION, VOLUME_SLOTS_VERSION, VmStats,
};
use runtime_fail_points::{Point, pass_async};
use tokio::net::UnixStream;
use tokio::process::Child;
use tokio::sync::watch;

use crate::VmError;
use crate::connection::{ANSWER_DEADLINE, BOOT_DEADLINE};
use crate::descriptors::Descriptors;
use crate::end::{REPORT_PATIENCE, ended_or, unreported, wait};
use crate::events::Events;
use crate::guest_stream::accept;
use crate::link::{Greeted, Link, greet};
use crate::plan::{BootPlan, Size};
use crate::process::Process;
use crate::spawn::{self, CONTROL_SOCKET, Spawn, VSOCK_SOCKET};

/// The guest's context id. Each VMM has its own user-space vsock, so all guests can share one id.
const GUEST_CID: u32 = 3;

/// Timeout for a VMM to end after a shutdown request; a stop takes milliseconds.
const SHUTDOWN_PATIENCE: Duration = Duration::from_secs(5);

/// How long a killed VMM may take to end after a failed start.
const KILLED_WITHIN: Duration = Duration::from_secs(10);

/// A VMM and its VM. Cheap to clone; dropping all clones leaves the VMM running.
#[derive(Clone, Debug)]
pub struct Vm(pub(crate) Arc<Shared>);

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) id: String,
    release: String,
    /// The VMM's version of the protocol.
    pub(crate) version: u32,
    process: Arc<Process>,
    link: Arc<Link>,
    events: Events,
    stopped: watch::Receiver<Option<StopReport>>,
    pub(crate) vsock_path: PathBuf,
    /// CPUs of the vCPUs' last binding; empty for all.
    pinned: Mutex<Vec<u32>>,
}

impl Vm {
    /// Starts a VMM without a VM; [`boot`](Self::boot) builds the VM.
    ///
    /// # Errors
    /// The sockets cannot be made, the binary not started, the cgroup not entered; or the VMM does not
    /// answer, or is of an unsupported version.
    pub async fn spawn(spawn: Spawn<'_>) -> Result<Vm, VmError> {
        let (dir, id) = (spawn.dir.to_owned(), spawn.id.to_owned());
        let binary = spawn.binary.to_owned();
        let mut child = spawn::start(spawn).await?;
        let process = child
            .id()
            .ok_or_else(|| VmError::Start { binary, source: std::io::Error::other("it ended at once") })
            .and_then(Process::open);
        let events = Events::new();
        let joined = match process {
            // The VMM answers once it is in its jail. If many start at once, this takes as long as a boot.
            Ok(process) => {
                greet(&dir.join(CONTROL_SOCKET), &events, BOOT_DEADLINE).await.map(|first| (process, first))
            }
            Err(error) => Err(error),
        };
        match joined {
            Ok((process, first)) => Ok(Vm::join(id, &dir, process, events, first, Some(child))),
            Err(error) => {
                let error = ended_or(error, &mut child).await;
                // There is no other handle of it. One that hangs in the kernel ends when it can.
                let _ = tokio::time::timeout(KILLED_WITHIN, child.kill()).await;
                Err(error)
            }
        }
    }

    /// Finds a VMM again after an earlier daemon spawned it in `dir`.
    ///
    /// # Errors
    /// The process is gone, is another one now, does not take connections or does not answer, or is of an
    /// unsupported version.
    pub async fn attach(dir: &Path, pid: u32, start_time: u64) -> Result<Vm, VmError> {
        let process = Process::open(pid)?;
        if process.start_time() != start_time {
            return Err(VmError::AnotherProcess { pid });
        }
        let events = Events::new();
        let first = greet(&dir.join(CONTROL_SOCKET), &events, ANSWER_DEADLINE).await?;
        Ok(Vm::join(String::new(), dir, process, events, first, None))
    }

    fn join(
        id: String,
        dir: &Path,
        process: Process,
        events: Events,
        first: Greeted,
        child: Option<Child>,
    ) -> Vm {
        let process = Arc::new(process);
        let (release, version) = (first.release.clone(), first.version);
        let (publish, stopped) = watch::channel(None);
        let (link, receive) =
            Link::keep(dir.join(CONTROL_SOCKET), events.clone(), first, Arc::clone(&process));
        let watched = Arc::clone(&process);
        tokio::spawn(async move {
            let status = wait(&watched, child).await;
            let report = match tokio::time::timeout(REPORT_PATIENCE, receive).await {
                Ok(Ok(Some(report))) => *report,
                _ => unreported(status),
            };
            publish.send_replace(Some(report));
        });
        let vsock_path = dir.join(VSOCK_SOCKET);
        let pinned = Mutex::default();
        Vm(Arc::new(Shared { id, release, version, process, link, events, stopped, vsock_path, pinned }))
    }

    /// The VMM's process id.
    pub fn pid(&self) -> u32 {
        self.0.process.pid()
    }

    /// The VMM's start time, as in field 22 of /proc/<pid>/stat. Together with the process id it identifies
    /// the process for ever.
    pub fn start_time(&self) -> u64 {
        self.0.process.start_time()
    }

    /// The VMM's release of Podvisor, as reported by the VMM; empty for a release that does not report it.
    pub fn release(&self) -> &str {
        &self.0.release
    }

    /// Builds the VM and lets it run, with vsock and random numbers besides `devices`.
    ///
    /// # Errors
    /// The VMM refuses (the error has its reason), or cannot be reached.
    pub async fn boot(
        &self,
        size: Size,
        plan: BootPlan<'_>,
        devices: Vec<(Slot, Device<OwnedFd>)>,
    ) -> Result<(), VmError> {
        let ours = self.own_devices(plan.root_image, plan.host_ports, plan.program_port)?;
        let mut descriptors = Descriptors::default();
        let kernel = descriptors.push(duplicate(plan.kernel)?);
        let devices = ours.into_iter().chain(devices);
        let devices = devices.map(|(slot, device)| (slot, device.map(|fd| descriptors.push(fd)))).collect();
        let config = BootConfig {
            id: self.0.id.clone(),
            vcpus: size.vcpus_max,
            vcpus_at_boot: size.vcpus,
            memory_bytes: size.memory_bytes,
            memory_max_bytes: size.memory_max_bytes,
            kernel,
            cmdline: plan.cmdline.to_owned(),
            devices,
        };
        match self.ask(Point::VmmBoot, "boot", Request::Boot(Box::new(config)), &descriptors).await? {
            Response::Booted => Ok(()),
            _ => Err(VmError::Confused { request: "boot" }),
        }
    }

    /// The devices common to all VMs.
    pub(crate) fn own_devices(
        &self,
        root_image: &File,
        host_ports: &[u32],
        program_port: Option<u32>,
    ) -> Result<[(Slot, Device<OwnedFd>); 3], VmError> {
        let listener = spawn::listen_vsock(&self.0.vsock_path)?.into();
        let vsock =
            Device::Vsock { listener, guest_cid: GUEST_CID, host_ports: host_ports.into(), program_port };
        let root = Device::Pmem { image: duplicate(root_image)? };
        Ok([(Slot::ROOT, root), (Slot::VSOCK, vsock), (Slot::RNG, Device::Rng)])
    }

    /// Returns true if the VMM has slots for volumes.
    pub fn has_volume_slots(&self) -> bool {
        self.0.version >= VOLUME_SLOTS_VERSION
    }

    /// Returns true if the VMM has a balloon to plug.
    pub fn has_balloon(&self) -> bool {
        self.0.version >= BALLOON_VERSION
    }

    /// Returns true if the VMM gives programs of containers their own port and names their streams by number.
    pub fn has_program_port(&self) -> bool {
        self.0.version >= STREAM_NUMBERS_VERSION
    }

    /// Fills an empty slot; the agent then probes it.
    ///
    /// # Errors
    /// As [`boot`](Self::boot), and [`VmError::Old`] if the VMM is too old for the device or the slot.
    pub async fn plug(&self, slot: Slot, device: Device<OwnedFd>) -> Result<(), VmError> {
        if device.version().max(slot.version()) > self.0.version {
            let device = match device {
                Device::Balloon => "balloon",
                _ if slot.version() > 1 => "volume",
                _ => "image of several files",
            };
            return Err(VmError::Old { release: self.0.release.clone(), device });
        }
        let mut descriptors = Descriptors::default();
        let device = device.map(|fd| descriptors.push(fd));
        match self.ask(Point::VmmPlug, "plug", Request::Plug { slot, device }, &descriptors).await? {
            Response::Plugged => Ok(()),
            _ => Err(VmError::Confused { request: "plug" }),
        }
    }

    /// Empties a slot after the agent has unbound it. The device's files are closed when this returns.
    ///
    /// # Errors
    /// As [`boot`](Self::boot).
    pub async fn unplug(&self, slot: Slot) -> Result<(), VmError> {
        match self.ask(Point::VmmUnplug, "unplug", Request::Unplug { slot }, &Descriptors::default()).await? {
            Response::Unplugged => Ok(()),
            _ => Err(VmError::Confused { request: "unplug" }),
        }
    }

    /// Offers the guest `memory_bytes` of memory in total. The agent binds the device in [`Slot::MEM`], and
    /// the guest takes memory or gives it back in its own time. One resize at a time.
    ///
    /// # Errors
    /// As [`boot`](Self::boot).
    pub async fn resize(&self, memory_bytes: u64) -> Result<(), VmError> {
        self.0.events.resized.send_replace(false);
        match self
            .ask(Point::VmmResize, "resize", Request::Resize { memory_bytes }, &Descriptors::default())
            .await?
        {
            Response::Resizing => Ok(()),
            _ => Err(VmError::Confused { request: "resize" }),
        }
    }

    /// Makes vCPUs until there are `count`, for the agent to bring up. Existing ones stay. New ones run on
    /// the CPUs of the last [`pin`](Self::pin). An older VMM has made all of them at boot, so it
    /// is not asked.
    ///
    /// # Errors
    /// As [`boot`](Self::boot) and [`pin`](Self::pin).
    pub async fn make_vcpus(&self, count: u8) -> Result<(), VmError> {
        if self.0.version < VCPUS_VERSION {
            return Ok(());
        }
        let (name, request) = ("make_vcpus", Request::MakeVcpus { count });
        match self.ask(Point::VmmMakeVcpus, name, request, &Descriptors::default()).await? {
            Response::VcpusMade => {}
            _ => return Err(VmError::Confused { request: name }),
        }
        // A new thread inherits the CPUs of its creator.
        let pinned = self.pinned().clone();
        if pinned.is_empty() { Ok(()) } else { crate::pin::pin(self.pid(), &pinned) }
    }

    /// Resolves once the guest has completed the last [`resize`](Self::resize), growing or shrinking. A guest
    /// may never do so: callers need a timeout.
    pub async fn resized(&self) {
        // `self` keeps the sender.
        let _ = self.0.events.resized.subscribe().wait_for(|resized| *resized).await;
    }

    /// Number of the VM's disks waiting for space on the node, as it changes. Always 0 for an older VMM that
    /// does not report it.
    pub fn full_disks(&self) -> watch::Receiver<u32> {
        self.0.events.full_disks.subscribe()
    }

    /// Returns the filled slots, in the table's order.
    ///
    /// # Errors
    /// As [`boot`](Self::boot).
    pub async fn filled_slots(&self) -> Result<Vec<FilledSlot>, VmError> {
        match self.ask(Point::VmmSlots, "slots", Request::Slots, &Descriptors::default()).await? {
            Response::Slots(slots) => Ok(slots),
            _ => Err(VmError::Confused { request: "slots" }),
        }
    }

    /// Returns counters and times of the VM.
    ///
    /// # Errors
    /// As [`boot`](Self::boot).
    pub async fn stats(&self) -> Result<VmStats, VmError> {
        match self.ask(Point::VmmStats, "stats", Request::Stats, &Descriptors::default()).await? {
            Response::Stats(stats) => Ok(stats),
            _ => Err(VmError::Confused { request: "stats" }),
        }
    }

    /// Returns the console's text, at most 64 KiB. The guest wrote it, so it is untrusted.
    ///
    /// # Errors
    /// As [`boot`](Self::boot).
    pub async fn console(&self) -> Result<String, VmError> {
        match self.ask(Point::VmmConsole, "console", Request::Console, &Descriptors::default()).await? {
            Response::Console { text } => Ok(text),
            _ => Err(VmError::Confused { request: "console" }),
        }
    }

    /// Returns the guest's next stream to `port`, one it has opened already or one to come. The call waits as
    /// long as the VM lives.
    ///
    /// # Errors
    /// The VM has ended, or its VMM takes no dials.
    pub async fn guest_stream(&self, port: u32) -> Result<UnixStream, VmError> {
        tokio::select! {
            biased;
            number = self.0.events.streams.take(port) => {
                accept(self.vsock_path(), number).await.map_err(|source| VmError::Stream { port, source })
            }
            report = self.stopped() => Err(VmError::Ended { reason: report.reason }),
        }
    }

    /// Stops the VM: asks the VMM, and kills it after a timeout. Returns when the process is gone. An ended
    /// VM is no error.
    ///
    /// # Errors
    /// The process cannot be killed.
    pub async fn shutdown(&self) -> Result<(), VmError> {
        let asked = async {
            let answer = match pass_async(Point::VmmShutdown).await {
                Ok(()) => self.0.link.ask("shutdown", Request::Shutdown, &[]).await,
                Err(_) => Err(VmError::Lost { request: "shutdown" }),
            };
            match answer {
                Ok(_) => {
                    self.stopped().await;
                }
                // Any failure here ends in a kill.
                Err(error) => tracing::debug!(%error, "a VMM did not take its shutdown"),
            }
        };
        // A VMM that is gone cannot answer, and need not.
        let polite = async {
            tokio::select! {
                () = asked => {}
                _ = self.stopped() => {}
            }
        };
        let _ = tokio::time::timeout(SHUTDOWN_PATIENCE, polite).await;
        if self.0.stopped.borrow().is_none() {
            self.0.process.kill()?;
        }
        self.stopped().await;
        Ok(())
    }

    /// Resolves when the VM has ended, for any reason.
    pub async fn stopped(&self) -> StopReport {
        let mut stopped = self.0.stopped.clone();
        match stopped.wait_for(Option::is_some).await {
            Ok(report) => report.clone().unwrap_or_else(|| unreported(None)),
            Err(_) => unreported(None),
        }
    }

    /// Lets the VMM and its share run on these CPUs of the host only, or on all of them if the list is empty.
    ///
    /// # Errors
    /// A CPU does not exist, or the VMM may not use it.
    pub fn pin(&self, cpus: &[u32]) -> Result<(), VmError> {
        // Locked until the binding is done, so new vCPUs follow it.
        let mut pinned = self.pinned();
        crate::pin::pin(self.pid(), cpus)?;
        *pinned = cpus.to_vec();
        Ok(())
    }

    fn pinned(&self) -> MutexGuard<'_, Vec<u32>> {
        self.0.pinned.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Moves the VMM to these cgroups' directories, one in each hierarchy. Memory it has taken so far stays
    /// accounted in the old ones.
    ///
    /// # Errors
    /// A cgroup cannot be entered. The VMM may have entered others of them by then.
    pub fn enter_cgroups(&self, cgroups: &[PathBuf]) -> Result<(), VmError> {
        cgroups.iter().try_for_each(|cgroup| spawn::enter_cgroup(cgroup, self.pid()))
    }

    /// Sets the host kernel's preference to kill the VMM when memory is short, -1000 to 1000.
    ///
    /// # Errors
    /// The score is beyond its bounds, or lower than the daemon may set it.
    pub fn set_oom_score(&self, score: i32) -> Result<(), VmError> {
        crate::oom_score::set(self.pid(), score)
    }

    /// Returns the unix socket for host programs to reach the guest, with `CONNECT <port>\n`.
    pub fn vsock_path(&self) -> &Path {
        &self.0.vsock_path
    }

    /// Sends a request. If the VM has ended, the error says so.
    pub(crate) async fn ask(
        &self,
        point: Point,
        name: &'static str,
        request: Request,
        descriptors: &Descriptors,
    ) -> Result<Response, VmError> {
        let result = match pass_async(point).await {
            Ok(()) => self.0.link.ask(name, request, descriptors.as_slice()).await,
            Err(_) => Err(VmError::Lost { request: name }),
        };
        match result {
            Err(VmError::Lost { .. } | VmError::Send { .. }) => {
                // Either the process ends soon after its connection, or only the connection was lost.
                match tokio::time::timeout(REPORT_PATIENCE * 2, self.stopped()).await {
                    Ok(report) => Err(VmError::Ended { reason: report.reason }),
                    Err(_) => result,
                }
            }
            other => other,
        }
    }
}

/// Returns another descriptor of the file, for sending.
pub(crate) fn duplicate(file: &File) -> Result<OwnedFd, VmError> {
    file.try_clone().map(OwnedFd::from).map_err(VmError::Duplicate)
}
