//! A daemon's start with the pods of an earlier one. Every pod on record is listed at once and given a
//! driver. The driver recovers it in parallel with all others (`driver/recover.rs`). Calls about a pod wait
//! for its driver only.
//!
//! An unreadable value does not affect other pods or containers. The value goes into quarantine, and:
//!
//! ```text
//!  a pod's record        its containers are strays, its VM and network are swept away
//!  a pod's status        the pod is dead: its VM is killed, its containers have ended
//!  a container's record  the container is removed from any guest with it
//!  a container's status  the container is Unknown, until its guest reports how it ended
//! ```

mod sweep;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use runtime_spans::logged;
use runtime_store::{Store, StoreError, Table};
use serde::de::DeserializeOwned;

use crate::blocking::blocking;
use crate::config::EarlierPods;
use crate::driver::FoundPod;
use crate::error::{PodError, chain_of};
use crate::node::Node;
use crate::record::{
    ContainerOnRecord, ContainerRecord, ContainerStage, ContainerStatus, PodRecord, PodStage, PodStatus,
};
use crate::spans;

/// The message of a pod whose VM is killed because nobody is left to use it.
const COMMAND_GONE: &str = "the command that ran the pod has ended";

/// All records.
struct Found {
    pods: Vec<(PodRecord, PodStatus)>,
    containers: HashMap<String, Vec<ContainerOnRecord>>,
    /// Containers without a pod on record, and the remains of containers and pods without a record.
    strays: Vec<String>,
    stray_pods: Vec<String>,
    /// Containers with an unreadable record.
    lost: Vec<String>,
    /// Names of all values in quarantine.
    quarantined: Vec<String>,
}

/// Lists every pod on record. After this has returned, the pods' drivers recover them in parallel, and
/// ownerless objects are removed beside them.
pub(crate) async fn recover(node: &Arc<Node>, earlier: EarlierPods) -> Result<(), PodError> {
    let store = node.records.store().clone();
    let found = blocking(node.records.pool(), "reading the pods' records", move || read(&store)).await?;
    node.records.note_quarantined(found.quarantined);
    if !found.strays.is_empty() {
        node.records.forget(None, &found.strays).await;
    }
    for pod in &found.stray_pods {
        node.records.forget(Some(pod), &[]).await;
    }
    let known: HashSet<String> = found.pods.iter().map(|(record, _)| record.id.clone()).collect();
    // Before the first new pod is created: it is on record only after its directories exist.
    let strays = sweep::find(node, &known);
    tokio::spawn(sweep::sweep(node.clone(), strays));
    let (mut containers, lost) = (found.containers, Arc::new(found.lost));
    for (record, mut status) in found.pods {
        if earlier == EarlierPods::End && status.stage == PodStage::Ready {
            status.stage = PodStage::Dead;
            status.message = Some(COMMAND_GONE.to_owned());
        }
        let left = containers.remove(&record.id).unwrap_or_default();
        let span = spans::driver(&record.id);
        let pod = FoundPod::list(node.clone(), Arc::new(record), status, left);
        tokio::spawn(logged(span, pod.recover(lost.clone())));
    }
    // Each listed pod has its leases.
    let node = node.clone();
    tokio::spawn(async move {
        if let Err(error) = node.backends.images.users_are_known().await {
            tracing::warn!(error = chain_of(&error), "unused removed images still exist");
        }
    });
    Ok(())
}

/// The values of one table by key, and the keys of values newly in quarantine.
struct Readable<T> {
    values: HashMap<String, T>,
    quarantined: HashMap<String, String>,
}

fn readable<T: DeserializeOwned>(store: &Store, table: Table) -> Result<Readable<T>, StoreError> {
    let listing = store.list(table)?;
    let quarantined: HashMap<String, String> =
        listing.unreadable.into_iter().map(|(key, error)| (key, chain_of(&error))).collect();
    for (key, error) in &quarantined {
        tracing::error!(key, error, "a value on disk cannot be read and is put into quarantine");
    }
    if !quarantined.is_empty()
        && let Err(error) = store.quarantine(table, &quarantined.keys().cloned().collect::<Vec<_>>())
    {
        tracing::error!(error = chain_of(&error), "unreadable values stay where they are");
    }
    Ok(Readable { values: listing.values.into_iter().collect(), quarantined })
}

fn read(store: &Store) -> Result<Found, StoreError> {
    let records = readable::<PodRecord>(store, Table::PodRecords)?;
    let mut statuses = readable::<PodStatus>(store, Table::PodStatuses)?;
    let pods: Vec<_> = records
        .values
        .into_iter()
        .map(|(id, record)| {
            let status = statuses.values.remove(&id).unwrap_or_else(|| match statuses.quarantined.get(&id) {
                Some(why) => PodStatus {
                    stage: PodStage::Dead,
                    message: Some(format!("the pod's state on disk cannot be read: {why}")),
                    ..PodStatus::starting()
                },
                // They are written together; a record alone counts as just begun.
                None => PodStatus::starting(),
            });
            (record, status)
        })
        .collect();
    let stray_pods = statuses.values.into_keys().collect();
    let known: HashSet<&str> = pods.iter().map(|(record, _)| record.id.as_str()).collect();
    let records = readable::<ContainerRecord>(store, Table::ContainerRecords)?;
    let mut statuses = readable::<ContainerStatus>(store, Table::ContainerStatuses)?;
    let mut containers: HashMap<String, Vec<ContainerOnRecord>> = HashMap::new();
    let mut strays = Vec::new();
    for (id, record) in records.values {
        if !known.contains(record.pod_id.as_str()) {
            strays.push(id);
            continue;
        }
        let status = statuses.values.remove(&id).unwrap_or_else(|| match statuses.quarantined.get(&id) {
            Some(why) => ContainerStatus {
                stage: ContainerStage::Unknown,
                message: format!("the container's state on disk cannot be read: {why}"),
                ..ContainerStatus::creating()
            },
            None => ContainerStatus::creating(),
        });
        containers.entry(record.pod_id.clone()).or_default().push((record, status));
    }
    strays.extend(statuses.values.into_keys());
    let lost = records.quarantined.into_keys().collect();
    let quarantined = store.quarantined()?;
    Ok(Found { pods, containers, strays, stray_pods, lost, quarantined })
}
