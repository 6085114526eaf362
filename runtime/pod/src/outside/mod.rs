//! What lies outside this crate, as traits: the network, machines, the agent, images.
//!
//! There is one real implementation of each, in `real.rs`, and it only passes on. The traits are
//! there so that tests can let each step fail and see that the steps before it are undone.

mod disks;
mod guest;
mod real;
mod shares;

use std::error::Error;
use std::fmt::Debug;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use proto_agent::agent::{
    ConfigurePodRequest, CreateContainerRequest, CreateContainerResponse, ExecRequest, ResizePodRequest,
    SignalRequest, StatsResponse, StreamKind, UpdateContainerRequest, UsageResponse, WaitResponse,
};
use proto_vmm::{Slot, StopReport, VmStats};
use runtime_net::{PodNetwork, PodNetworkSpec};
use runtime_pieces::Pieces;
use runtime_spec::{ImageConfig, VmBounds};
use tokio::io::{AsyncRead, AsyncWrite};

pub(crate) use disks::{DiskError, Disks, HostDisk, KernelDisks};
pub(crate) use guest::{Unrunnable, refusal, unrunnable, volume_refusal};
pub(crate) use real::{CniNetwork, StoredImages, VmMachines};
pub(crate) use shares::{HostShares, Place, Shares};

/// What went wrong out there; its chain is kept as an error's source.
pub(crate) type Fault = Box<dyn Error + Send + Sync>;

/// Pods' networks.
#[async_trait]
pub(crate) trait Network: Debug + Send + Sync {
    /// On error it has undone itself, or a teardown will.
    async fn setup(&self, spec: &PodNetworkSpec) -> Result<PodNetwork, Fault>;
    /// Idempotent, and works from the spec alone.
    async fn teardown(&self, spec: &PodNetworkSpec) -> Result<(), Fault>;
}

/// Where machines come from.
#[async_trait]
pub(crate) trait Machines: Debug + Send + Sync {
    /// Starts a monitor without a guest.
    async fn spawn(&self, request: SpawnRequest) -> Result<Arc<dyn Machine>, Fault>;
    /// Finds a monitor again that an earlier daemon started.
    async fn attach(&self, dir: &Path, pid: u32, start_time: u64) -> Result<Arc<dyn Machine>, Fault>;
}

/// A monitor to start.
#[derive(Debug)]
pub(crate) struct SpawnRequest {
    pub(crate) id: String,
    /// Exists; the sockets are made here.
    pub(crate) dir: PathBuf,
    /// Made and mounted by this; the monitor's root, by which its guest reaches the host's files.
    pub(crate) shared: PathBuf,
    /// To enter, one in each hierarchy of the node.
    pub(crate) cgroups: Vec<PathBuf>,
    /// Its standard error.
    pub(crate) log: File,
}

/// A machine to boot.
#[derive(Debug)]
pub(crate) struct BootRequest {
    pub(crate) bounds: VmBounds,
    pub(crate) kernel: File,
    pub(crate) root_image: File,
    pub(crate) scratch: File,
}

/// What is plugged into a running machine.
#[derive(Debug)]
pub(crate) enum Plug {
    /// An image's EROFS.
    Image(File),
    /// A block device of the host.
    Disk { file: File, read_only: bool },
    /// A network interface.
    Net { tap: OwnedFd, mac: [u8; 6], mtu: u16 },
}

/// One pod's machine.
#[async_trait]
pub(crate) trait Machine: Debug + Send + Sync {
    fn pid(&self) -> u32;
    /// Of its process, in clock ticks since the host's boot.
    fn start_time(&self) -> u64;
    async fn boot(&self, request: BootRequest) -> Result<(), Fault>;
    /// Waits until the booted guest's agent says that it serves, and connects to it.
    async fn greet(&self) -> Result<Arc<dyn Agent>, Fault>;
    /// Connects to an agent that serves already.
    async fn connect(&self) -> Result<Arc<dyn Agent>, Fault>;
    async fn plug(&self, slot: Slot, plug: Plug) -> Result<(), Fault>;
    async fn unplug(&self, slot: Slot) -> Result<(), Fault>;
    /// Offers the guest memory of this size in all, through the device in [`Slot::MEM`]. The guest takes
    /// or gives it back in its own time.
    async fn resize(&self, memory_bytes: u64) -> Result<(), Fault>;
    /// Resolves when the guest has taken all that the last `resize` offered, or given back as much.
    async fn resized(&self);
    /// Binds its vCPUs to these CPUs of the host; to none in particular where the list is empty.
    async fn pin(&self, cpus: &[u32]) -> Result<(), Fault>;
    async fn stats(&self) -> Result<VmStats, Fault>;
    async fn console(&self) -> Result<String, Fault>;
    /// Returns when the process is gone. Idempotent.
    async fn shutdown(&self) -> Result<(), Fault>;
    /// Resolves when the machine has ended, however often it is asked.
    async fn stopped(&self) -> StopReport;
}

