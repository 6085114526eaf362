//! The VM step: VMM, boot, the agent's first message. In parallel the scratch disk is made, and plugged once
//! both exist.

use std::convert::Infallible;
use std::fs::File;
use std::sync::Arc;
use std::time::Duration;

use proto_vmm::{Device, Slot, StopReport};
use runtime_spec::VolumeCache;
use tokio::sync::watch;

use super::context::{Failed, MADE_WITHIN, StartContext};
use super::spare;
use super::template::{Blame, Chosen};
use super::up::{Up, check_layer_limits, keeps, names_sockets, versions};
use super::vmm::{log_owner, make_cgroups, record, set_oom_score};
use crate::backend::{Agent, BootRequest, GuestReleases, SpawnRequest, Vm};
use crate::blocking::blocking_within;
use crate::counters::Origin;
use crate::error::{PodError, PodErrorKind};
use crate::host::{cgroup, connector_cgroup, logs, scratch};
use crate::installation::Builds;
use crate::installed::InstalledFile;
use crate::live::{self, Live};
use crate::node::Node;
use crate::record::{PodRecord, VmmProcess};
use crate::spares::Spare;
use crate::vm_end;

/// How long the agent may take to report it is ready. Generous: a software-emulated guest is slow.
const READY_WITHIN: Duration = Duration::from_secs(120);

/// How long opening the guest's kernel and root image may take.
const OPENED_WITHIN: Duration = Duration::from_secs(30);

/// The error text of a failed read of the installation.
const LOOKING: &str = "looking at the installation's files";

/// How long removing files may take. The next stop retries a hanging disk.
const CLEARED_WITHIN: Duration = Duration::from_secs(60);

/// Makes the disk, starts a VMM, and boots the guest or restores it from a template. Or takes an existing
/// spare VM or VMM. A failed template or spare costs a second VMM. Between the steps the call checks for
/// cancellation. Returns the VM and its origin.
pub(super) async fn up(
    context: &StartContext,
    called_off: watch::Receiver<bool>,
    spare: Option<Spare>,
) -> Result<Up, Failed> {
    let mut vmm = None;
    match spare {
        Some(Spare { vm, guest: Some(guest), .. }) => {
            if let Some(up) = spare::claim(context, vm, guest).await? {
                return Ok(up);
            }
        }
        Some(Spare { vm, guest: None, .. }) => vmm = Some(vm),
        None => {}
    }
    let chosen = Chosen::of(context);
    let outcome = raise(context, called_off.clone(), chosen.as_ref(), vmm).await;
    let failed = match (outcome, &chosen) {
        (Err(failed), Some(chosen)) if chosen.has_failed(context, &failed.error) => failed,
        (outcome, _) => return outcome,
    };
    let Some(vm) = &failed.vm else { return Err(failed) };
    if live::end(&**vm).await.is_err() || *called_off.borrow() {
        return Err(failed);
    }
    raise(context, called_off, None, None).await
}

/// Raises the VM, from `chosen` if there is one, in the spare VMM if there is one.
async fn raise(
    context: &StartContext,
    called_off: watch::Receiver<bool>,
    chosen: Option<&Chosen>,
    vmm: Option<Arc<dyn Vm>>,
) -> Result<Up, Failed> {
    let (disk, up) = tokio::join!(
        context.watch.time("scratch", make_scratch(context)),
        raise_guest(context, called_off, chosen, vmm)
    );
    let up = up?;
    let vm = up.live.vm.clone();
    let plugging = async {
        let disk = Device::Blk { image: disk?.into(), read_only: false };
        up.live.call("plugging the scratch disk", up.live.vm.plug(Slot::SCRATCH, disk)).await
    };
    plugging.await.map_err(|error| Failed { error, vm: Some(vm) })?;
    Ok(up)
}

