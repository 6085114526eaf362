//! Changes limits: of a container, and of the pod itself. The machine grows before a limit does, and a
//! limit shrinks before the machine; an error leaves all as it was.

use proto_agent::agent::UpdateContainerRequest;
use runtime_spec::{Resources, SpecError};

use super::Driver;
use super::start_container::no_container;
use crate::container::admission;
use crate::error::{PodError, PodErrorKind};
use crate::live::Live;
use crate::record::PodStage;

impl Driver {
    /// Changes a container's limits, in its guest and on record.
    pub(super) async fn update_container(&mut self, id: &str, update: &Resources) -> Result<(), PodError> {
        let container = self.containers.get(id).ok_or_else(|| no_container(id))?;
        admission::update(id, self.status.stage, container.status.stage)?;
        let (old, kept) = (container.resources().clone(), container.status.resources.clone());
        let new = old.merged(update);
        new.check()?;
        let ledger = self.ledger_with(Some((id, &new)));
        ledger.check("linux.memory_limit_in_bytes")?;
        let live = self.live()?;
        let before = self.vm_size();
        self.pin_with(&live, Some((id, &new))).await?;
        let changed = match self.grow(&live, ledger.size).await {
            Ok(()) => self.limit(&live, id, &old, &new).await,
            Err(error) => Err(error),
        };
        if let Err(error) = changed {
            if let Some(container) = self.containers.get_mut(id) {
                container.status.resources = kept;
            }
            self.keep_container(id).await;
            self.shrink(&live, before).await;
            self.pin().await;
            return Err(error);
        }
        self.shrink(&live, ledger.size).await;
        self.publish();
        Ok(())
    }

    /// Writes the limits down, then lets the agent set those that differ.
    async fn limit(
        &mut self,
        live: &Live,
        id: &str,
        old: &Resources,
        new: &Resources,
    ) -> Result<(), PodError> {
        let container = self.containers.get_mut(id).ok_or_else(|| no_container(id))?;
        container.status.resources = Some(new.clone());
        self.node.records.put_container_status(id, &container.status).await?;
        let request = changes(id, old, new)?;
        if !request.cgroup_files.is_empty() {
            live.call("changing the container's limits", live.agent.update_container(request)).await?;
        }
        self.node.roster.publish_container(container.entry());
        Ok(())
    }

    /// Changes what the pod may use.
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
        let old = (self.status.resources.clone(), self.status.overhead.clone());
        self.status.resources = Some(self.resources().cloned().unwrap_or_default().merged(resources));
        self.status.overhead = Some(self.overhead().cloned().unwrap_or_default().merged(overhead));
        let ledger = self.ledger();
        let grown = match ledger.check("resources.memory_limit_in_bytes") {
            Ok(()) => self.grow(&live, ledger.size).await,
            Err(error) => Err(error.into()),
        };
        if let Err(error) = grown {
            (self.status.resources, self.status.overhead) = old;
            self.keep_status().await;
            return Err(error);
        }
        self.shrink(&live, ledger.size).await;
        self.keep_status().await;
        self.publish();
        Ok(())
    }
}

/// The files whose values differ.
fn changes(id: &str, old: &Resources, new: &Resources) -> Result<UpdateContainerRequest, SpecError> {
    let (old, new) = (old.cgroup_files()?, new.cgroup_files()?);
    Ok(UpdateContainerRequest {
        container_id: id.to_owned(),
        cgroup_files: new.into_iter().filter(|(file, value)| old.get(file) != Some(value)).collect(),
        ..UpdateContainerRequest::default()
    })
}
