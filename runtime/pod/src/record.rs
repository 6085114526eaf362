//! Pods and containers in their persistent form: immutable records, and statuses.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;

use proto_vmm::Slot;
use runtime_spec::{
    ContainerSpec, ExitReason, ImageConfig, LayerLimits, Mount, PodSpec, Resources, SocketToken, User,
    VmBounds, VmSize,
};
use serde::{Deserialize, Deserializer, Serialize};

use crate::boot_id::BootId;
use crate::host::memory_events::MemoryEventsBefore;
use crate::versions::VmVersions;
use crate::view::Phase;
use crate::volumes;

/// A requested pod, and its VM's sizes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct PodRecord {
    pub(crate) id: String,
    pub(crate) spec: PodSpec,
    /// Name of the pod's handler: the default one's for a spec without a name. Records of earlier versions
    /// have none.
    #[serde(default)]
    pub(crate) handler: String,
    pub(crate) bounds: VmBounds,
    pub(crate) scratch_bytes: u64,
    /// Records of the first releases have none.
    #[serde(default)]
    pub(crate) layer_limits: LayerLimits,
    pub(crate) created_at_ns: i64,
    /// Counters of the cgroups above the pod's at its request. Records of earlier versions have none.
    #[serde(default)]
    pub(crate) memory_events_before: MemoryEventsBefore,
}

impl PodRecord {
    /// Name of the pod's handler, to be looked up in the rules for new pods; empty for the default one.
    pub(crate) fn handler(&self) -> &str {
        if self.handler.is_empty() { &self.spec.runtime_handler } else { &self.handler }
    }
}

/// A pod's progress.
///
/// ```text
///  Starting ──── all phases done ───► Ready ── its VM dies ──► Dead
///     │ a phase fails                   │ stop                  │ stop
///     ▼                                 ▼                       │
///  Undoing                           Stopping ◄─────────────────┘
///     │ all undone                      │ all undone
///     ▼                                 ▼
///  (no record)                       Stopped ── remove ──► (no record)
///
///  If an undo fails, the pod stays in Undoing or Stopping, with the reason in `unclean`;
///  stop, remove and the daemon's next start try again.
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum PodStage {
    Starting,
    Undoing,
    Ready,
    Dead,
    Stopping,
    Stopped,
}

/// A pod as it is.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct PodStatus {
    pub(crate) stage: PodStage,
    pub(crate) vmm: Option<VmmProcess>,
    pub(crate) ips: Vec<IpAddr>,
    pub(crate) netns: Option<PathBuf>,
    pub(crate) phases: Vec<Phase>,
    /// Versions of the VM's parts. Records of the first releases do not have them.
    #[serde(default)]
    pub(crate) versions: Option<VmVersions>,
    /// Whether the guest may keep volumes itself: its agent can, and the handler allows it. Pods of earlier
    /// versions cannot.
    #[serde(default)]
    pub(crate) guest_volumes: bool,
    /// The places of the pod's memory volumes, by their directories on the node.
    #[serde(default)]
    pub(crate) memory_volumes: BTreeMap<PathBuf, MemoryPlace>,
    /// Whether the guest may have volumes on disks of its own: its VMM has slots for them, its agent can, and
    /// the handler allows it. Pods of earlier versions cannot.
    #[serde(default)]
    pub(crate) disk_volumes: bool,
    /// Whether the guest may have the disks on which an earlier VM of the pod has put volumes. The handler
    /// has no say: their files are nowhere else.
    #[serde(default)]
    pub(crate) disk_images: bool,
    /// Whether programs of the pod may reach sockets of the node: its VMM and its agent can, and the handler
    /// named sockets at the pod's start. Pods of earlier versions cannot.
    #[serde(default)]
    pub(crate) host_sockets: bool,
    /// Whether the agent accepts compiled filters of system calls. Agents of earlier versions compile rules
    /// themselves.
    #[serde(default)]
    pub(crate) syscall_filters: bool,
    /// The places of the pod's disk volumes, by their directories on the node.
    #[serde(default)]
    pub(crate) volume_disks: BTreeMap<PathBuf, DiskPlace>,
    #[serde(flatten)]
    pub(crate) capacity: CapacityStatus,
    /// Why the pod is not ready, if this was not requested.
    pub(crate) message: Option<String>,
    pub(crate) unclean: Option<String>,
    /// See [`crate::view::PodView::settings_passed_by`].
    #[serde(default)]
    pub(crate) settings_passed_by: Vec<String>,
}

impl PodStatus {
    pub(crate) fn starting() -> Self {
        PodStatus {
            stage: PodStage::Starting,
            vmm: None,
            ips: Vec::new(),
            netns: None,
            phases: Vec::new(),
            versions: None,
            guest_volumes: false,
            memory_volumes: BTreeMap::new(),
            disk_volumes: false,
            disk_images: false,
            host_sockets: false,
            syscall_filters: false,
            volume_disks: BTreeMap::new(),
            capacity: CapacityStatus::default(),
            message: None,
            unclean: None,
            settings_passed_by: Vec::new(),
        }
    }
}