/// Raises the VM but for its scratch disk.
async fn raise_guest(
    context: &StartContext,
    called_off: watch::Receiver<bool>,
    chosen: Option<&Chosen>,
    vmm: Option<Arc<dyn Vm>>,
) -> Result<Up, Failed> {
    let vm = take_or_spawn(context, vmm).await?;
    let late = |error| Failed { error, vm: Some(vm.clone()) };
    let recording = record(context, &vm);
    let sockets = names_sockets(context) && vm.has_program_port();
    let booting = context.watch.time("boot", boot(context, &vm, chosen, sockets));
    let (recorded, booted) = tokio::join!(recording, booting);
    recorded.map_err(late)?;
    let builds = booted.map_err(late)?;
    match context.watch.time("guest", wait_ready(&vm, called_off, chosen)).await {
        Ok((agent, releases)) => {
            check_layer_limits(context, releases.protocol).map_err(late)?;
            let kernel = context.record.bounds.kernel;
            let versions = versions(builds, kernel, &vm.release(), &releases);
            let keeps = keeps(context, &*vm, releases.protocol, sockets);
            let template = chosen.map(|chosen| Arc::clone(chosen.template()));
            let origin = if template.is_some() { Origin::Template } else { Origin::Boot };
            Ok(Up { live: Live::new(vm, agent), versions, keeps, origin, template })
        }
        Err(error) => Err(late(with_oom_kill(context, error).await)),
    }
}

/// The failure of a boot. It mentions if the node's kernel killed the VMM for lack of memory.
async fn with_oom_kill(context: &StartContext, error: PodError) -> PodError {
    match context.node.oom_kill(&context.record).await {
        Some(killed) => {
            let text = format!("{killed}; {error}");
            error.reworded(text)
        }
        None => error,
    }
}

async fn make_scratch(context: &StartContext) -> Result<File, PodError> {
    let (template, bytes) = (context.node.places.scratch_template.clone(), context.record.scratch_bytes);
    let path = context.node.places.scratch_path(context.id());
    let (pool, doing) = (&context.node.pools.state, "making the scratch disk");
    blocking_within(MADE_WITHIN, pool, doing, move || scratch::make(&template, &path, bytes)).await
}

/// The spare VMM, if there is a working one, or a new one.
async fn take_or_spawn(context: &StartContext, vmm: Option<Arc<dyn Vm>>) -> Result<Arc<dyn Vm>, Failed> {
    if let Some(vm) = vmm
        && spare::claim_vmm(context, &vm).await?
    {
        return Ok(vm);
    }
    let spawned = context.watch.time("spawn", spawn(context)).await;
    spawned.map_err(|error| Failed { error, vm: None })
}

async fn spawn(context: &StartContext) -> Result<Arc<dyn Vm>, PodError> {
    let (node, id) = (&context.node, context.id());
    let log = node.places.pod_state_dir(id).join(logs::VMM);
    let doing = format!("making the VMM's log {}", log.display());
    let owner = log_owner(context);
    blocking_within(MADE_WITHIN, &node.pools.state, &doing, move || logs::make(&log, &owner)).await?;
    let cgroups = make_cgroups(context).await?;
    let rules = node.start.now();
    let handler = rules.find(context.record.handler());
    let request = SpawnRequest {
        id: id.to_owned(),
        dir: node.places.pod_run_dir(id),
        shared: node.places.pod_shared_dir(id),
        volume_cache: handler.map_or_else(|_| VolumeCache::default(), |handler| handler.volume_cache),
        cgroups,
    };
    let spawned = node.backends.vms.spawn(request).await;
    let vm = spawned.map_err(|error| PodError::internal("starting the VMM").because(error))?;
    if let Err(error) = set_oom_score(&vm).await {
        tracing::warn!(pod = context.id(), error = error.chain(), "a VMM keeps the daemon's OOM score");
    }
    Ok(vm)
}

