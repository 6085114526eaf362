//! A guest that is up: what it can, and what it may keep. Pure but for the rules of the node.

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

/// A VM whose agent answers.
#[derive(Debug)]
pub(super) struct Up {
    pub(super) live: Live,
    pub(super) versions: VmVersions,
    pub(super) keeps: Keeps,
    pub(super) origin: Origin,
    /// The template that the VM was restored from, if it was.
    pub(super) template: Option<Arc<Template>>,
}

/// Possible holdings of the guest: volumes that it keeps itself, sockets of the node, and compiled filters.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Keeps {
    /// In its memory.
    pub(crate) volumes: bool,
    /// On disks of its own.
    pub(crate) disks: bool,
    /// Whether its programs may reach sockets of the node.
    pub(crate) sockets: bool,
    /// Whether its agent takes filters of system calls as programs.
    pub(crate) filters: bool,
}

/// Volumes that the guest may keep itself: its agent and its VMM can, and the pod's handler does not have all of them shared.
pub(super) fn keeps(context: &StartContext, vm: &dyn Vm, protocol: u32, sockets: bool) -> Keeps {
    let rules = context.node.start.now();
    let handler = rules.find(&context.record.spec.runtime_handler);
    let allowed = handler.is_ok_and(|handler| !handler.share_all_volumes);
    Keeps {
        volumes: allowed && protocol >= version::GUEST_VOLUMES,
        disks: allowed && protocol >= version::DISK_VOLUMES && vm.has_volume_slots(),
        sockets: sockets && protocol >= version::HOST_SOCKETS,
        filters: protocol >= version::SYSCALL_FILTERS,
    }
}

/// Whether the pod's handler names sockets of the node.
pub(super) fn names_sockets(context: &StartContext) -> bool {
    let rules = context.node.start.now();
    rules.find(&context.record.spec.runtime_handler).is_ok_and(|handler| !handler.host_sockets.is_empty())
}

/// Refuses a guest whose agent would let the pod's writable layers grow without the limits that they have.
pub(super) fn check_layer_limits(context: &StartContext, protocol: u32) -> Result<(), PodError> {
    if context.record.layer_limits.is_empty() || protocol >= version::LAYER_LIMITS {
        return Ok(());
    }
    let text = "limiting the writable layers: the guest image's agent is too old for it; install the one of this release";
    Err(PodError::new(PodErrorKind::FailedPrecondition, text))
}

/// Joins the builds of the files with what the parts say of themselves.
pub(super) fn versions(builds: Builds, kernel: Kernel, vmm: &str, guest: &GuestReleases) -> VmVersions {
    let part = |said: &str, build| PartVersion { release: release(said), build };
    let kernel = builds.kernel(kernel).map(str::to_owned);
    VmVersions {
        vmm: part(vmm, builds.vmm),
        kernel: part(&guest.kernel, kernel),
        agent: part(&guest.agent, builds.agent),
    }
}
