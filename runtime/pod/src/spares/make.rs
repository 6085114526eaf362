//! Makes a spare, a VMM alone or a VM as far as it can be made without its pod, and ends one.

use std::convert::Infallible;
use std::fs::File;
use std::sync::Arc;
use std::time::Duration;

use proto_agent::agent::PreparePodRequest;
use proto_agent::version;
use proto_vmm::{Device, Slot};
use runtime_spec::VolumeCache;
use tokio::time::Instant;

use super::kept::{Spare, SpareGuest};
use super::kind::VmKind;
use crate::backend::{RestoreRequest, Vm};
use crate::blocking::{blocking_within, within};
use crate::error::PodError;
use crate::host::scratch;
use crate::installation::Builds;
use crate::node::Node;
use crate::templates::Template;
use crate::unclaimed::{self, FILES_WITHIN};
use crate::vm_end;

/// How long the guest may take to become ready. Generous: a software-emulated guest is slow, and pods come
/// first.
const READY_WITHIN: Duration = Duration::from_secs(240);

/// Makes a VMM without a guest.
pub(super) async fn vmm(node: &Arc<Node>, volume_cache: VolumeCache) -> Result<Spare, PodError> {
    let id = unclaimed::begin(node).await?;
    match unclaimed::spawn(node, &id, volume_cache).await {
        Ok(vm) => Ok(Spare { id, vm, guest: None, made: Instant::now() }),
        Err(error) => {
            unclaimed::end(node, &id, None, true).await;
            Err(error)
        }
    }
}

/// Makes a VM of this kind from the template.
pub(super) async fn vm(node: &Arc<Node>, kind: &VmKind, template: Arc<Template>) -> Result<Spare, PodError> {
    let mut spare = vmm(node, kind.volume_cache).await?;
    match start(node, &spare.id, &spare.vm, kind, template).await {
        Ok(guest) => {
            spare.guest = Some(guest);
            Ok(spare)
        }
        Err(error) => {
            // The end of the daemon is not a failure.
            unclaimed::end(node, &spare.id, Some(&spare.vm), !node.spares.closing.has_begun()).await;
            Err(error)
        }
    }
}

/// Ends an unused spare.
pub(super) async fn end(node: &Arc<Node>, spare: Spare) {
    unclaimed::end(node, &spare.id, Some(&spare.vm), false).await;
}

async fn start(
    node: &Arc<Node>,
    id: &str,
    vm: &Arc<dyn Vm>,
    kind: &VmKind,
    template: Arc<Template>,
) -> Result<SpareGuest, PodError> {
    const DOING: &str = "starting a spare VM";
    let root_image = node.root_image("opening the root image").await?;
    let builds = builds(node).await?;
    let parts = template.parts_for_spare().map_err(|error| PodError::internal(DOING).because(error))?;
    let bounds = kind.bounds();
    let program_port = kind.program_port && vm.has_program_port();
    let request = RestoreRequest { bounds, template: parts, root_image, program_port };
    let raising = async {
        vm.restore(request).await?;
        vm.wake().await?;
        vm.wait_ready().await
    };
    let ready = async {
        tokio::select! {
            biased;
            () = node.spares.closing.begun() => Err(PodError::internal(format!("{DOING}: the daemon ends"))),
            ready = raising => ready.map_err(|error| PodError::internal(DOING).because(error)),
            report = vm.stopped() => Err(PodError::internal(format!("{DOING}: {}", vm_end::describe(&report)))),
        }
    };
    let (disk, ready) = tokio::join!(scratch_disk(node, id, kind), within(READY_WITHIN, DOING, ready));
    let (agent, releases) = ready?;
    let disk = Device::Blk { image: disk?.into(), read_only: false };
    let failed = |error| PodError::internal("preparing a spare VM").because(error);
    vm.plug(Slot::SCRATCH, disk).await.map_err(failed)?;
    if releases.protocol >= version::PREPARE {
        let request = PreparePodRequest {
            scratch_slot: u32::from(Slot::SCRATCH.number()),
            shared_slot: u32::from(Slot::FS.number()),
            ..PreparePodRequest::default()
        };
        agent.prepare_pod(request).await.map_err(failed)?;
    }
    Ok(SpareGuest { agent, releases, builds, template })
}

/// The builds of the installation's parts.
async fn builds(node: &Arc<Node>) -> Result<Builds, PodError> {
    let places = node.places.clone();
    let looking = move || Ok::<_, Infallible>(places.part_files().builds());
    blocking_within(FILES_WITHIN, &node.pools.installation, "looking at the installation's files", looking)
        .await
}

async fn scratch_disk(node: &Arc<Node>, id: &str, kind: &VmKind) -> Result<File, PodError> {
    let (template, bytes) = (node.places.scratch_template.clone(), kind.scratch_bytes);
    let path = node.places.scratch_path(id);
    let making = move || scratch::make(&template, &path, bytes);
    blocking_within(FILES_WITHIN, &node.pools.state, "making a spare VM's scratch disk", making).await
}