/// Boots the VM, and returns the builds of its files.
async fn boot(
    context: &StartContext,
    vm: &Arc<dyn Vm>,
    chosen: Option<&Chosen>,
    program_port: bool,
) -> Result<Builds, PodError> {
    let open = async |file: &InstalledFile| {
        let (doing, file) = (format!("booting the VM: opening {}", file.name().display()), file.clone());
        let pool = &context.node.pools.installation;
        blocking_within(OPENED_WITHIN, pool, &doing, move || File::open(file.path())).await
    };
    let places = &context.node.places;
    let doing = format!("booting the VM: opening {}", places.root_image.name().display());
    let root_image = context.node.root_image(&doing).await?;
    if let Some(chosen) = chosen {
        chosen.restore(context, vm, root_image, program_port).await?;
    } else {
        let (bounds, kernel) = (context.record.bounds, places.kernels.of(context.record.bounds.kernel));
        let request = BootRequest { bounds, kernel: open(kernel).await?, root_image, program_port };
        vm.boot(request).await.map_err(|error| PodError::internal("booting the VM").because(error))?;
    }
    let places = places.clone();
    let reading = move || Ok::<_, Infallible>(places.part_files().builds());
    let pool = &context.node.pools.installation;
    // A start does not fail without them: the pod then counts as outdated.
    Ok(blocking_within(OPENED_WITHIN, pool, LOOKING, reading).await.unwrap_or_default())
}

/// Waits for the agent, the guest's end, the network's failure or the deadline. An agent in a template is
/// woken first.
async fn wait_ready(
    vm: &Arc<dyn Vm>,
    mut called_off: watch::Receiver<bool>,
    chosen: Option<&Chosen>,
) -> Result<(Arc<dyn Agent>, GuestReleases), PodError> {
    let off = async {
        if called_off.wait_for(|off| *off).await.is_err() {
            // The network is up, so no cancellation will come.
            std::future::pending::<()>().await;
        }
    };
    let ready = async {
        if chosen.is_some() {
            vm.wake().await?;
        }
        vm.wait_ready().await
    };
    let ended = |report: &StopReport| unavailable(format!("booting the VM: {}", vm_end::describe(report)));
    let (blame, error) = tokio::select! {
        biased;
        ready = ready => match ready {
            Ok(ready) => return Ok(ready),
            Err(error) => match died(vm).await {
                Some(report) => (Blame::of_end(&report), ended(&report)),
                None => (Blame::of_error(&error), unavailable("booting the VM").because(error)),
            },
        },
        report = vm.stopped() => (Blame::of_end(&report), ended(&report)),
        () = off => return Err(unavailable("booting the VM: called off")),
        () = tokio::time::sleep(READY_WITHIN) => {
            let console = vm.console().await.unwrap_or_default();
            let silent = format!("booting the VM: the agent said nothing within {} s", READY_WITHIN.as_secs());
            (Blame::Nobody, unavailable(vm_end::with_console(silent, &console)))
        }
    };
    if let Some(chosen) = chosen {
        chosen.note_failure(blame);
    }
    Err(error)
}

/// The VM's end, if this is why the agent did not answer.
async fn died(vm: &Arc<dyn Vm>) -> Option<StopReport> {
    tokio::time::timeout(Duration::from_millis(500), vm.stopped()).await.ok()
}

fn unavailable(text: impl Into<String>) -> PodError {
    PodError::new(PodErrorKind::Unavailable, text)
}

/// Ends the VMM: by the handle if there is one, else by the record, else by the control socket. The call is
/// idempotent.
pub(super) async fn down(
    node: &Node,
    record: &PodRecord,
    vm: Option<&Arc<dyn Vm>>,
    vmm: Option<VmmProcess>,
) -> Result<(), PodError> {
    if let Some(vm) = vm {
        return live::end(&**vm).await;
    }
    let killed = node.backends.vms.kill(vmm, &node.places.control_socket(&record.id)).await;
    killed.map_err(|error| PodError::internal("ending the VM").because(error))
}

/// Removes the cgroups of the VMM and of connectors, sockets, shared directory and disk, once the VMM is
/// gone. The call is idempotent.
pub(super) async fn clear(node: &Arc<Node>, record: &Arc<PodRecord>) -> Result<(), PodError> {
    let (places, record) = (node.places.clone(), record.clone());
    let clearing = move || {
        scratch::remove(&places.scratch_path(&record.id))?;
        places.remove_run_dir(&record.id)?;
        let parent = &record.spec.cgroup_parent;
        connector_cgroup::remove(&places.cgroup_root, parent, &record.id, None)?;
        cgroup::remove(&places.cgroup_root, parent, &record.id)
    };
    blocking_within(CLEARED_WITHIN, &node.pools.state, "taking disk, sockets and cgroup away", clearing).await
}
