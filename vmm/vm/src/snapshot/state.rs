//! The state of a saved VM beside its memory, as bytes.

use kvm_bindings::kvm_cpuid_entry2;
use proto_vmm::{STATE_BYTES_MAX, Slot};
use serde::{Deserialize, Serialize};
use vmm_devices::legacy::serial::SerialSnapshot;
use vmm_devices::virtio::mmio::TransportSnapshot;

use super::error::RestoreError;
use super::format::FORMAT;
use super::vcpu::VcpuSnapshot;
use super::vm::VmSnapshot;

/// All that a VM is but its memory.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct State {
    pub(super) format: u32,
    /// vCPUs that the guest knows of; `vcpus` has those that were made.
    pub(super) vcpus_max: u8,
    pub(super) memory_bytes: u64,
    pub(super) memory_max_bytes: u64,
    /// Features of the first vCPU; those of the others follow from them.
    pub(super) cpuid: Vec<kvm_cpuid_entry2>,
    pub(super) vm: VmSnapshot,
    pub(super) vcpus: Vec<VcpuSnapshot>,
    pub(super) serial: SerialSnapshot,
    /// The filled slots, in the table's order.
    pub(super) slots: Vec<(Slot, TransportSnapshot)>,
}

/// The part by which a state of another form is recognized.
#[derive(Deserialize)]
struct Head {
    format: u32,
}

impl State {
    pub(super) fn encode(&self) -> Result<Vec<u8>, serde_json::Error> {
        serde_json::to_vec(self)
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<State, RestoreError> {
        if bytes.len() > STATE_BYTES_MAX {
            return Err(RestoreError::StateSize { bytes: bytes.len() as u64 });
        }
        let Head { format } = serde_json::from_slice(bytes)?;
        if format != FORMAT {
            return Err(RestoreError::Format { format });
        }
        Ok(serde_json::from_slice(bytes)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_of_another_form_or_none_is_refused() {
        let decode = |text: &str| State::decode(text.as_bytes());
        assert!(matches!(decode(r#"{"format":2,"new":1}"#), Err(RestoreError::Format { format: 2 })));
        for odd in ["", "[]", "{}", r#"{"format":1}"#, r#"{"format":-1}"#] {
            assert!(matches!(decode(odd), Err(RestoreError::State(_))), "{odd}");
        }
        let long = vec![b' '; STATE_BYTES_MAX + 1];
        assert!(matches!(State::decode(&long), Err(RestoreError::StateSize { .. })));
    }
}
