//! The reasons for a failed save or restore of a VM.

use proto_vmm::{STATE_BYTES_MAX, Slot};
use vmm_devices::virtio::DeviceError;
use vmm_devices::virtio::mmio::TransportError;

use super::format::FORMAT;
use crate::blank_vm::BlankVmError;
use crate::device::PlugError;
use crate::memory::MemoryError;
use crate::memory_hotplug::ResizeError;
use crate::vm::VmError;

/// A VM could not be saved.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum SaveError {
    #[error("cannot save the device in slot {slot}")]
    Device { slot: Slot, source: TransportError },
    #[error("the device in slot {slot} does not go on")]
    GoOn { slot: Slot, source: TransportError },
    #[error("cannot write the VM's memory")]
    Memory(#[source] std::io::Error),
    #[error("cannot write the VM's state")]
    State(#[from] postcard::Error),
    #[error(transparent)]
    Vm(#[from] VmError),
}

/// A VM could not be restored.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum RestoreError {
    #[error("a saved state of {bytes} bytes, at most {STATE_BYTES_MAX} are possible")]
    StateSize { bytes: u64 },
    #[error("cannot read the saved state")]
    State(#[from] postcard::Error),
    #[error("a saved state with {bytes} bytes behind its end")]
    StateEnd { bytes: usize },
    #[error("a saved state of format {format}, and this VMM reads {FORMAT}")]
    Format { format: u32 },
    #[error("saved with {saved} {what}, and asked for with {asked}")]
    Size { what: &'static str, saved: u64, asked: u64 },
    #[error("this host's processors are not the saved VM's")]
    Processors,
    #[error("a saved state of slots {saved:?}, and {asked:?} are to be filled")]
    Slots { saved: Vec<Slot>, asked: Vec<Slot> },
    #[error("the guest's first pages lie beyond its memory")]
    FirstPages,
    #[error("cannot restore the serial port")]
    Serial(#[source] std::io::Error),
    #[error("cannot restore the device in slot {slot}")]
    Device { slot: Slot, source: TransportError },
    #[error("the saved state of the image in slot {slot} has no place")]
    Place { slot: Slot, source: DeviceError },
    #[error("cannot give the VM its grown memory")]
    Grown(#[from] ResizeError),
    #[error("cannot read the grown part of the memory")]
    GrownContent(#[source] std::io::Error),
    #[error(transparent)]
    Blank(#[from] BlankVmError),
    #[error(transparent)]
    Plug(#[from] PlugError),
    #[error(transparent)]
    Memory(#[from] MemoryError),
    #[error(transparent)]
    Vm(#[from] VmError),
}