/// Place of a volume's files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum MemoryPlace {
    /// The guest's own memory.
    Guest,
    /// The node; the guest reaches its files.
    Node,
}

/// Place of the files of a volume on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum DiskPlace {
    /// A disk of the VM's, in this slot.
    Guest(Slot),
    /// The node; the guest reaches its files.
    Node,
}

/// A pod's limits, and the size of its VM.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct CapacityStatus {
    /// The pod's limits, if an update has changed the spec's.
    #[serde(default)]
    pub(crate) resources: Option<Resources>,
    #[serde(default)]
    pub(crate) overhead: Option<Resources>,
    /// The last size requested of the VM, if it differs from its size at boot.
    #[serde(default)]
    pub(crate) size: Option<VmSize>,
}

/// A VMM's process; start time and boot distinguish it from a later process with the same id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct VmmProcess {
    pub(crate) pid: u32,
    /// Clock ticks since the host's boot: field 22 of `/proc/<pid>/stat`.
    pub(crate) start_time: u64,
    /// The process's boot. Records of the first versions do not have it: such a process has no owner until it
    /// is found by its socket.
    #[serde(default)]
    pub(crate) boot: Option<BootId>,
}

impl VmmProcess {
    /// A process of this boot.
    pub(crate) fn of_this_boot(pid: u32, start_time: u64) -> VmmProcess {
        VmmProcess { pid, start_time, boot: BootId::current() }
    }
}

/// A requested container, with its image's configuration at that time.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ContainerRecord {
    pub(crate) id: String,
    pub(crate) pod_id: String,
    pub(crate) spec: ContainerSpec,
    pub(crate) image_id: String,
    /// See [`crate::backend::FoundImage::reference`]; empty in a record of an earlier version.
    #[serde(default)]
    pub(crate) image_ref: String,
    /// See [`crate::backend::FoundImage::tag_of`]; empty without a tag.
    #[serde(default)]
    pub(crate) image_tag: String,
    pub(crate) image: ImageConfig,
    /// The slot of the container's image.
    pub(crate) slot: Slot,
    /// Images mounted by the container beside its own.
    #[serde(default)]
    pub(crate) image_volumes: Vec<ImageVolume>,
    /// Block devices of the host given to the container.
    #[serde(default)]
    pub(crate) disks: Vec<Disk>,
    /// Mounts of volumes kept by the guest itself.
    #[serde(default)]
    pub(crate) guest_volumes: Vec<GuestVolume>,
    /// Sockets of the node available to the container.
    #[serde(default)]
    pub(crate) host_sockets: Vec<HostSocket>,
    /// Mounts at places of other containers.
    #[serde(default)]
    pub(crate) joined: Vec<JoinedMount>,
    pub(crate) log_path: Option<PathBuf>,
    pub(crate) created_at_ns: i64,
}

/// A mount at the place of another container's mount. The guest has each file of it once: sockets connect,
/// and maps are shared.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub(crate) struct JoinedMount {
    /// The number of the mount.
    pub(crate) number: usize,
    pub(crate) place: SharedPlace,
}

/// A place in a pod's shared directory.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub(crate) struct SharedPlace {
    /// The directory of the container that it was made for. The container may be gone.
    pub(crate) container: String,
    pub(crate) number: usize,
    /// The mount that it was made for.
    pub(crate) mount: Mount,
}

impl SharedPlace {
    pub(crate) fn key(&self) -> (&str, usize) {
        (&self.container, self.number)
    }
}

/// A volume of the guest's own among a container's mounts.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct GuestVolume {
    /// The volume's number among the mounts of the spec.
    pub(crate) number: usize,
    /// The volume's directory on the node, or the place of a part of one.
    pub(crate) directory: PathBuf,
    /// Memory taken by a copy of a published volume when it was first sent; 0 for a volume in memory.
    #[serde(default)]
    pub(crate) copied_bytes: u64,
    /// Whether it is a copy of a part of a published volume. Such a copy is the container's own and never
    /// changes.
    #[serde(default)]
    pub(crate) part: bool,
    /// Whether it is a copy of a published volume.
    #[serde(default)]
    pub(crate) published: bool,
    /// The slot of its disk, for a volume on disk.
    #[serde(default)]
    pub(crate) disk: Option<Slot>,
}

impl GuestVolume {
    pub(crate) fn memory(number: usize, directory: PathBuf) -> GuestVolume {
        GuestVolume { number, directory, copied_bytes: 0, part: false, published: false, disk: None }
    }

    pub(crate) fn disk(number: usize, directory: PathBuf, slot: Slot) -> GuestVolume {
        GuestVolume { disk: Some(slot), ..GuestVolume::memory(number, directory) }
    }

    pub(crate) fn published(number: usize, directory: PathBuf, copied_bytes: u64, part: bool) -> GuestVolume {
        GuestVolume { number, directory, copied_bytes, part, published: true, disk: None }
    }

    pub(crate) fn is_memory(&self) -> bool {
        !self.published && self.disk.is_none()
    }

