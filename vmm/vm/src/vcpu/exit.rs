//! Exits from the guest: the bus answers most of them, and some end the VM.

use kvm_bindings::{KVM_INTERNAL_ERROR_EMULATION, KVM_INTERNAL_ERROR_EMULATION_FLAG_INSTRUCTION_BYTES};
use kvm_ioctls::{VcpuExit, VcpuFd};
use proto_vmm::{Registers, StopReason};

use crate::bus::Bus;
use crate::counters::Counters;

/// Words of `emulation_failure` that are valid if it has instruction bytes: flags and two of bytes.
const EMULATION_WORDS: u32 = 3;

/// The vCPU thread's next step after an exit.
#[derive(Debug)]
pub(super) enum Next {
    Enter,
    Stop(StopReason),
}

/// Enters the guest once and handles the exit.
pub(super) fn run(fd: &mut VcpuFd, bus: &Bus, counters: &Counters) -> Next {
    let stop = |message: String| Next::Stop(StopReason::Vmm { message });
    let outcome = match fd.run() {
        Ok(VcpuExit::MmioRead(_, data)) => {
            counters.mmio_read.add();
            Bus::mmio_read(data);
            Ok(())
        }
        Ok(VcpuExit::MmioWrite(address, data)) => {
            counters.mmio_write.add();
            bus.mmio_write(address, data)
        }
        Ok(VcpuExit::IoIn(port, data)) => {
            counters.pio_in.add();
            bus.port_read(port, data);
            Ok(())
        }
        Ok(VcpuExit::IoOut(port, data)) => {
            counters.pio_out.add();
            bus.port_write(port, data)
        }
        // The local APIC is in KVM, and so is waiting for interrupts. A halt cannot get here; if it did, the
        // answer would be to enter again.
        Ok(VcpuExit::Hlt) => {
            counters.halt.add();
            Ok(())
        }
        Ok(VcpuExit::Intr) => {
            counters.interrupted.add();
            Ok(())
        }
        Ok(VcpuExit::Shutdown) => Err(StopReason::TripleFault),
        Ok(VcpuExit::FailEntry(hardware_reason, _)) => Err(StopReason::EntryFailed { hardware_reason }),
        Ok(VcpuExit::InternalError) => return Next::Stop(internal_error(fd)),
        Ok(VcpuExit::MemoryFault { gpa, .. }) => {
            return stop(format!("KVM cannot reach guest memory at {gpa:#x}"));
        }
        Ok(other) => return stop(format!("unexpected exit from the guest: {other:?}")),
        Err(error) => match error.errno() {
            libc::EINTR => {
                counters.interrupted.add();
                Ok(())
            }
            // A vCPU waiting for its start-up interrupt was woken.
            libc::EAGAIN => Ok(()),
            _ => return stop(format!("KVM_RUN: {error}")),
        },
    };
    match outcome {
        Ok(()) => Next::Enter,
        Err(reason) => {
            counters.other.add();
            Next::Stop(reason)
        }
    }
}

/// Reads KVM's record of an internal error.
fn internal_error(fd: &mut VcpuFd) -> StopReason {
    // SAFETY: the exit reason is KVM_EXIT_INTERNAL_ERROR, and KVM fills this member for it; all of its fields
    // are plain integers.
    let failure = unsafe { fd.get_kvm_run().__bindgen_anon_1.emulation_failure };
    let has_bytes = failure.suberror == KVM_INTERNAL_ERROR_EMULATION
        && failure.ndata >= EMULATION_WORDS
        && failure.flags & u64::from(KVM_INTERNAL_ERROR_EMULATION_FLAG_INSTRUCTION_BYTES) != 0;
    let instruction = if has_bytes {
        // SAFETY: the union has one member, plain bytes, and the flag says that it is filled.
        let code = unsafe { failure.__bindgen_anon_1.__bindgen_anon_1 };
        let size = usize::from(code.insn_size).min(code.insn_bytes.len());
        code.insn_bytes[..size].to_vec()
    } else {
        Vec::new()
    };
    StopReason::InternalError { suberror: failure.suberror, instruction }
}

/// Returns the registers for a stop report, if KVM still gives them.
pub(super) fn registers(fd: &VcpuFd) -> Option<Registers> {
    let general = fd.get_regs().ok()?;
    let special = fd.get_sregs().ok()?;
    Some(Registers {
        rip: general.rip,
        rsp: general.rsp,
        rflags: general.rflags,
        rax: general.rax,
        rbx: general.rbx,
        rcx: general.rcx,
        rdx: general.rdx,
        rsi: general.rsi,
        rdi: general.rdi,
        rbp: general.rbp,
        cr0: special.cr0,
        cr2: special.cr2,
        cr3: special.cr3,
        cr4: special.cr4,
    })
}
