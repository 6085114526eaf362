//! A VM as the daemon sees it: the connection and the process, joined.
//!
//! ```text
//!   spawn ─> started ──boot──> running ──guest's end, shutdown, kill──> stopped (report published)
//!                                 ▲
//!   attach ───────────────────────┘
//! ```

use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;

use proto_vmm::{BootConfig, Device, FilledSlot, Request, Response, Slot, StopReason, StopReport, VmStats};
use tokio::net::UnixStream;
use tokio::process::Child;
use tokio::sync::watch;

use crate::VmError;
use crate::connection::{Connection, dial};
use crate::descriptors::Descriptors;
use crate::process::Process;
use crate::spawn::{self, CONTROL_SOCKET, Spawn, VSOCK_SOCKET};
use crate::streams::Streams;

/// The guest's context id. Each VMM has its own user-space vsock, so that all guests can share one.
const GUEST_CID: u32 = 3;

/// How long a VMM may take to end after it was asked; a stop takes milliseconds.
const SHUTDOWN_PATIENCE: Duration = Duration::from_secs(5);

/// How long the stop report may come after the process has ended. The VMM sent it before, so that this
/// only bounds a connection that another daemon took over.
const REPORT_PATIENCE: Duration = Duration::from_millis(500);

/// A VMM and its VM. Cheap to clone; dropping all clones leaves the VMM running.
#[derive(Clone, Debug)]
pub struct Vm(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    id: String,
    process: Arc<Process>,
    connection: Connection,
    streams: Arc<Streams>,
    stopped: watch::Receiver<Option<StopReport>>,
    resized: Arc<watch::Sender<bool>>,
    vsock_path: PathBuf,
}

/// How large a VM is built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// Memory at boot, in bytes: a multiple of 2 MiB.
    pub memory_bytes: u64,
    /// Most memory after [`Vm::resize`], in bytes: a multiple of 2 MiB, at least `memory_bytes`.
    pub memory_max_bytes: u64,
    /// vCPUs made; the guest brings up one at boot and the agent others.
    pub vcpus: u8,
}

impl Size {
    /// The size of a VM that does not grow.
    pub fn fixed(memory_bytes: u64, vcpus: u8) -> Size {
        Size { memory_bytes, memory_max_bytes: memory_bytes, vcpus }
    }
}

impl Vm {
    /// Starts a VMM, which has no VM until [`boot`](Self::boot).
    ///
    /// # Errors
    /// The sockets cannot be made, the binary not started, the cgroup not entered.
    pub async fn spawn(spawn: Spawn<'_>) -> Result<Vm, VmError> {
        let (dir, id) = (spawn.dir.to_owned(), spawn.id.to_owned());
        let binary = spawn.binary.to_owned();
        let mut child = spawn::start(spawn)?;
        let joined = child
            .id()
            .ok_or_else(|| VmError::Start { binary, source: std::io::Error::other("it ended at once") })
            .and_then(Process::open)
            .and_then(|process| Ok((process, connect(&dir)?)));
        match joined {
            Ok((process, connection)) => Ok(Vm::join(id, &dir, process, connection, Some(child))),
            Err(error) => {
                // Nobody else has a handle of it.
                let _ = child.kill().await;
                Err(error)
            }
        }
    }

    /// Finds a VMM again that an earlier daemon spawned in `dir`.
    ///
    /// # Errors
    /// The process is gone, is another one now, or does not take connections.
    pub async fn attach(dir: &Path, pid: u32, start_time: u64) -> Result<Vm, VmError> {
        let process = Process::open(pid)?;
        if process.start_time() != start_time {
            return Err(VmError::AnotherProcess { pid });
        }
        let connection = connect(dir)?;
        Ok(Vm::join(String::new(), dir, process, connection, None))
    }

    fn join(id: String, dir: &Path, process: Process, connection: Connection, child: Option<Child>) -> Vm {
        let process = Arc::new(process);
        let streams = Arc::new(Streams::default());
        let (publish, stopped) = watch::channel(None);
        let receiving = connection.clone();
        let receiving_streams = Arc::clone(&streams);
        let resized = Arc::new(watch::Sender::new(false));
        let receiving_resized = Arc::clone(&resized);
        let receive =
            tokio::spawn(async move { receiving.receive(&receiving_streams, &receiving_resized).await });
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
        Vm(Arc::new(Shared { id, process, connection, streams, stopped, resized, vsock_path }))
    }

