//! Gives a VM another size: memory through the memory device, processors through the agent.
//!
//! ```text
//!   growth:  make vCPUs, offer memory ─► agent binds device, starts processors ─► guest takes it ─► limits
//!   less:    limits ─► agent stops processors ─► offer less memory ─► guest gives back as it can
//! ```

use std::time::Duration;

use proto_vmm::Slot;
use runtime_spec::VmSize;

use crate::error::{PodError, PodErrorKind};
use crate::live::Live;

/// How long a guest may take to use offered memory. Each 128 MiB take milliseconds.
const TAKEN_WITHIN: Duration = Duration::from_secs(30);

/// A change of a VM's size.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Resize {
    pub(crate) from: VmSize,
    pub(crate) to: VmSize,
    pub(crate) boot: VmSize,
}

impl Resize {
    /// Carries the change out.
    pub(crate) async fn apply(self, live: &Live) -> Result<(), PodError> {
        let Resize { from, to, .. } = self;
        let less = to.memory_bytes < from.memory_bytes;
        if less {
            self.resize_guest(live).await?;
        }
        // Each time: an earlier daemon may have been killed between its note and its request.
        live.call("making vCPUs", live.vm.make_vcpus(to.vcpus)).await?;
        if to.memory_bytes != from.memory_bytes {
            live.call("resizing the VM", live.vm.resize(to.memory_bytes)).await?;
        }
        if !less {
            self.resize_guest(live).await?;
        }
        if to.memory_bytes > from.memory_bytes {
            wait_taken(live, to.memory_bytes - from.memory_bytes).await?;
        }
        Ok(())
    }

    /// Requests the size independent of the VM's current one, and does not wait for the guest to take it.
    pub(crate) async fn apply_again(self, live: &Live) -> Result<(), PodError> {
        live.call("making vCPUs", live.vm.make_vcpus(self.to.vcpus)).await?;
        live.call("resizing the VM", live.vm.resize(self.to.memory_bytes)).await?;
        self.resize_guest(live).await
    }

    /// The agent's part.
    async fn resize_guest(&self, live: &Live) -> Result<(), PodError> {
        let plugged = self.to.memory_bytes > self.boot.memory_bytes;
        let memory_slot = plugged.then(|| Slot::MEM.number());
        live.call("resizing the pod in the guest", live.agent.resize_pod(self.to.vcpus, memory_slot)).await
    }
}

async fn wait_taken(live: &Live, bytes: u64) -> Result<(), PodError> {
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
