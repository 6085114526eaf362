//! The whole state of a vCPU, saved while the vCPU is paused and restored before it first runs.

use kvm_bindings::{
    Msrs, kvm_debugregs, kvm_lapic_state, kvm_mp_state, kvm_msr_entry, kvm_regs, kvm_sregs, kvm_vcpu_events,
    kvm_xcrs, kvm_xsave,
};
use kvm_ioctls::{Cap, Kvm, VcpuFd};
use serde::{Deserialize, Serialize};

/// Most MSRs in one call (KVM_MAX_MSR_ENTRIES is 256).
const MSRS_PER_CALL: usize = 128;
/// MSR_IA32_TSC, which must be there before the deadline that counts in it.
const TSC: u32 = 0x10;
/// MSR_IA32_TSC_DEADLINE.
const TSC_DEADLINE: u32 = 0x6e0;
/// Bytes of `kvm_xsave`, all that KVM_GET_XSAVE can give.
const XSAVE_BYTES: i32 = 4096;

/// A state could not be saved or restored.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum VcpuSnapshotError {
    #[error("a running vCPU has no state to save")]
    Running,
    #[error("cannot read a vCPU's {part}")]
    Read { part: &'static str, source: kvm_ioctls::Error },
    #[error("cannot write a vCPU's {part}")]
    Write { part: &'static str, source: kvm_ioctls::Error },
    #[error("cannot restore MSR {index:#x}")]
    Msr { index: u32 },
    #[error("extended processor state of {bytes} bytes, at most {XSAVE_BYTES} can be saved")]
    Xsave { bytes: i32 },
    #[error("a list of MSRs is too long")]
    TooLong,
}

/// A vCPU's state. CPUID is not part of it: it follows from the VM's configuration.
#[derive(Serialize, Deserialize)]
pub struct VcpuSnapshot {
    regs: kvm_regs,
    sregs: kvm_sregs,
    msrs: Vec<kvm_msr_entry>,
    lapic: kvm_lapic_state,
    xsave: kvm_xsave,
    xcrs: kvm_xcrs,
    debug: kvm_debugregs,
    mp_state: kvm_mp_state,
    events: kvm_vcpu_events,
    tsc_khz: u32,
}

impl std::fmt::Debug for VcpuSnapshot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("VcpuSnapshot").field("regs", &self.regs).finish_non_exhaustive()
    }
}

impl VcpuSnapshot {
    /// Reads the state of a vCPU that is not in the guest.
    pub fn save(fd: &VcpuFd) -> Result<VcpuSnapshot, VcpuSnapshotError> {
        let read = |part| move |source| VcpuSnapshotError::Read { part, source };
        // The multiprocessing state first: reading it makes KVM settle pending start-up interrupts.
        let mp_state = fd.get_mp_state().map_err(read("multiprocessing state"))?;
        Ok(VcpuSnapshot {
            mp_state,
            regs: fd.get_regs().map_err(read("registers"))?,
            sregs: fd.get_sregs().map_err(read("special registers"))?,
            xsave: fd.get_xsave().map_err(read("extended state"))?,
            xcrs: fd.get_xcrs().map_err(read("extended control registers"))?,
            debug: fd.get_debug_regs().map_err(read("debug registers"))?,
            lapic: fd.get_lapic().map_err(read("local APIC"))?,
            tsc_khz: fd.get_tsc_khz().map_err(read("TSC frequency"))?,
            msrs: save_msrs(fd)?,
            // Last: the calls above may have turned pending exceptions into injected ones.
            events: fd.get_vcpu_events().map_err(read("events"))?,
        })
    }