    /// The VMM's process id.
    pub fn pid(&self) -> u32 {
        self.0.process.pid()
    }

    /// The VMM's start time, as in field 22 of /proc/<pid>/stat: with the process id it names the
    /// process for ever.
    pub fn start_time(&self) -> u64 {
        self.0.process.start_time()
    }

    /// Builds the VM and lets it run, with vsock and random numbers besides `devices`.
    ///
    /// # Errors
    /// The VMM refuses (the error has its reason), or cannot be reached.
    pub async fn boot(
        &self,
        size: Size,
        cmdline: &str,
        kernel: &File,
        root_image: &File,
        devices: Vec<(Slot, Device<OwnedFd>)>,
    ) -> Result<(), VmError> {
        let duplicate = |file: &File| file.try_clone().map(OwnedFd::from).map_err(VmError::Duplicate);
        let listener = spawn::listen_vsock(&self.0.vsock_path)?.into();
        let ours = [
            (Slot::ROOT, Device::Pmem { image: duplicate(root_image)? }),
            (Slot::VSOCK, Device::Vsock { listener, guest_cid: GUEST_CID }),
            (Slot::RNG, Device::Rng),
        ];
        let mut descriptors = Descriptors::default();
        let kernel = descriptors.push(duplicate(kernel)?);
        let devices = ours.into_iter().chain(devices);
        let devices = devices.map(|(slot, device)| (slot, device.map(|fd| descriptors.push(fd)))).collect();
        let config = BootConfig {
            id: self.0.id.clone(),
            vcpus: size.vcpus,
            memory_bytes: size.memory_bytes,
            memory_max_bytes: size.memory_max_bytes,
            kernel,
            cmdline: cmdline.to_owned(),
            devices,
        };
        match self.ask("boot", Request::Boot(Box::new(config)), &descriptors).await? {
            Response::Booted => Ok(()),
            _ => Err(VmError::Confused { request: "boot" }),
        }
    }

    /// Fills an empty slot; the agent then probes it.
    ///
    /// # Errors
    /// As [`boot`](Self::boot).
    pub async fn plug(&self, slot: Slot, device: Device<OwnedFd>) -> Result<(), VmError> {
        let mut descriptors = Descriptors::default();
        let device = device.map(|fd| descriptors.push(fd));
        match self.ask("plug", Request::Plug { slot, device }, &descriptors).await? {
            Response::Plugged => Ok(()),
            _ => Err(VmError::Confused { request: "plug" }),
        }
    }

    /// Empties a slot that the agent has unbound. The device's files are closed when this returns.
    ///
    /// # Errors
    /// As [`boot`](Self::boot).
    pub async fn unplug(&self, slot: Slot) -> Result<(), VmError> {
        match self.ask("unplug", Request::Unplug { slot }, &Descriptors::default()).await? {
            Response::Unplugged => Ok(()),
            _ => Err(VmError::Confused { request: "unplug" }),
        }
    }

    /// Offers the guest memory of `memory_bytes` in all; the agent binds the device in [`Slot::MEM`], and the
    /// guest takes or gives back in its own time. One resize at a time.
    ///
    /// # Errors
    /// As [`boot`](Self::boot).
    pub async fn resize(&self, memory_bytes: u64) -> Result<(), VmError> {
        self.0.resized.send_replace(false);
        match self.ask("resize", Request::Resize { memory_bytes }, &Descriptors::default()).await? {
            Response::Resizing => Ok(()),
            _ => Err(VmError::Confused { request: "resize" }),
        }
    }

    /// Resolves once the guest has taken, or given back, all that the last [`resize`](Self::resize) asked.
    /// A guest may never do so: callers bound the wait.
    pub async fn resized(&self) {
        // The sender is kept beside it.
        let _ = self.0.resized.subscribe().wait_for(|resized| *resized).await;
    }

    /// Returns the slots that are filled, in the table's order.
    ///
    /// # Errors
    /// As [`boot`](Self::boot).
    pub async fn filled_slots(&self) -> Result<Vec<FilledSlot>, VmError> {
        match self.ask("slots", Request::Slots, &Descriptors::default()).await? {
            Response::Slots(slots) => Ok(slots),
            _ => Err(VmError::Confused { request: "slots" }),
        }
    }

