//! Pods: one driver task each.
//!
//! [`Pods`] is the handle that the gRPC edge and the command line hold; its file says where to read on.
//! This crate decides what happens to a pod and in which order. It must never know CRI types, nor parse
//! what a guest sent.

#![forbid(unsafe_code)]

mod acks;
mod admission;
mod attach;
mod cgroup;
mod clock;
mod config;
mod container;
mod device_slots;
mod driver;
mod ending;
mod error;
mod events;
mod exec;
mod guest_files;
mod kept;
mod node;
mod open;
mod output;
mod outside;
mod pods;
mod record;
mod recover;
mod roster;
mod scratch;
mod seccomp_file;
mod shared;
mod start;
mod stop_container;
mod stopwatch;
mod streams;
mod tap;
mod undo;
mod usage;
mod view;
mod vmm_process;
mod watcher;

pub use attach::AttachRequest;
pub use config::PodsConfig;
pub use error::{PodError, PodErrorKind};
pub use events::{Event, EventKind, Events, Missed};
pub use exec::ExecRequest;
pub use pods::Pods;
pub use scratch::ScratchUsage;
pub use streams::{ContainerEnd, ExecEnd, ProcessEnd, ProcessInput, ProcessOutput, ProcessStreams};
pub use usage::{
    ContainerUsage, CpuUsage, DeviceUsage, FilesystemUsage, GuestUsage, HostUsage, HugepageUsage,
    InterfaceUsage, MemoryUsage, PodUsage, Pressure, Stall, TaskUsage, WritableLayerUsage,
};
pub use view::{
    ContainerState, ContainerView, ExecOutput, GuestMemory, Phase, PodState, PodView, User, VmReport,
};

#[cfg(test)]
mod tests;