    /// Writes the state to a fresh vCPU whose CPUID is set. KVM keeps the TSC's rate where it is the
    /// host's own already.
    pub fn restore(&self, fd: &VcpuFd) -> Result<(), VcpuSnapshotError> {
        let write = |part| move |source| VcpuSnapshotError::Write { part, source };
        if fd.get_tsc_khz().map_err(write("TSC frequency"))? != self.tsc_khz {
            fd.set_tsc_khz(self.tsc_khz).map_err(write("TSC frequency"))?;
        }
        fd.set_mp_state(self.mp_state).map_err(write("multiprocessing state"))?;
        fd.set_regs(&self.regs).map_err(write("registers"))?;
        fd.set_sregs(&self.sregs).map_err(write("special registers"))?;
        // SAFETY: KVM reads as much as `kvm_xsave` holds unless a dynamic feature (AMX) was granted to
        // this process, which `check` refuses before a VM is built to be saved.
        unsafe { fd.set_xsave(&self.xsave) }.map_err(write("extended state"))?;
        fd.set_xcrs(&self.xcrs).map_err(write("extended control registers"))?;
        fd.set_debug_regs(&self.debug).map_err(write("debug registers"))?;
        fd.set_lapic(&self.lapic).map_err(write("local APIC"))?;
        restore_msrs(fd, &self.msrs)?;
        fd.set_vcpu_events(&self.events).map_err(write("events"))
    }

    /// Whether this host's vCPUs can be saved: their extended state must fit KVM_GET_XSAVE.
    pub fn check(kvm: &Kvm) -> Result<(), VcpuSnapshotError> {
        let bytes = kvm.check_extension_int(Cap::Xsave2);
        if bytes > XSAVE_BYTES { Err(VcpuSnapshotError::Xsave { bytes }) } else { Ok(()) }
    }
}

/// Reads every MSR that KVM lists and this vCPU has.
fn save_msrs(fd: &VcpuFd) -> Result<Vec<kvm_msr_entry>, VcpuSnapshotError> {
    let read = |source| VcpuSnapshotError::Read { part: "MSRs", source };
    let kvm = Kvm::new().map_err(read)?;
    let list = kvm.get_msr_index_list().map_err(read)?;
    let mut rest: Vec<u32> = list.as_slice().to_vec();
    let mut saved: Vec<kvm_msr_entry> = Vec::with_capacity(rest.len());
    while !rest.is_empty() {
        let chunk: Vec<kvm_msr_entry> = rest
            .iter()
            .take(MSRS_PER_CALL)
            .map(|&index| kvm_msr_entry { index, ..Default::default() })
            .collect();
        let mut msrs = Msrs::from_entries(&chunk).map_err(|_| VcpuSnapshotError::TooLong)?;
        let count = fd.get_msrs(&mut msrs).map_err(read)?;
        saved.extend(&msrs.as_slice()[..count]);
        // KVM stops at the first that this vCPU does not have: go on behind it.
        let skip = if count < chunk.len() { count + 1 } else { count };
        rest.drain(..skip);
    }
    saved.sort_by_key(|entry| match entry.index {
        TSC => 0,
        TSC_DEADLINE => 2,
        _ => 1,
    });
    Ok(saved)
}

fn restore_msrs(fd: &VcpuFd, entries: &[kvm_msr_entry]) -> Result<(), VcpuSnapshotError> {
    for chunk in entries.chunks(MSRS_PER_CALL) {
        let msrs = Msrs::from_entries(chunk).map_err(|_| VcpuSnapshotError::TooLong)?;
        let count = fd.set_msrs(&msrs).map_err(|source| VcpuSnapshotError::Write { part: "MSRs", source })?;
        if let Some(entry) = chunk.get(count) {
            return Err(VcpuSnapshotError::Msr { index: entry.index });
        }
    }
    Ok(())
}

#[cfg(test)]
impl VcpuSnapshot {
    /// All of it as text but what goes on by itself: the TSC, and what counts in it.
    pub(crate) fn without_time(&self) -> String {
        let mut value = serde_json::to_value(self).unwrap();
        value["msrs"] = serde_json::json!(
            self.msrs
                .iter()
                .filter(|msr| !matches!(msr.index, TSC | TSC_DEADLINE))
                .map(|msr| (msr.index, msr.data))
                .collect::<std::collections::BTreeMap<_, _>>()
        );
        value.to_string()
    }
}
