//! The parts of a VM common to all pods. A VMM waiting for a pod has made them in advance: KVM's VM with its
//! interrupt controllers, the registers of all slots, and the first vCPU. There is no memory yet.

use std::sync::Arc;

use kvm_bindings::CpuId;
use kvm_ioctls::{Cap, Kvm, VcpuFd, VmFd};

use crate::cpuid::CpuidError;
use crate::kvm_error::{KvmError, kvm_error};
use crate::layout;
use crate::register_pages::{RegisterPages, RegisterPagesError};

/// Most entries of KVM's feature list (KVM_MAX_CPUID_ENTRIES).
const CPUID_ENTRIES: usize = 256;

/// The blank VM or a vCPU could not be made.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum BlankVmError {
    #[error("KVM lacks {capability}")]
    Capability { capability: &'static str },
    #[error(transparent)]
    Kvm(#[from] KvmError),
    #[error(transparent)]
    Cpuid(#[from] CpuidError),
    #[error(transparent)]
    Registers(#[from] RegisterPagesError),
    #[error("the VMM has already made its one VM; another VM needs another VMM")]
    Spent,
}

/// The beginning of a VM. [`Vm`](crate::Vm) is built from it.
#[derive(Debug)]
pub struct BlankVm {
    pub(crate) vm: Arc<VmFd>,
    /// Features available to vCPUs here.
    pub(crate) supported: CpuId,
    /// MSRs to keep in a saved VM.
    pub(crate) msrs: Arc<[u32]>,
    pub(crate) registers: RegisterPages,
    /// vCPU 0, without features.
    pub(crate) first: VcpuFd,
}

impl BlankVm {
    /// Makes a blank VM.
    ///
    /// # Errors
    /// KVM lacks a needed capability, or has no room for another VM.
    pub fn new(kvm: &Kvm) -> Result<BlankVm, BlankVmError> {
        check_capabilities(kvm)?;
        let supported = kvm.get_supported_cpuid(CPUID_ENTRIES).map_err(CpuidError::Supported)?;
        let msrs = kvm.get_msr_index_list().map_err(kvm_error("list the MSRs"))?.as_slice().into();
        let vm = create_vm(kvm)?;
        let registers = RegisterPages::new(&vm)?;
        let first = create_vcpu(&vm, 0)?;
        Ok(BlankVm { vm: Arc::new(vm), supported, msrs, registers, first })
    }
}

/// Checks for the KVM capabilities needed by the VMM but missing in old kernels.
fn check_capabilities(kvm: &Kvm) -> Result<(), BlankVmError> {
    let needed = [
        (Cap::Irqchip, "an in-kernel interrupt controller"),
        (Cap::Ioeventfd, "ioeventfd"),
        (Cap::Irqfd, "irqfd"),
        (Cap::ImmediateExit, "immediate_exit"),
        (Cap::ReadonlyMem, "read-only memory slots"),
        (Cap::TscDeadlineTimer, "a TSC-deadline timer"),
        (Cap::AdjustClock, "an adjustable guest clock"),
    ];
    match needed.into_iter().find(|(cap, _)| !kvm.check_extension(*cap)) {
        Some((_, capability)) => Err(BlankVmError::Capability { capability }),
        None => Ok(()),
    }
}

fn create_vm(kvm: &Kvm) -> Result<VmFd, BlankVmError> {
    let vm = kvm.create_vm().map_err(kvm_error("create the VM"))?;
    vm.set_identity_map_address(layout::IDENTITY_MAP).map_err(kvm_error("place the identity map"))?;
    vm.set_tss_address(layout::TSS).map_err(kvm_error("place the TSS"))?;
    // No PIT: the guest does not look for one (see `cpuid`), and closing it is slow.
    vm.create_irq_chip().map_err(kvm_error("create the interrupt controllers"))?;
    Ok(vm)
}

/// Creates the vCPU with this number. It has no features yet.
pub(crate) fn create_vcpu(vm: &VmFd, id: u8) -> Result<VcpuFd, KvmError> {
    vm.create_vcpu(u64::from(id)).map_err(kvm_error("create a vCPU"))
}
