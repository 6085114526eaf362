//! The steps of a change to a container or to the pod's limits, and how each is undone.

use std::sync::Arc;

use async_trait::async_trait;
use runtime_spec::{Resources, VmSize};

use super::Driver;
use crate::capacity::PodLimits;
use crate::container::{kill, log};
use crate::error::PodError;
use crate::journal::{Journal, Undo};
use crate::plugs::ContainerPlugs;
use crate::record::ContainerRecord;

/// One step of a driver's change.
#[derive(Debug)]
pub(super) enum Step {
    /// The vCPUs are bound for the change.
    Pin,
    /// The pod has other limits; these are the ones before.
    PodLimits(PodLimits),
    /// The VM has another size; this is the one before.
    Grow(VmSize),
    /// A container's devices are plugged.
    Plug(ContainerPlugs),
    /// A container has a file of acknowledgements.
    Acks(String),
    /// A container is on record.
    Record(String),
    /// A container's host paths are bound.
    Bind(Arc<ContainerRecord>),
    /// The guest has a container.
    Guest(String),
    /// A container has other limits; these are the ones before.
    Limits(String, Option<Resources>),
}

/// The journal of a container on record, fully or half created.
pub(super) fn made(record: &Arc<ContainerRecord>) -> Journal<Step> {
    let id = &record.id;
    Journal::from([
        Step::Plug(ContainerPlugs::of(record)),
        Step::Acks(id.clone()),
        Step::Record(id.clone()),
        Step::Bind(record.clone()),
        Step::Guest(id.clone()),
    ])
}

impl Driver {
    /// Undoes a failed change. Leftovers go with the pod, at the latest.
    pub(super) async fn undo_change(&mut self, journal: Journal<Step>) {
        for left in journal.drain(self).await {
            tracing::warn!(pod = self.record.id, error = left.chain(), "a failed change is not undone whole");
        }
    }
}

#[async_trait]
impl Undo<Step> for Driver {
    async fn undo(&mut self, step: Step) -> Result<(), PodError> {
        match step {
            Step::Pin => self.pin().await,
            Step::PodLimits(before) => {
                self.capacity.restore(before);
                self.save_status().await;
            }
            Step::Grow(before) => {
                if let Some(live) = self.live.clone() {
                    // An image may stay plugged, and with it its page structures.
                    let needed = self.ledger(None).size.memory_bytes;
                    let memory_bytes = before.memory_bytes.max(needed);
                    self.shrink(&live, VmSize { memory_bytes, ..before }).await;
                }
            }
            Step::Plug(plugs) => {
                // A disk still plugged is unplugged when its slot is needed, or goes with the pod.
                if let Err(error) = self.plugs.release(self.live.as_ref(), &self.node.backends, &plugs).await
                {
                    let pod = &self.record.id;
                    tracing::warn!(pod, error = error.chain(), "a block device stays plugged");
                }
            }
            Step::Acks(id) => {
                log::remove_acks(&self.node.places.acks_path(&self.record.id, &id));
            }
            Step::Record(id) => self.node.records.forget(None, &[id]).await,
            Step::Bind(record) => self.unbind_mounts(&record).await?,
            Step::Guest(id) => {
                self.withdraw_sockets(&id);
                if let Some(live) = &self.live {
                    let ids = [id];
                    let removing = live.call("removing the container", live.agent.remove_container(&ids[0]));
                    // Processes that outlived the first one may wait for file locks.
                    tokio::select! {
                        biased;
                        removed = removing => removed?,
                        never = kill::keep_killing(live, &ids) => match never {},
                    }
                }
            }
            Step::Limits(id, before) => {
                self.containers.set_limits(&id, before);
                self.save_container(&id).await;
            }
        }
        Ok(())
    }
}
