//! The machine step: scratch disk, monitor, boot, the agent's first word.

use std::fs::File;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use super::{Failed, Ground};
use crate::node::{Node, blocking};
use crate::outside::{BootRequest, Machine, SpawnRequest};
use crate::record::{PodRecord, PodStatus, VmmProcess};
use crate::roster::Live;
use crate::{PodError, PodErrorKind, cgroup, ending, scratch, vmm_process};

/// A guest that has not said a word by then never will. Generous: a software-emulated one is slow.
const HELLO_WITHIN: Duration = Duration::from_secs(120);

/// Makes the disk, starts a monitor and boots the guest. Between the steps it looks whether it was
/// called off.
pub(super) async fn up(ground: &Ground, called_off: watch::Receiver<bool>) -> Result<Live, Failed> {
    let early = |error| Failed { error, machine: None };
    let (disk, spawned) = tokio::join!(
        ground.watch.time("scratch", make_scratch(ground)),
        ground.watch.time("spawn", spawn(ground))
    );
    let machine = spawned.map_err(early)?;
    let late = |error| Failed { error, machine: Some(machine.clone()) };
    let disk = disk.map_err(late)?;
    let recording = record(ground, &machine);
    let booting = ground.watch.time("boot", boot(ground, &machine, disk));
    let (recorded, booted) = tokio::join!(recording, booting);
    recorded.map_err(late)?;
    booted.map_err(late)?;
    let agent = ground.watch.time("guest", greet(&machine, called_off)).await.map_err(late)?;
    Ok(Live::new(machine, agent))
}

async fn make_scratch(ground: &Ground) -> Result<File, PodError> {
    let (template, bytes) = (ground.node.places.scratch_template.clone(), ground.record.scratch_bytes);
    let path = ground.node.scratch_path(ground.id());
    blocking("making the scratch disk", move || scratch::make(&template, &path, bytes)).await
}

async fn spawn(ground: &Ground) -> Result<Arc<dyn Machine>, PodError> {
    let (node, id) = (&ground.node, ground.id());
    let log = node.pod_state_dir(id).join("vmm.log");
    let log = File::create(&log).map_err(|error| {
        PodError::internal(format!("making the VMM's log {}", log.display())).because(error)
    })?;
    let cgroups = cgroup::make(&node.places.cgroup_root, &ground.record.spec.cgroup_parent, id);
    let request = SpawnRequest {
        id: id.to_owned(),
        dir: node.pod_run_dir(id),
        shared: node.pod_shared_dir(id),
        cgroups,
        log,
    };
    let spawned = node.machines.spawn(request).await;
    spawned.map_err(|fault| PodError::internal("starting the VMM").because(fault))
}

/// Writes the monitor down while it boots; until then its control socket tells whose it is.
async fn record(ground: &Ground, machine: &Arc<dyn Machine>) -> Result<(), PodError> {
    let vmm = VmmProcess { pid: machine.pid(), start_time: machine.start_time() };
    let status = PodStatus { vmm: Some(vmm), ..PodStatus::starting() };
    ground.node.put_pod_status(ground.id(), &status).await
}

async fn boot(ground: &Ground, machine: &Arc<dyn Machine>, scratch: File) -> Result<(), PodError> {
    let open = |path: &std::path::Path| {
        File::open(path).map_err(|error| {
            PodError::internal(format!("booting the VM: opening {}", path.display())).because(error)
        })
    };
    let places = &ground.node.places;
    let request = BootRequest {
        bounds: ground.record.bounds,
        kernel: open(&places.kernel)?,
        root_image: open(&places.root_image)?,
        scratch,
    };
    machine.boot(request).await.map_err(|fault| PodError::internal("booting the VM").because(fault))
}

/// Waits for the agent, the guest's end, the network's failure or the end of patience.
async fn greet(
    machine: &Arc<dyn Machine>,
    mut called_off: watch::Receiver<bool>,
) -> Result<Arc<dyn crate::outside::Agent>, PodError> {
    let off = async {
        if called_off.wait_for(|off| *off).await.is_err() {
            // The network is up; nobody will call off any more.
            std::future::pending::<()>().await;
        }
    };
    tokio::select! {
        biased;
        greeted = machine.greet() => match greeted {
            Ok(agent) => Ok(agent),
            Err(fault) => Err(died(machine).await.unwrap_or_else(|| unavailable("booting the VM").because(fault))),
        },
        report = machine.stopped() => {
            Err(unavailable(format!("booting the VM: {}", ending::describe(&report))))
        }
        () = off => Err(unavailable("booting the VM: called off")),
        () = tokio::time::sleep(HELLO_WITHIN) => {
            let console = machine.console().await.unwrap_or_default();
            let silent = format!("booting the VM: the agent said nothing within {} s", HELLO_WITHIN.as_secs());
            Err(unavailable(ending::with_console(silent, &console)))
        }
    }
}

/// The machine's end, if that is what broke the greeting.
async fn died(machine: &Arc<dyn Machine>) -> Option<PodError> {
    let report = tokio::time::timeout(Duration::from_millis(500), machine.stopped()).await.ok()?;
    Some(unavailable(format!("booting the VM: {}", ending::describe(&report))))
}

fn unavailable(text: impl Into<String>) -> PodError {
    PodError::new(PodErrorKind::Unavailable, text)
}

/// Ends the monitor. Idempotent: from the handle if there is one, else from the record, else from the
/// control socket.
pub(crate) async fn down(
    node: &Node,
    record: &PodRecord,
    machine: Option<&Arc<dyn Machine>>,
    vmm: Option<VmmProcess>,
) -> Result<(), String> {
    if let Some(machine) = machine {
        return machine.shutdown().await.map_err(|fault| crate::error::chain_of(&*fault));
    }
    if let Some(vmm) = vmm {
        return vmm_process::kill(vmm).await;
    }
    let socket = node.pod_run_dir(&record.id).join("control.sock");
    for stray in vmm_process::find(&socket) {
        vmm_process::kill(stray).await?;
    }
    Ok(())
}

/// Takes the monitor's cgroup, sockets, shared directory and disk away. Idempotent; the monitor is gone.
pub(crate) fn clear(node: &Node, record: &PodRecord) -> std::io::Result<()> {
    scratch::remove(&node.scratch_path(&record.id))?;
    node.remove_run_dir(&record.id)?;
    cgroup::remove(&node.places.cgroup_root, &record.spec.cgroup_parent, &record.id)
}
