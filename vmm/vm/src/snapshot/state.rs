//! The state of a saved VM without its memory, as bytes of postcard. Reading it as text cost a start from a
//! template over two million instructions. The first field is the state's format.

use kvm_bindings::kvm_cpuid_entry2;
use proto_vmm::{STATE_BYTES_MAX, Slot};
use serde::{Deserialize, Serialize};
use vmm_devices::legacy::serial::SerialSnapshot;
use vmm_devices::virtio::mmio::TransportSnapshot;

use super::error::RestoreError;
use super::format::FORMAT;
use super::vcpu::VcpuSnapshot;
use super::vm::VmSnapshot;

/// A VM without its memory.
#[derive(Serialize, Deserialize)]
pub(crate) struct State {
    pub(super) format: u32,
    /// The guest's vCPUs, made or not; `vcpus` has the ones made.
    pub(super) vcpus_max: u8,
    pub(super) memory_bytes: u64,
    pub(super) memory_max_bytes: u64,
    /// Bytes of the room for growth that the guest may use, plugged or not.
    pub(super) memory_given_bytes: u64,
    /// Features of the first vCPU; the other vCPUs' features follow from them.
    pub(super) cpuid: Vec<kvm_cpuid_entry2>,
    pub(super) vm: VmSnapshot,
    pub(super) vcpus: Vec<VcpuSnapshot>,
    pub(super) serial: SerialSnapshot,
    /// The filled slots, in the table's order.
    pub(super) slots: Vec<(Slot, TransportSnapshot)>,
}

impl State {
    pub(crate) fn encode(&self) -> Result<Vec<u8>, postcard::Error> {
        postcard::to_stdvec(self)
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<State, RestoreError> {
        if bytes.len() > STATE_BYTES_MAX {
            return Err(RestoreError::StateSize { bytes: bytes.len() as u64 });
        }
        let (format, _) = postcard::take_from_bytes(bytes)?;
        if format != FORMAT {
            return Err(RestoreError::Format { format });
        }
        let (state, rest) = postcard::take_from_bytes(bytes)?;
        match rest.len() {
            0 => Ok(state),
            bytes => Err(RestoreError::StateEnd { bytes }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_of_another_form_or_none_is_refused() {
        let earlier = State::decode(br#"{"format":1,"vcpus_max":1}"#);
        assert!(matches!(earlier, Err(RestoreError::Format { format: 123 })), "the number of a brace");
        let this = u8::try_from(FORMAT).unwrap();
        for odd in [&[][..], &[this], &[this, 1], &[0xff; 64]] {
            assert!(matches!(State::decode(odd), Err(RestoreError::State(_))), "{odd:?}");
        }
        let long = vec![b' '; STATE_BYTES_MAX + 1];
        assert!(matches!(State::decode(&long), Err(RestoreError::StateSize { .. })));
    }
}
