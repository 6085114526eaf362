//! The parts of a VM that are the same for every pod, so that a VMM which waits for one has made them before: KVM's VM with its interrupt
//! controllers, the registers of all slots, and the first vCPU. There is no memory yet.

use std::sync::Arc;

use kvm_bindings::CpuId;
use kvm_ioctls::{Cap, Kvm, VcpuFd, VmFd};

use crate::cpuid::CpuidError;
use crate::kvm_error::{KvmError, kvm_error};
use crate::layout;
use crate::register_pages::{RegisterPages, RegisterPagesError};

/// Entries of KVM's feature list that we make room for (KVM_MAX_CPUID_ENTRIES).
const CPUID_ENTRIES: usize = 256;

/// The beginning of a VM could not be made, or a vCPU.
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
    #[error("the VMM has used the one VM that it makes; another VM needs another VMM")]
    Spent,
}

/// The beginning of a VM, which one is built from.
#[derive(Debug)]
pub struct BlankVm {
    pub(crate) vm: Arc<VmFd>,
    /// Features that vCPUs may have here.
    pub(crate) supported: CpuId,
    /// MSRs that a saved VM has to keep.
    pub(crate) msrs: Arc<[u32]>,
    pub(crate) registers: RegisterPages,
    /// The vCPU of number 0, without features.
    pub(crate) first: VcpuFd,
}

impl BlankVm {
    /// Makes one.
    ///
    /// # Errors
    /// KVM lacks what a VM needs, or has no room for one.
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

/// Checks for the KVM capabilities that the VMM builds upon and old kernels may lack.
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

/// Creates the vCPU of this number, which has no features yet.
pub(crate) fn create_vcpu(vm: &VmFd, id: u8) -> Result<VcpuFd, KvmError> {
    vm.create_vcpu(u64::from(id)).map_err(kvm_error("create a vCPU"))
}
