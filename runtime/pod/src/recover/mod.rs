//! A daemon's start on what an earlier one left: every pod is found again, finished or undone.
//!
//! ```text
//!  Starting, Undoing ── undo ──► gone, or unclean         Stopping ── undo ──► Stopped, or unclean
//!  Ready ── its VM answers ──► Ready, watchers go on      Dead, Stopped ──► as they are
//!    └──── it does not ──────► Dead
//! ```

mod sweep;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use runtime_store::{Store, StoreError, Table};

use crate::blocking::blocking;
use crate::driver::Driver;
use crate::error::{PodError, chain_of};
use crate::live::Live;
use crate::node::Node;
use crate::record::{ContainerOnRecord, ContainerRecord, ContainerStatus, PodRecord, PodStage, PodStatus};
use crate::start::undo;
use crate::vm_end;

/// Everything that is on record.
struct Found {
    pods: Vec<(PodRecord, PodStatus)>,
    containers: HashMap<String, Vec<ContainerOnRecord>>,
    /// Containers whose pod is not on record.
    strays: Vec<String>,
}

/// Recovers every pod on record, side by side, and sweeps away what no record owns.
pub(crate) async fn recover(node: &Arc<Node>) -> Result<(), PodError> {
    let store = node.records.store().clone();
    let found = blocking("reading the pods' records", move || read(&store)).await?;
    if !found.strays.is_empty() {
        node.records.forget(None, &found.strays).await;
    }
    let known: HashSet<String> = found.pods.iter().map(|(record, _)| record.id.clone()).collect();
    sweep::sweep(node, &known).await;
    let mut containers = found.containers;
    let pods = found.pods.into_iter().map(|(record, status)| {
        let left = containers.remove(&record.id).unwrap_or_default();
        recover_pod(node.clone(), Arc::new(record), status, left)
    });
    futures::future::join_all(pods).await;
    Ok(())
}

fn read(store: &Store) -> Result<Found, StoreError> {
    let mut statuses: HashMap<String, PodStatus> = store.list(Table::PodStatuses)?.into_iter().collect();
    let records: Vec<(String, PodRecord)> = store.list(Table::PodRecords)?;
    let pods: Vec<_> = records
        .into_iter()
        .map(|(id, record)| {
            // They are written together; a record alone counts as just begun.
            let status = statuses.remove(&id).unwrap_or_else(PodStatus::starting);
            (record, status)
        })
        .collect();
    let known: HashSet<&str> = pods.iter().map(|(record, _)| record.id.as_str()).collect();
    let mut states: HashMap<String, ContainerStatus> =
        store.list(Table::ContainerStatuses)?.into_iter().collect();
    let mut containers: HashMap<String, Vec<ContainerOnRecord>> = HashMap::new();
    let mut strays = Vec::new();
    for (id, record) in store.list::<ContainerRecord>(Table::ContainerRecords)? {
        if !known.contains(record.pod_id.as_str()) {
            strays.push(id);
            continue;
        }
        let status = states.remove(&id).unwrap_or_else(ContainerStatus::creating);
        containers.entry(record.pod_id.clone()).or_default().push((record, status));
    }
    Ok(Found { pods, containers, strays })
}

async fn recover_pod(
    node: Arc<Node>,
    record: Arc<PodRecord>,
    mut status: PodStatus,
    left: Vec<ContainerOnRecord>,
) {
    node.roster.hold(&record.id, &record.spec);
    let mut live = None;
    match status.stage {
        PodStage::Starting | PodStage::Undoing | PodStage::Stopping => {
            let undone = undo::undo(&node, &record, None, status.vmm).await;
            status.unclean = undone.left;
        }
        PodStage::Ready => match attach(&node, &record, &status).await {
            Ok(found) => live = Some(found),
            Err(why) => {
                tracing::warn!(pod = record.id, why, "a pod's VM was not found again");
                status.stage = PodStage::Dead;
                status.message = Some(format!("the pod's VM was not found again: {why}"));
            }
        },
        PodStage::Dead | PodStage::Stopped => {}
    }
    let clean = status.unclean.is_none();
    match status.stage {
        PodStage::Starting | PodStage::Undoing if clean => {
            return Driver::forget_undone(node, record, status, left).await;
        }
        PodStage::Starting => status.stage = PodStage::Undoing,
        PodStage::Stopping if clean => status.stage = PodStage::Stopped,
        _ => {}
    }
    Driver::recover(node, record, status, live, left).await;
}

async fn attach(node: &Node, record: &PodRecord, status: &PodStatus) -> Result<Live, String> {
    let vmm = status.vmm.ok_or("its process is not on record")?;
    let dir = node.places.pod_run_dir(&record.id);
    let attached = node.backends.vms.attach(&dir, vmm.pid, vmm.start_time).await;
    let vm = attached.map_err(|error| chain_of(&error))?;
    let agent = tokio::select! {
        agent = vm.connect() => agent.map_err(|error| chain_of(&error))?,
        report = vm.stopped() => return Err(vm_end::describe(&report)),
    };
    Ok(Live::new(vm, agent))
}
