//! The machine: KVM, vCPUs, guest memory, the boot protocol and the slot table that devices fill.
//!
//! Start at [`Machine`], which is built from a [`MachineSpec`], started, plugged and in the end asked for
//! its [`proto_vmm::StopReport`]. `layout` has the map of guest memory, `vcpu` the threads, `bus` what
//! they reach. This crate opens nothing by path and talks to no daemon.

mod boot;
mod bus;
mod clock;
mod console;
mod counters;
mod cpuid;
mod device;
mod hotplug;
mod layout;
mod machine;
mod memory;
mod pmem;
mod vcpu;
mod vm_state;

pub use boot::{BootError, COMMAND_LINE_BYTES, CommandLineError, KernelError};
pub use bus::BusError;
pub use clock::monotonic_ns;
pub use console::{CONSOLE_BYTES, Console};
pub use cpuid::CpuidError;
pub use device::{Backends, PlugError};
pub use hotplug::ResizeError;
pub use machine::{Machine, MachineError, MachineSpec, VCPUS_MAX};
pub use memory::{MemoryError, RAM_MIN};
pub use pmem::PmemError;
pub use vcpu::{ThreadSetup, VcpuError, VcpuState, VcpuStateError};
pub use vm_state::{VmState, VmStateError};

pub use kvm_ioctls::Kvm;
pub use vmm_devices::virtio::fs::{Share, ShareThread, credentials};
pub use vmm_devices::virtio::vsock::GuestStream;