/// One pod's agent. Every call but `wait` has a deadline of its own.
#[async_trait]
pub(crate) trait Agent: Debug + Send + Sync {
    async fn configure_pod(&self, request: ConfigurePodRequest) -> Result<(), Fault>;
    async fn create_container(
        &self,
        request: CreateContainerRequest,
    ) -> Result<CreateContainerResponse, Fault>;
    async fn start_container(&self, container_id: &str) -> Result<(), Fault>;
    /// Changes its limits, all of them or none.
    async fn update_container(&self, request: UpdateContainerRequest) -> Result<(), Fault>;
    /// Takes on processors and a memory device that the machine has.
    async fn resize_pod(&self, request: ResizePodRequest) -> Result<(), Fault>;
    /// Kills, unmounts and forgets; unknown ids are fine.
    async fn remove_container(&self, container_id: &str) -> Result<(), Fault>;
    async fn exec(&self, request: ExecRequest) -> Result<(), Fault>;
    /// An empty exec id means the container's first process.
    async fn wait(&self, container_id: &str, exec_id: &str) -> Result<WaitResponse, Fault>;
    async fn signal(&self, request: SignalRequest) -> Result<(), Fault>;
    async fn stats(&self) -> Result<StatsResponse, Fault>;
    async fn usage(&self) -> Result<UsageResponse, Fault>;
    /// Kills all containers and syncs the disk.
    async fn shutdown(&self) -> Result<(), Fault>;
    /// What a container's first process says, from this byte on.
    async fn output(&self, container_id: &str, kind: StreamKind, offset: u64) -> Result<Output, Fault>;
    /// What a command says. Whoever drops it before its end hangs up on the command.
    async fn exec_output(&self, container_id: &str, exec_id: &str, kind: StreamKind)
    -> Result<Pieces, Fault>;
    /// A way to a process's stdin or terminal.
    async fn input(&self, container_id: &str, exec_id: &str) -> Result<Box<dyn Input>, Fault>;
    /// A connection to a TCP port of the pod's loopback.
    async fn port(&self, port: u16) -> Result<Box<dyn Connection>, Fault>;
}

/// An input stream of a process. Dropping it leaves the input open.
#[async_trait]
pub(crate) trait Input: Debug + Send {
    async fn write(&mut self, bytes: &[u8]) -> io::Result<()>;
    async fn resize(&mut self, columns: u16, rows: u16) -> io::Result<()>;
    /// The process's end of file.
    async fn end(&mut self) -> io::Result<()>;
}

/// Bytes both ways.
pub(crate) trait Connection: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Connection for T {}

/// An output stream of a container's first process.
pub(crate) struct Output {
    pub(crate) reader: Box<dyn AsyncRead + Send + Unpin>,
    pub(crate) acknowledge: Box<dyn Acknowledge>,
}

impl Debug for Output {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Output").finish_non_exhaustive()
    }
}

/// Tells the agent what it may forget.
#[async_trait]
pub(crate) trait Acknowledge: Send {
    /// `total` bytes of the stream, counted from its very beginning, are kept on the host.
    async fn acknowledge(&mut self, total: u64) -> io::Result<()>;
}

/// Images that are on this node.
pub(crate) trait ImageSource: Debug + Send + Sync {
    /// By tag, digest reference or id.
    fn find(&self, name: &str) -> Option<FoundImage>;
    /// Its EROFS, for reading.
    fn open(&self, id: &str) -> Result<File, Fault>;
}

/// An image that is on this node.
#[derive(Clone, Debug)]
pub(crate) struct FoundImage {
    /// `sha256:…`
    pub(crate) id: String,
    pub(crate) config: ImageConfig,
}
