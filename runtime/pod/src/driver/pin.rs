//! CPUs that the kubelet's CPU manager chose are the node's, and mean nothing inside the guest. The honest
//! meaning: the VM's vCPUs run on those of its containers together, as soon as each that has not ended
//! names some. How containers of one pod share them is the guest scheduler's affair.

use runtime_spec::Resources;

use super::Driver;
use crate::error::PodError;
use crate::live::Live;
use crate::record::ContainerStage;

impl Driver {
    /// CPUs for the vCPUs with this container, new or changed; empty for all.
    fn cpus_with(&self, changed: Option<(&str, &Resources)>) -> Vec<u32> {
        let open = self.containers.iter().filter(|(id, container)| {
            container.status.stage != ContainerStage::Exited
                && changed.is_none_or(|(changed, _)| changed != id.as_str())
        });
        let open = open.map(|(_, container)| container.resources()).chain(changed.map(|(_, new)| new));
        let mut all = Vec::new();
        for resources in open {
            // They were checked when they came.
            match resources.cpus() {
                Ok(cpus) if !cpus.is_empty() => all.extend(cpus),
                _ => return Vec::new(),
            }
        }
        all.sort_unstable();
        all.dedup();
        all
    }

    /// Binds the vCPUs as the containers ask, with this one new or changed.
    pub(super) async fn pin_with(
        &mut self,
        live: &Live,
        changed: Option<(&str, &Resources)>,
    ) -> Result<(), PodError> {
        let cpus = self.cpus_with(changed);
        if cpus == self.pinned {
            return Ok(());
        }
        live.vm.pin(&cpus).await.map_err(|error| error.during("linux.cpuset_cpus"))?;
        self.pinned = cpus;
        Ok(())
    }

    /// The same for the containers as they are; what fails is told to the daemon's log alone.
    pub(super) async fn pin(&mut self) {
        let Some(live) = self.live.clone() else { return };
        if let Err(error) = self.pin_with(&live, None).await {
            tracing::warn!(pod = self.record.id, error = error.chain(), "a VM's vCPUs stay where they were");
        }
    }
}
