//! A running guest: its abilities, and what it may keep. Pure except for the node's rules.

use std::sync::Arc;

use proto_agent::version;
use runtime_spec::Kernel;

use super::context::StartContext;
use crate::backend::{GuestReleases, Vm};
use crate::counters::Origin;
use crate::error::{PodError, PodErrorKind};
use crate::installation::Builds;
use crate::live::Live;
use crate::templates::Template;
use crate::versions::{PartVersion, VmVersions, release};

/// A VM with a responsive agent.
#[derive(Debug)]
pub(super) struct Up {
    pub(super) live: Live,
    pub(super) versions: VmVersions,
    pub(super) keeps: Keeps,
    pub(super) origin: Origin,
    /// The VM's template, if it was restored from one.
    pub(super) template: Option<Arc<Template>>,
}

/// Features of the guest: volumes kept by itself, sockets of the node, and compiled filters.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Keeps {
    /// In its memory.
    pub(crate) volumes: bool,
    /// On disks of its own.
    pub(crate) disks: bool,
    /// On disks of its own, if an earlier VM of the pod has put them there.
    pub(crate) disk_images: bool,
    /// Whether its programs may reach sockets of the node.
    pub(crate) sockets: bool,
    /// Whether its agent takes filters of system calls as programs.
    pub(crate) filters: bool,
}

/// Determines which volumes the guest may keep itself: its agent and its VMM can, and the pod's handler does
/// not require all of them to be shared. The files on an existing disk are nowhere else, so it counts
/// whatever the handler requires now.
pub(super) fn keeps(context: &StartContext, vm: &dyn Vm, protocol: u32, sockets: bool) -> Keeps {
    let rules = context.node.start.now();
    let handler = rules.find(context.record.handler());
    let allowed = handler.is_ok_and(|handler| !handler.share_all_volumes);
    let can_have_disks = protocol >= version::DISK_VOLUMES && vm.has_volume_slots();
    Keeps {
        volumes: allowed && protocol >= version::GUEST_VOLUMES,
        disks: allowed && can_have_disks,
        disk_images: can_have_disks,
        sockets: sockets && protocol >= version::HOST_SOCKETS,
        filters: protocol >= version::SYSCALL_FILTERS,
    }
}

/// Whether the pod's handler names sockets of the node.
pub(super) fn names_sockets(context: &StartContext) -> bool {
    let rules = context.node.start.now();
    rules.find(context.record.handler()).is_ok_and(|handler| !handler.host_sockets.is_empty())
}

/// Refuses a guest with an agent too old to enforce the limits of the pod's writable layers.
pub(super) fn check_layer_limits(context: &StartContext, protocol: u32) -> Result<(), PodError> {
    if context.record.layer_limits.is_empty() || protocol >= version::LAYER_LIMITS {
        return Ok(());
    }
    let text = "limiting the writable layers: the guest image's agent is too old for it; install the one of this release";
    Err(PodError::new(PodErrorKind::FailedPrecondition, text))
}

/// Combines the builds of the files with the releases reported by the parts.
pub(super) fn versions(builds: Builds, kernel: Kernel, vmm: &str, guest: &GuestReleases) -> VmVersions {
    let part = |said: &str, build| PartVersion { release: release(said), build };
    let kernel = builds.kernel(kernel).map(str::to_owned);
    VmVersions {
        vmm: part(vmm, builds.vmm),
        kernel: part(&guest.kernel, kernel),
        agent: part(&guest.agent, builds.agent),
    }
}
