//! What a daemon does with what it finds at its start: every pod is found again, finished or undone.
//!
//! ```text
//!  Starting, Undoing ── undo ──► gone, or unclean         Stopping ── undo ──► Stopped, or unclean
//!  Ready ── its VM answers ──► Ready, watchers go on      Dead, Stopped ──► as they are
//!    └──── it does not ──────► Dead
//! ```

use std::collections::{HashMap, HashSet};
use std::fs;
use std::sync::Arc;

use runtime_net::PodNetworkSpec;
use runtime_store::{Store, StoreError, Table};

use crate::driver::Driver;
use crate::node::{Node, blocking, remove_dir, run_name};
use crate::record::{ContainerRecord, ContainerStatus, PodRecord, PodStage, PodStatus};
use crate::roster::Live;
use crate::{PodError, error::chain_of, undo, vmm_process};

/// Length of a pod's id.
const ID_DIGITS: usize = 64;

/// A container as it was left.
pub(crate) type Left = (ContainerRecord, ContainerStatus);

/// All that is on record.
struct Found {
    pods: Vec<(PodRecord, PodStatus)>,
    containers: HashMap<String, Vec<Left>>,
    /// Containers whose pod is not on record.
    strays: Vec<String>,
}

/// Recovers every pod on record, side by side, and sweeps away what no record owns.
pub(crate) async fn recover(node: &Arc<Node>) -> Result<(), PodError> {
    let store = node.store.clone();
    let found = blocking("reading the pods' records", move || read(&store)).await?;
    if !found.strays.is_empty() {
        node.forget(None, &found.strays).await?;
    }
    let known: HashSet<String> = found.pods.iter().map(|(record, _)| record.id.clone()).collect();
    sweep(node, &known).await;
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
    let mut containers: HashMap<String, Vec<Left>> = HashMap::new();
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

/// Takes away what has a pod's directory and no record: monitors, networks, disks.
async fn sweep(node: &Node, known: &HashSet<String>) {
    let parents = [node.places.state_dir.join("pods"), node.places.run_dir.join("pods")];
    let entries = parents.iter().flat_map(|parent| fs::read_dir(parent).into_iter().flatten().flatten());
    // A run directory has the beginning of its pod's id for a name, a state directory all of it.
    let owned: HashSet<&str> = known.iter().flat_map(|id| [id.as_str(), run_name(id)]).collect();
    let strays: HashSet<String> = entries
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .filter(|name| !owned.contains(name.as_str()))
        .collect();
    for id in strays {
        match sweep_one(node, &id).await {
            Ok(()) => tracing::info!(id, "took away what no pod on record owns"),
            Err(why) => tracing::warn!(id, why, "what no pod on record owns stays"),
        }
    }
}

async fn sweep_one(node: &Node, id: &str) -> Result<(), String> {
    for monitor in vmm_process::find(&node.pod_run_dir(id).join("control.sock")) {
        vmm_process::kill(monitor).await?;
    }
    if id.len() == ID_DIGITS && id.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        let spec = PodNetworkSpec { pod_id: id.to_owned(), ..PodNetworkSpec::default() };
        node.network.teardown(&spec).await.map_err(|fault| chain_of(&*fault))?;
    }
    let (state, run) = (node.pod_state_dir(id), node.pod_run_dir(id));
    remove_dir(&state).map_err(|error| format!("{}: {error}", state.display()))?;
    node.remove_run_dir(id).map_err(|error| format!("{}: {error}", run.display()))
}

async fn recover_pod(node: Arc<Node>, record: Arc<PodRecord>, mut status: PodStatus, left: Vec<Left>) {
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
            return Driver::bury(node, record, status, left).await;
        }
        PodStage::Starting => status.stage = PodStage::Undoing,
        PodStage::Stopping if clean => status.stage = PodStage::Stopped,
        _ => {}
    }
    Driver::revive(node, record, status, live, left).await;
}

async fn attach(node: &Node, record: &PodRecord, status: &PodStatus) -> Result<Live, String> {
    let vmm = status.vmm.ok_or("its process is not on record")?;
    let dir = node.pod_run_dir(&record.id);
    let attached = node.machines.attach(&dir, vmm.pid, vmm.start_time).await;
    let machine = attached.map_err(|fault| chain_of(&*fault))?;
    let agent = tokio::select! {
        agent = machine.connect() => agent.map_err(|fault| chain_of(&*fault))?,
        report = machine.stopped() => return Err(crate::ending::describe(&report)),
    };
    Ok(Live::new(machine, agent))
}
