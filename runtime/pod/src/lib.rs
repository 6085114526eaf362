//! Pods: one driver task each.
//!
//! [`Pods`] is the handle held by the gRPC edge and the command line; its file says where to read on. This
//! crate decides what happens to a pod and in which order. CRI types and the parsing of a guest's messages do
//! not belong here.

#![forbid(unsafe_code)]

mod backend;
mod belonging;
mod blocking;
mod boot_id;
mod build_id;
mod capacity;
mod clock;
mod command;
mod config;
mod container;
mod counters;
mod device_counts;
mod digests;
mod dirs;
pub mod doctor;
mod driver;
mod error;
mod full_disks;
mod guest_clocks;
mod host;
mod id;
mod installation;
mod installed;
mod io;
mod journal;
mod live;
mod node;
mod plugins;
mod plugs;
mod pod_logs;
mod pods;
mod reclaim;
mod record;
mod recover;
mod root_image;
mod roster;
mod shortage;
mod slices;
mod sockets;
mod spans;
mod spares;
mod start;
mod templates;
mod unclaimed;
mod usage;
mod versions;
mod view;
mod vm_end;
mod volumes;

pub use belonging::check_belonging;
pub use config::{EarlierPods, Kernels, PodsConfig, StartConfig};
pub use container::attach::AttachRequest;
pub use container::written::WRITTEN_WITHIN;
pub use device_counts::DeviceCounts;
pub use digests::{DigestError, Digests};
pub use dirs::DaemonDirs;
pub use error::{PodError, PodErrorKind};
pub use host::scratch::ScratchUsage;
pub use installation::Installed;
pub use installed::InstalledFile;
pub use io::streams::{ContainerEnd, ExecEnd, ProcessEnd, ProcessInput, ProcessOutput, ProcessStreams};
pub use plugins::{Asking, NoPlugins, PluginRefusal, Plugins};
pub use pod_logs::{ConsolePath, PodLogs, PodLogsError};
pub use pods::Pods;
pub use roster::events::{Event, EventKind, Events, Missed};
pub use runtime_store::SCHEMA_VERSION;
pub use usage::{
    ContainerUsage, CpuUsage, DeviceUsage, FilesystemUsage, GuestUsage, HostUsage, HugepageUsage,
    InterfaceUsage, MemoryUsage, PodUsage, Pressure, Stall, TaskUsage, WritableLayerUsage,
};
pub use versions::{Part, PartVersion, VmVersions};
pub use view::{
    ContainerState, ContainerView, ExecOutput, GuestClock, GuestMemory, Phase, PodState, PodView, VmReport,
};

#[cfg(test)]
mod tests;