    /// Returns counters and times of the VM.
    ///
    /// # Errors
    /// As [`boot`](Self::boot).
    pub async fn stats(&self) -> Result<VmStats, VmError> {
        match self.ask("stats", Request::Stats, &Descriptors::default()).await? {
            Response::Stats(stats) => Ok(stats),
            _ => Err(VmError::Confused { request: "stats" }),
        }
    }

    /// Returns the console's text, at most 64 KiB, written by the guest: not to be trusted.
    ///
    /// # Errors
    /// As [`boot`](Self::boot).
    pub async fn console(&self) -> Result<String, VmError> {
        match self.ask("console", Request::Console, &Descriptors::default()).await? {
            Response::Console { text } => Ok(text),
            _ => Err(VmError::Confused { request: "console" }),
        }
    }

    /// Returns the next stream that the guest opens to `port`, or has opened already. The call waits as long
    /// as the VM lives.
    ///
    /// # Errors
    /// The VM has ended.
    pub async fn guest_stream(&self, port: u32) -> Result<UnixStream, VmError> {
        tokio::select! {
            biased;
            stream = self.0.streams.take(port) => {
                let stream = std::os::unix::net::UnixStream::from(stream);
                stream
                    .set_nonblocking(true)
                    .and_then(|()| UnixStream::from_std(stream))
                    .map_err(|source| VmError::Stream { port, source })
            }
            report = self.stopped() => Err(VmError::Ended { reason: report.reason }),
        }
    }

    /// Stops the VM: asks the VMM, and kills it if that takes too long. Returns when the process is gone;
    /// a VM that has ended already is no error.
    ///
    /// # Errors
    /// The process cannot be killed.
    pub async fn shutdown(&self) -> Result<(), VmError> {
        let asked = async {
            let answer = self.0.connection.ask("shutdown", Request::Shutdown, &[]).await;
            match answer {
                Ok(_) => {
                    self.stopped().await;
                }
                // Killing is the answer to whatever went wrong.
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

    /// Resolves when the VM has ended, however.
    pub async fn stopped(&self) -> StopReport {
        let mut stopped = self.0.stopped.clone();
        match stopped.wait_for(Option::is_some).await {
            Ok(report) => report.clone().unwrap_or_else(|| unreported(None)),
            Err(_) => unreported(None),
        }
    }

    /// Lets the vCPUs run on these CPUs of the host alone; on all of them where the list is empty.
    ///
    /// # Errors
    /// A CPU is not there, or not the VMM's to use.
    pub fn pin_vcpus(&self, cpus: &[u32]) -> Result<(), VmError> {
        crate::pin::pin(self.pid(), cpus)
    }

    /// Returns the unix socket on which host programs reach the guest, with `CONNECT <port>\n`.
    pub fn vsock_path(&self) -> &Path {
        &self.0.vsock_path
    }

    /// Sends a request; an error of a VM that has ended says so.
    async fn ask(
        &self,
        name: &'static str,
        request: Request,
        descriptors: &Descriptors,
    ) -> Result<Response, VmError> {
        let result = self.0.connection.ask(name, request, descriptors.as_slice()).await;
        match result {
            Err(VmError::Lost { .. } | VmError::Send { .. }) => {
                // The process follows its connection, or it is the connection alone that was lost.
                match tokio::time::timeout(REPORT_PATIENCE * 2, self.stopped()).await {
                    Ok(report) => Err(VmError::Ended { reason: report.reason }),
                    Err(_) => result,
                }
            }
            other => other,
        }
    }
}

fn connect(dir: &Path) -> Result<Connection, VmError> {
    let path = dir.join(CONTROL_SOCKET);
    dial(&path).and_then(Connection::new).map_err(|source| VmError::Connect { path, source })
}

/// Waits for the process's end; a child of ours is reaped and gives its status.
async fn wait(process: &Process, child: Option<Child>) -> Option<ExitStatus> {
    match child {
        Some(mut child) => child.wait().await.ok(),
        None => {
            process.ended().await;
            None
        }
    }
}

/// The report of a VMM that ended without one.
fn unreported(status: Option<ExitStatus>) -> StopReport {
    let message = match status {
        Some(status) => match (status.signal(), status.code()) {
            (Some(signal), _) => format!("the VMM was killed by signal {signal}"),
            (None, code) => format!("the VMM ended without a report, exit status {}", code.unwrap_or(-1)),
        },
        None => "the VMM ended without a report".to_owned(),
    };
    StopReport {
        reason: StopReason::Vmm { message },
        registers: None,
        console: String::new(),
        exits: Default::default(),
    }
}
