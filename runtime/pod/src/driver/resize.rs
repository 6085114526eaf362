//! The pod's machine follows its ledger: memory through the memory device, processors through the agent.
//!
//! ```text
//!   growth:  offer memory ─► agent binds the device, brings processors up ─► guest has taken it ─► limits
//!   less:    limits ─► agent takes processors down ─► offer less, which the guest gives back as it can
//! ```

use std::time::Duration;

use proto_agent::agent::ResizePodRequest;
use proto_vmm::Slot;
use runtime_spec::{Ledger, Resources, VmSize};

use super::Driver;
use crate::error::{PodError, PodErrorKind};
use crate::live::Live;
use crate::record::ContainerStage;

/// How long a guest may take to put memory to use that it is offered. Each 128 MiB take milliseconds.
const TAKEN_WITHIN: Duration = Duration::from_secs(30);

impl Driver {
    /// The ledger as it stands.
    pub(super) fn ledger(&self) -> Ledger {
        self.ledger_with(None)
    }

    /// The ledger as it would be with this container, new or changed.
    pub(super) fn ledger_with(&self, changed: Option<(&str, &Resources)>) -> Ledger {
        let open = self.containers.iter().filter(|(id, container)| {
            container.status.stage != ContainerStage::Exited
                && changed.is_none_or(|(changed, _)| changed != id.as_str())
        });
        let open = open.map(|(id, container)| (id.as_str(), container.resources()));
        Ledger::draw(&self.record.bounds, self.resources(), self.overhead(), open.chain(changed))
    }

    /// The pod's own limits as they are now.
    pub(super) fn resources(&self) -> Option<&Resources> {
        self.status.resources.as_ref().or(self.record.spec.resources.as_ref())
    }

    /// The same for its overhead.
    pub(super) fn overhead(&self) -> Option<&Resources> {
        self.status.overhead.as_ref().or(self.record.spec.overhead.as_ref())
    }

    /// What the machine was last told to have.
    pub(super) fn vm_size(&self) -> VmSize {
        self.status.size.unwrap_or(self.record.bounds.boot)
    }

    /// Lets the machine grow to hold `wanted`; what it has beyond stays.
    pub(super) async fn grow(&mut self, live: &Live, wanted: VmSize) -> Result<(), PodError> {
        let now = self.vm_size();
        let wanted = VmSize {
            memory_bytes: now.memory_bytes.max(wanted.memory_bytes),
            vcpus: now.vcpus.max(wanted.vcpus),
        };
        let grown = self.resize(live, wanted).await;
        if grown.is_err() {
            self.shrink(live, now).await;
        }
        grown
    }

    /// Lets the machine give back what is beyond `wanted`, as far as its guest can. What it cannot it keeps:
    /// that harms nobody but the pod's own cgroup on the host, which bounds it.
    pub(super) async fn shrink(&mut self, live: &Live, wanted: VmSize) {
        if let Err(error) = self.resize(live, wanted).await {
            tracing::warn!(pod = self.record.id, error = error.chain(), "a VM is larger than its pod");
        }
    }

    async fn resize(&mut self, live: &Live, wanted: VmSize) -> Result<(), PodError> {
        let (now, boot) = (self.vm_size(), self.record.bounds.boot);
        // A machine never has less memory than it booted with.
        let wanted = VmSize { memory_bytes: wanted.memory_bytes.max(boot.memory_bytes), ..wanted };
        if wanted == now {
            return Ok(());
        }
        self.status.size = Some(wanted);
        self.node.records.put_pod_status(&self.record.id, &self.status).await?;
        let less = wanted.memory_bytes < now.memory_bytes;
        if less {
            self.take_on(live, wanted).await?;
        }
        if wanted.memory_bytes != now.memory_bytes {
            live.call("resizing the VM", live.vm.resize(wanted.memory_bytes)).await?;
        }
        if !less {
            self.take_on(live, wanted).await?;
        }
        if wanted.memory_bytes > now.memory_bytes {
            taken(live, wanted.memory_bytes - now.memory_bytes).await?;
        }
        Ok(())
    }

    /// The agent's part.
    async fn take_on(&self, live: &Live, wanted: VmSize) -> Result<(), PodError> {
        let plugged = wanted.memory_bytes > self.record.bounds.boot.memory_bytes;
        let request = ResizePodRequest {
            vcpus: u32::from(wanted.vcpus),
            memory_slot: if plugged { u32::from(Slot::MEM.number()) } else { 0 },
            ..ResizePodRequest::default()
        };
        live.call("resizing the pod in the guest", live.agent.resize_pod(request)).await
    }
}

async fn taken(live: &Live, bytes: u64) -> Result<(), PodError> {
    let resized = async {
        live.vm.resized().await;
        Ok(())
    };
    match tokio::time::timeout(TAKEN_WITHIN, live.call("resizing the VM", resized)).await {
        Ok(outcome) => outcome,
        Err(_) => {
            let text = format!(
                "resizing the VM: its guest has not taken {} MiB of memory within {} s",
                bytes >> 20,
                TAKEN_WITHIN.as_secs()
            );
            Err(PodError::new(PodErrorKind::Unavailable, text))
        }
    }
}
