//! Views of pods and containers: published by the drivers, read by everyone.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use oci_spec::runtime::Process;
use runtime_spec::{ContainerSpec, ExitReason, Ledger, PodSpec, Resources, User};
use serde::{Deserialize, Serialize};

use crate::versions::VmVersions;

/// Whether a pod can hold running containers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PodState {
    /// The pod's VM runs and its network is up.
    Ready,
    /// The pod was stopped, or its VM died.
    #[default]
    NotReady,
}

/// A pod as it is now.
#[derive(Clone, Debug, Default)]
pub struct PodView {
    /// The id: 64 hex digits.
    pub id: String,
    /// The pod as asked for.
    pub spec: PodSpec,
    /// The pod's state now.
    pub state: PodState,
    /// Nanoseconds since the epoch.
    pub created_at_ns: i64,
    /// Addresses, the primary one first; empty after the pod was stopped.
    pub ips: Vec<IpAddr>,
    /// The network namespace on the host, while the pod has one.
    pub netns: Option<PathBuf>,
    /// The VM's size, and its distribution among containers.
    pub ledger: Ledger,
    /// The pod's current limit.
    pub resources: Option<Resources>,
    /// The pod's current overhead.
    pub overhead: Option<Resources>,
    /// Process id of the pod's VMM, while there is one.
    pub vmm_pid: Option<u32>,
    /// Versions of the pod's VM; `None` for a VM of an early release. Such releases did not record them.
    pub versions: Option<VmVersions>,
    /// Why the pod is not ready, if it was not asked to stop.
    pub message: Option<String>,
    /// Leftovers that could not be undone; removing the pod tries again.
    pub unclean: Option<String>,
    /// Whether the current daemon did not find the pod's VM again at its start.
    pub lost: bool,
    /// Settings left by CNI plugins in the pod's network namespace but missing in its VM, for people, a line
    /// each.
    pub settings_passed_by: Vec<String>,
    /// Number of the VM's disks waiting for free space on the node: the file system of their files is full.
    pub full_disks: u32,
}

/// A container's state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ContainerState {
    /// Built and held before its program.
    Created,
    /// The container's program runs.
    Running,
    /// The container's program has ended, and all its output is in the log.
    Exited,
    /// The container was being made or started when the daemon died.
    #[default]
    Unknown,
}

/// A container as it is now.
#[derive(Clone, Debug, Default)]
pub struct ContainerView {
    /// The id: 64 hex digits.
    pub id: String,
    /// The pod's id.
    pub pod_id: String,
    /// The container as asked for.
    pub spec: ContainerSpec,
    /// `sha256:…`
    pub image_id: String,
    /// `registry/repository@sha256:…` with the digest as pulled, or the id if there was no name.
    pub image_ref: String,
    /// `registry/repository:tag` at the container's creation; empty if the image had no tag.
    pub image_tag: String,
    /// The container's state.
    pub state: ContainerState,
    /// Nanoseconds since the epoch.
    pub created_at_ns: i64,
    /// Nanoseconds since the epoch; 0 before the start.
    pub started_at_ns: i64,
    /// Nanoseconds since the epoch; 0 before the end.
    pub finished_at_ns: i64,
    /// 0..=255; 128 + signal if one ended it; 127, 126 or 128 if it could not be started.
    pub exit_code: i32,
    /// Reason of the end; `None` before it.
    pub reason: Option<ExitReason>,
    /// Details for a person; may be empty.
    pub message: String,
    /// The log file, absolute. If none was requested, it is a path without a file.
    pub log_path: PathBuf,
    /// The container's user.
    pub user: User,
    /// Number of the signal for asking the container to end.
    pub stop_signal: u8,
    /// Ids of the images among its mounts, by the mount's number in the spec.
    pub volume_images: BTreeMap<usize, String>,
    /// Current limits.
    pub resources: Resources,
    /// The first process, resolved.
    pub process: Arc<Process>,
}

/// Output and exit code of a command run in a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExecOutput {
    /// At most 16 MiB; the rest was discarded.
    pub stdout: Vec<u8>,
    /// At most 16 MiB; the rest was discarded.
    pub stderr: Vec<u8>,
    /// 0..=255; 128 + signal if one ended it.
    pub exit_code: i32,
}

/// One measured step of a pod's start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Phase {
    /// "network", "spawn", "scratch", "boot", "guest", …; some run in parallel.
    pub name: String,
    /// The start of the step, since the request came.
    pub start: Duration,
    /// How long the step took.
    pub duration: Duration,
}

/// The costs of a pod's VM.
#[derive(Clone, Debug)]
pub struct VmReport {
    /// Process id of the VMM.
    pub vmm_pid: u32,
    /// The VMM's counters.
    pub stats: proto_vmm::VmStats,
    /// Memory as the guest sees it, in bytes; `None` if the agent does not answer.
    pub guest: Option<GuestMemory>,
    /// The guest's clock; `None` as for the memory.
    pub clock: Option<GuestClock>,
}

/// A guest's clock against the host's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct GuestClock {
    /// The clock's reference: `ptp_kvm`, `messages`, or `none` yet.
    pub reference: &'static str,
    /// The host's clock less the guest's, in nanoseconds.
    pub offset_ns: i64,
    /// How far the true offset may be from `offset_ns`, in nanoseconds.
    pub error_ns: u64,
    /// How much faster the clock runs than the guest's hardware, in nanoseconds per second.
    pub rate_ppb: i64,
    /// How often the clock was stepped since the pod was started.
    pub steps: u64,
}

/// Memory as a guest sees it, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct GuestMemory {
    pub total: u64,
    pub available: u64,
    pub free: u64,
    pub agent_resident: u64,
    /// A number, not bytes.
    pub processes: u32,
}
