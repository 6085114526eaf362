//! The VM follows its ledger, and its vCPUs follow the containers' CPUs.

use runtime_spec::{Ledger, Resources, VmSize};

use super::Driver;
use crate::capacity::room;
use crate::error::PodError;
use crate::live::Live;

impl Driver {
    /// The pod's ledger, including the images in its VM, with the limits of one container changed or added.
    pub(super) fn ledger(&self, changed: Option<(&str, &Resources)>) -> Ledger {
        self.capacity.ledger(self.plugs.image_bytes(), self.containers.limits_with(changed))
    }

    /// Reads how much memory the pod's cgroup allows now. The kubelet changes it before or after it requests
    /// more: see [`Driver::await_room`].
    pub(super) fn look_at_room(&mut self) {
        let limit = room::limit(&self.node, &self.record.spec.cgroup_parent);
        self.capacity.set_room(limit.map(|limit| limit.bytes));
    }

    /// Looks at the pod's cgroup again for a while, if the VM would have more memory in a larger one.
    pub(super) fn await_room(&mut self) {
        let ledger = self.ledger(None);
        if ledger.wanted_bytes > ledger.size.memory_bytes {
            self.awaited_room.begin();
        }
    }

    /// Lets the VM grow, if its pod's cgroup has become larger.
    pub(super) async fn grow_into_room(&mut self) {
        self.awaited_room.note_look();
        let Some(live) = self.live.clone() else { return self.awaited_room.end() };
        self.look_at_room();
        let (ledger, before) = (self.ledger(None), self.capacity.size());
        if ledger.wanted_bytes <= ledger.size.memory_bytes {
            self.awaited_room.end();
        }
        if ledger.size.memory_bytes <= before.memory_bytes {
            return;
        }
        let wanted = VmSize { memory_bytes: ledger.size.memory_bytes, ..before };
        if let Err(error) = self.grow(&live, wanted).await {
            tracing::warn!(pod = self.record.id, error = error.chain(), "a VM is smaller than its pod");
            self.awaited_room.end();
            self.shrink(&live, before).await;
        }
        self.publish();
    }

    /// Lets the VM grow to hold `wanted`. It does not shrink.
    pub(super) async fn grow(&mut self, live: &Live, wanted: VmSize) -> Result<(), PodError> {
        let wanted = self.capacity.grown(wanted);
        self.resize(live, wanted).await
    }

    /// Lets the VM give back everything beyond `wanted`, as far as its guest can. The guest keeps the rest.
    /// This harms only the pod's own cgroup on the host, and the cgroup limits it.
    pub(super) async fn shrink(&mut self, live: &Live, wanted: VmSize) {
        if let Err(error) = self.resize(live, wanted).await {
            tracing::warn!(pod = self.record.id, error = error.chain(), "a VM is larger than its pod");
        }
    }

    /// Takes vCPUs beyond `most` from the VM, and no memory. A VM starts before anyone knows on which CPUs of
    /// the node its containers will run.
    pub(super) async fn stop_vcpus(&mut self, live: &Live, most: u8) {
        let now = self.capacity.size();
        if now.vcpus > most {
            self.shrink(live, VmSize { vcpus: most, ..now }).await;
        }
    }

    async fn resize(&mut self, live: &Live, wanted: VmSize) -> Result<(), PodError> {
        let Some(resize) = self.capacity.resize(wanted) else { return Ok(()) };
        self.commit_status().await?;
        resize.apply(live).await
    }

    /// Gives a VM of an earlier daemon its size on record. A VM that does not take it keeps its size until
    /// the next change.
    pub(super) async fn resize_again(&mut self, live: &Live) {
        let Some(resize) = self.capacity.resize_again() else { return };
        if let Err(error) = resize.apply_again(live).await {
            let pod = &self.record.id;
            tracing::warn!(pod, error = error.chain(), "a VM found again may not have the size on record");
        }
    }

    /// Binds the vCPUs, and sets the VMM's OOM score and its bound of swap for the containers, with this one
    /// new or changed. A failure to set the last two is only logged: the pod is then more or less safe than
    /// others, and works.
    pub(super) async fn pin_with(
        &mut self,
        live: &Live,
        changed: Option<(&str, &Resources)>,
    ) -> Result<(), PodError> {
        let limits = self.containers.limits_with(changed);
        if let Err(error) = self.capacity.set_oom_score(live, limits.clone()).await {
            tracing::warn!(pod = self.record.id, error = error.chain(), "a VMM keeps its OOM score");
        }
        if let Err(error) = self.capacity.limit_swap(&self.node, &self.record, limits.clone()).await {
            tracing::warn!(pod = self.record.id, error = error.chain(), "a VM keeps its bound of swap");
        }
        self.capacity.pin(live, limits).await
    }

    /// Binds the vCPUs as the containers ask; a failure is logged and changes nothing.
    pub(super) async fn pin(&mut self) {
        let Some(live) = self.live.clone() else { return };
        if let Err(error) = self.pin_with(&live, None).await {
            tracing::warn!(pod = self.record.id, error = error.chain(), "a VM's vCPUs stay where they were");
        }
    }
}
