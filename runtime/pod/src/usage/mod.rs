//! Usage of pods: the VMM's from the host, the containers' from the guest.
//!
//! ```text
//!   guest ── UsageResponse, hostile ──► sanitized.rs: checked ─┐
//!                                                              ├──► meter.rs: last answer, rates ──► readers
//!   cgroup, /proc ──► host.rs ─────────────────────────────────┘
//! ```
//!
//! All counters begin with the pod or container. Each reading has a timestamp of the host's clock.

mod figures;
mod host;
mod meter;
mod rate;
mod read;
mod sanitized;

pub(crate) use meter::{Known, Meter};
pub(crate) use read::{HostSource, UsageSource, read, read_host};

pub use figures::{
    ContainerUsage, CpuUsage, DeviceUsage, FilesystemUsage, GuestUsage, HostUsage, HugepageUsage,
    InterfaceUsage, MemoryUsage, PodUsage, Pressure, Stall, TaskUsage, WritableLayerUsage,
};
