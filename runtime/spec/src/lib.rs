//! Pods and containers as requested, checked, and resolved for the VM and the agent.
//!
//! | step | where |
//! |---|---|
//! | requested | [`PodSpec`], [`ContainerSpec`], [`ExecSpec`] |
//! | refused, by the field's name | [`PodSpec::check`], [`ContainerSpec::check`] |
//! | size of the VM | [`VmBounds::of`] at boot, [`Ledger::draw`] from then on |
//! | overhead for a RuntimeClass | [`VmCosts::overhead`] |
//! | limits of the containers | [`Resources::cgroup_files`] |
//! | resolved, for the agent | [`ContainerPlan::resolve`], [`ExecPlan::resolve`] |
//! | volumes for the guest to keep | [`KubeletPath::of`], [`ContainerPlan::keep_in_guest`] |
//! | name servers of the host | [`HostResolvConf::reachable`] |
//! | reasons of an end | [`ExitReason`], [`StartFailure`] |
//!
//! The crate is pure: no input or output, no clock, no threads.

#![forbid(unsafe_code)]

mod bandwidth;
mod capabilities;
mod cgroup;
mod check;
mod check_security;
mod container_path;
mod container_spec;
mod error;
mod exec_spec;
mod exit_reason;
mod guest_device;
mod host_resolv_conf;
mod image_config;
mod kernel;
mod kubelet_path;
mod layer_limits;
mod ledger;
mod overhead;
mod plan;
mod pod_spec;
mod quantity;
mod resources;
mod seccomp_profile;
mod security;
mod signal;
mod size;
mod sizing;
#[cfg(test)]
mod sizing_page;
mod stop_with_containers;
mod sysctls;
mod template_scope;
mod user;
mod volume_cache;

pub use bandwidth::Bandwidth;
pub use cgroup::swap_together;
pub use container_spec::{ContainerSpec, Device, Mount, MountPropagation, ProcessLimit, Tmpfs};
pub use error::SpecError;
pub use exec_spec::ExecSpec;
pub use exit_reason::{ExitReason, StartFailure, UnknownExitReason};
pub use guest_device::GuestDevice;
pub use host_resolv_conf::{HostResolvConf, RESOLV_CONF, RESOLVED_CONF};
pub use image_config::ImageConfig;
pub use kernel::Kernel;
pub use kubelet_path::{KubeletPath, VolumePlugin};
pub use layer_limits::{LayerLimits, scratch_bytes};
pub use ledger::{Grant, Ledger};
pub use overhead::{Overhead, VmCost, VmCosts};
pub use plan::{
    BlockDevicePlan, ContainerPlan, ContainerSlots, DeclaredVolumePlan, DiskVolume, ExecPlan, FileAccess,
    GuestPaths, GuestVolumeContent, GuestVolumePlan, HostSocketPlan, ImageVolumePlan, MASKED_PATHS,
    MemoryVolume, READONLY_PATHS, SOCKET_TOKEN_BYTES, SocketPlace, SocketToken, VolumeLimits, share_name,
};
pub use pod_spec::{Dns, PodSpec, PortMapping, Protocol};
pub use resources::{Hugepages, Resources, cpus_together};
pub use seccomp_profile::{SECCOMP_PROFILE_BYTES_MAX, SeccompProfile};
pub use security::{
    Capabilities, ContainerSecurity, IdMapping, NamespaceMode, Namespaces, PodSecurity, Profile,
};
pub use signal::{Signal, parse_signal};
pub use size::{HandlerConfig, HandlerKind, Shortage, VmBounds, VmSize, smallest_vm_on_the_node};
pub use sizing::MEMORY_GRAIN;
pub use stop_with_containers::STOP_WITH_CONTAINERS;
pub use template_scope::TemplateScope;
pub use user::User;
pub use volume_cache::VolumeCache;
