//! Changes limits: of a container, and of the pod itself. The VM grows before a limit does, and a
//! limit shrinks before the VM; an error leaves all as it was.

use std::collections::BTreeMap;

use runtime_spec::{Resources, SpecError, VmSize};

use super::Driver;
use super::step::Step;
use crate::container::admission;
use crate::error::{PodError, PodErrorKind};
use crate::journal::Journal;
use crate::live::Live;
use crate::record::PodStage;

impl Driver {
    /// Changes a container's limits, in its guest and on record.
    pub(super) async fn update_container(&mut self, id: &str, update: &Resources) -> Result<(), PodError> {
        let container = self.containers.find(id)?;
        admission::update(id, self.status.stage, container.status.stage)?;
        let new = container.resources().merged(update);
        new.check()?;
        self.look_at_room();
        let ledger = self.ledger(Some((id, &new)));
        ledger.check("linux.memory_limit_in_bytes")?;
        let live = self.live()?;
        let mut journal = Journal::new();
        if let Err(error) = self.limit(&live, id, &new, ledger.size, &mut journal).await {
            self.undo_change(journal).await;
            return Err(error);
        }
        self.shrink(&live, ledger.size).await;
        self.publish();
        Ok(())
    }

    /// Lets the VM grow, records the limits, then lets the agent set the changed ones.
    async fn limit(
        &mut self,
        live: &Live,
        id: &str,
        new: &Resources,
        size: VmSize,
        journal: &mut Journal<Step>,
    ) -> Result<(), PodError> {
        journal.note(Step::Pin);
        self.pin_with(live, Some((id, new))).await?;
        journal.note(Step::Grow(self.capacity.size()));
        self.grow(live, size).await?;
        let container = self.containers.find(id)?;
        let files = changes(container.resources(), new)?;
        journal.note(Step::Limits(id.to_owned(), container.status.resources.clone()));
        self.containers.set_limits(id, Some(new.clone()));
        let container = self.containers.find(id)?;
        self.node.records.put_container_status(id, &container.status).await?;
        if !files.is_empty() {
            live.call("changing the container's limits", live.agent.update_container(id, files)).await?;
        }
        self.node.roster.publish_container(container.entry());
        Ok(())
    }

    /// Changes the pod's resources.
    pub(super) async fn update_pod(
        &mut self,
        resources: &Resources,
        overhead: &Resources,
    ) -> Result<(), PodError> {
        if self.status.stage != PodStage::Ready {
            let text = format!("pod {} is not ready", self.record.id);
            return Err(PodError::new(PodErrorKind::FailedPrecondition, text));
        }
        let live = self.live()?;
        let before = self.capacity.update(resources, overhead);
        // Undone in reverse: the VM follows the limits.
        let journal = Journal::from([Step::Grow(self.capacity.size()), Step::PodLimits(before)]);
        self.look_at_room();
        let ledger = self.ledger(None);
        let grown = match ledger.check("resources.memory_limit_in_bytes") {
            Ok(()) => self.grow(&live, ledger.size).await,
            Err(error) => Err(error.into()),
        };
        if let Err(error) = grown {
            self.undo_change(journal).await;
            return Err(error);
        }
        self.shrink(&live, ledger.size).await;
        self.await_room();
        self.save_status().await;
        self.publish();
        Ok(())
    }
}

/// The cgroup files with different values.
fn changes(old: &Resources, new: &Resources) -> Result<BTreeMap<String, String>, SpecError> {
    let (old, new) = (old.cgroup_files()?, new.cgroup_files()?);
    Ok(new.into_iter().filter(|(file, value)| old.get(file) != Some(value)).collect())
}
