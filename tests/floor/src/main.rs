//! `tests-floor`: makes a VM of one vCPU by KVM, runs its only instruction, and writes a byte: the minimal
//! cost of a VM's start in a separate process. `bench-lineup` starts the program. It must never do anything
//! unnecessary for a VM. The crate is separate from the benchmarks, because memory of a VM takes unsafe code,
//! forbidden there.

use std::io::Write;

use anyhow::{Context, ensure};
use kvm_bindings::kvm_userspace_memory_region;
use kvm_ioctls::{Kvm, VcpuExit};
use vm_memory::{Bytes, GuestAddress, GuestMemory, GuestMemoryMmap};

/// The guest's memory, a page.
const MEMORY_BYTES: usize = 4096;

/// The guest's program: `hlt`. It causes an exit because KVM has no interrupt controller.
const PROGRAM: [u8; 1] = [0xf4];

fn main() -> anyhow::Result<()> {
    let kvm = Kvm::new().context("opening /dev/kvm")?;
    let vm = kvm.create_vm()?;
    let memory = GuestMemoryMmap::<()>::from_ranges(&[(GuestAddress(0), MEMORY_BYTES)])?;
    memory.write_slice(&PROGRAM, GuestAddress(0))?;
    let region = kvm_userspace_memory_region {
        slot: 0,
        flags: 0,
        guest_phys_addr: 0,
        memory_size: MEMORY_BYTES as u64,
        userspace_addr: memory.get_host_address(GuestAddress(0))? as u64,
    };
    // SAFETY: the memory is mapped for as long as the VM is there: `memory` is dropped before `vm` only at
    // the end of this function, when no vCPU runs.
    unsafe { vm.set_user_memory_region(region) }?;
    let mut vcpu = vm.create_vcpu(0)?;
    let mut special = vcpu.get_sregs()?;
    (special.cs.base, special.cs.selector) = (0, 0);
    vcpu.set_sregs(&special)?;
    let mut general = vcpu.get_regs()?;
    // Bit 1 of the flags is always set.
    (general.rip, general.rflags) = (0, 2);
    vcpu.set_regs(&general)?;
    let exit = vcpu.run()?;
    ensure!(matches!(exit, VcpuExit::Hlt), "the guest's exit is {exit:?}");
    std::io::stdout().write_all(b".")?;
    Ok(std::io::stdout().flush()?)
}