    /// The volume's name in the guest.
    pub(crate) fn name(&self, container_id: &str) -> String {
        if self.part {
            let mount = format!("{}/{}", self.number, self.directory.display());
            return volumes::name(&PathBuf::from(container_id).join(mount));
        }
        volumes::name(&self.directory)
    }
}

/// A socket of the node available to a container.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct HostSocket {
    /// The number of the mount.
    pub(crate) number: usize,
    /// The socket's path in the mount; `None` if the mount is the socket.
    pub(crate) sub_path: Option<PathBuf>,
    /// The socket on the node.
    pub(crate) path: PathBuf,
    /// The guest's secret for naming the socket, in hex.
    #[serde(with = "token_in_hex")]
    pub(crate) token: SocketToken,
}

mod token_in_hex {
    use runtime_spec::SocketToken;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(token: &SocketToken, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&hex::encode(token.0))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<SocketToken, D::Error> {
        let mut token = SocketToken([0; runtime_spec::SOCKET_TOKEN_BYTES]);
        let text = String::deserialize(deserializer)?;
        hex::decode_to_slice(text, &mut token.0).map_err(serde::de::Error::custom)?;
        Ok(token)
    }
}

/// An image among a container's mounts.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ImageVolume {
    /// The volume's number among the mounts of the spec.
    pub(crate) number: usize,
    pub(crate) image_id: String,
    pub(crate) slot: Slot,
}

/// A block device among a container's devices.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Disk {
    /// The disk's number among the devices of the spec.
    pub(crate) number: usize,
    /// The device of the host, and how it is plugged: see [`crate::backend::HostDisk`].
    pub(crate) key: String,
    pub(crate) slot: Slot,
}

/// A container's progress.
///
/// ```text
///  Creating ── built ──► Created ── start ──► Starting ── released ──► Running ── ended ──► Exited
///     │ fails                                    │ fails                                      ▲
///     ▼                                          └── StartError, 128; ContainerCannotRun ─────┤
///  (no record)                    the pod's VM ends, in any stage: 137 ──────────────────────┘
///
///  If the daemon dies in Starting, it is open whether the program runs: Unknown, until it is stopped.
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ContainerStage {
    Creating,
    Created,
    Starting,
    Running,
    Exited,
    Unknown,
}

/// A container as an earlier daemon left it.
pub(crate) type ContainerOnRecord = (ContainerRecord, ContainerStatus);

/// A container as it is.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ContainerStatus {
    pub(crate) stage: ContainerStage,
    pub(crate) started_at_ns: i64,
    pub(crate) finished_at_ns: i64,
    pub(crate) exit_code: i32,
    /// Set at the end.
    #[serde(default, deserialize_with = "reason_or_none")]
    pub(crate) reason: Option<ExitReason>,
    pub(crate) message: String,
    pub(crate) user: User,
    /// The limits, if an update has changed the spec's.
    #[serde(default)]
    pub(crate) resources: Option<Resources>,
    /// Whether the container has had its stop signal. It is not sent again.
    #[serde(default)]
    pub(crate) stop_signal_sent: bool,
}

impl ContainerStatus {
    pub(crate) fn creating() -> Self {
        ContainerStatus {
            stage: ContainerStage::Creating,
            started_at_ns: 0,
            finished_at_ns: 0,
            exit_code: 0,
            reason: None,
            message: String::new(),
            user: User::default(),
            resources: None,
            stop_signal_sent: false,
        }
    }
}

/// Reads an exit reason. A container not yet exited has none: null, or an empty name in a status of the first
/// versions.
fn reason_or_none<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<ExitReason>, D::Error> {
    match Option::<String>::deserialize(deserializer)? {
        Some(name) if !name.is_empty() => name.parse().map(Some).map_err(serde::de::Error::custom),
        _ => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_keeps_its_token_and_shows_it_to_nobody() {
        let token = SocketToken([0xab; 32]);
        let socket =
            HostSocket { number: 1, sub_path: Some("a.sock".into()), path: "/run/a.sock".into(), token };
        let json = serde_json::to_value(&socket).unwrap();
        assert_eq!(json["token"], "ab".repeat(32));
        assert_eq!(serde_json::from_value::<HostSocket>(json.clone()).unwrap().token, token);
        assert!(!format!("{socket:?}").contains("171"));
        for wrong in ["", "ab", "zz"] {
            let mut json = json.clone();
            json["token"] = wrong.into();
            assert!(serde_json::from_value::<HostSocket>(json).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_status_keeps_its_reason_and_one_of_the_first_versions_is_read() {
        let status = ContainerStatus { reason: Some(ExitReason::OomKilled), ..ContainerStatus::creating() };
        let mut json = serde_json::to_value(&status).unwrap();
        assert_eq!(json["reason"], "OOMKilled");
        let read = |json: &serde_json::Value| serde_json::from_value::<ContainerStatus>(json.clone());
        assert_eq!(read(&json).unwrap().reason, status.reason);
        json["reason"] = "".into();
        assert_eq!(read(&json).unwrap().reason, None);
        json["reason"] = "Evicted".into();
        assert!(read(&json).is_err());
    }
}
