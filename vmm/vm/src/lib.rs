//! The VM: KVM, vCPUs, guest memory, the boot protocol and the table of device slots.
//!
//! Start at [`Vm`]: it is built from a [`VmConfig`], resumed, plugged, and stopped with a
//! [`proto_vmm::StopReport`]. `layout` has the map of guest memory, `vcpu` the threads, `bus` their slots and
//! ports. This crate opens nothing by path and talks to no daemon.

mod blank_vm;
mod boot;
mod bus;
mod clock;
mod console;
mod console_file;
mod counters;
mod cpuid;
pub mod descriptors;
mod device;
mod first_pages;
mod image_map;
mod kvm_error;
mod layout;
mod memory;
mod memory_hotplug;
mod pmem;
mod register_pages;
mod saved_memory;
mod snapshot;
mod userfault;
mod vcpu;
mod vm;

pub use blank_vm::{BlankVm, BlankVmError};
pub use boot::{BootError, COMMAND_LINE_BYTES, CommandLineError, KernelError};
pub use bus::BusError;
pub use clock::monotonic_ns;
pub use console::{CONSOLE_BYTES, Console};
pub use cpuid::CpuidError;
pub use device::{Backends, PlugError};
pub use kvm_error::KvmError;
pub use memory::{MemoryError, RAM_MIN};
pub use memory_hotplug::ResizeError;
pub use pmem::PmemError;
pub use register_pages::RegisterPagesError;
pub use snapshot::{
    RestoreError, SaveError, Saved, VcpuSnapshot, VcpuSnapshotError, VmSnapshot, VmSnapshotError,
};
pub use userfault::Userfault;
pub use vcpu::VcpuError;
pub use vm::{VCPUS_MAX, Vm, VmConfig, VmError};

pub use kvm_ioctls::Kvm;
pub use vmm_devices::virtio::blk::FullDisks;
pub use vmm_devices::virtio::fs::{Cache, OPENED_MAX, Share, ShareLink, ShareServer, credentials};
pub use vmm_devices::virtio::vsock::GuestStream;
