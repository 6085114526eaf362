//! The whole state of a vCPU, saved while the vCPU is paused and restored before it first runs.

use kvm_bindings::{
    Msrs, Xsave, kvm_debugregs, kvm_lapic_state, kvm_mp_state, kvm_msr_entry, kvm_regs, kvm_sregs,
    kvm_vcpu_events, kvm_xcrs,
};
use kvm_ioctls::VcpuFd;
use serde::{Deserialize, Serialize};

/// Most MSRs in one call (KVM_MAX_MSR_ENTRIES is 256).
const MSRS_PER_CALL: usize = 128;
/// MSR_IA32_TSC. It must be set before the deadline, because the deadline counts in it.
const TSC: u32 = 0x10;
/// A TSC's value that no guest reaches: centuries from now, in nanoseconds.
const TSC_FAR: u64 = 1 << 62;
/// KVM scales no guest's TSC whose rate differs from the host's by at most one part in this number
/// (`tsc_tolerance_ppm` is 250; `kvm_set_tsc_khz`, arch/x86/kvm/x86.c).
const TSC_TOLERANCE: u64 = 4000;
/// MSR_IA32_TSC_DEADLINE.
const TSC_DEADLINE: u32 = 0x6e0;
/// Bytes of `kvm_xsave`: the most KVM_GET_XSAVE can return, and the least KVM_GET_XSAVE2 returns.
const XSAVE_BYTES: usize = 4096;
const XSAVE_WORDS: usize = XSAVE_BYTES / size_of::<u32>();

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
    #[error("extended processor state of {saved} words, and this host has {here}")]
    Xsave { saved: usize, here: usize },
    #[error("saved with a TSC of {saved} kHz, and this host's has {here} kHz")]
    TscRate { saved: u32, here: u32 },
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
    /// The extended state, in words.
    xsave: Vec<u32>,
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
    /// Reads the state of a vCPU outside the guest, including those of `msrs` the vCPU has. The extended
    /// state has `xsave_bytes` bytes, as returned by [`xsave_bytes`].
    pub(crate) fn save(
        fd: &VcpuFd,
        msrs: &[u32],
        xsave_bytes: usize,
    ) -> Result<VcpuSnapshot, VcpuSnapshotError> {
        let read = |part| move |source| VcpuSnapshotError::Read { part, source };
        // The multiprocessing state first: reading it makes KVM settle pending start-up interrupts.
        let mp_state = fd.get_mp_state().map_err(read("multiprocessing state"))?;
        Ok(VcpuSnapshot {
            mp_state,
            regs: fd.get_regs().map_err(read("registers"))?,
            sregs: fd.get_sregs().map_err(read("special registers"))?,
            xsave: save_xsave(fd, xsave_bytes)?,
            xcrs: fd.get_xcrs().map_err(read("extended control registers"))?,
            debug: fd.get_debug_regs().map_err(read("debug registers"))?,
            lapic: fd.get_lapic().map_err(read("local APIC"))?,
            tsc_khz: fd.get_tsc_khz().map_err(read("TSC frequency"))?,
            msrs: save_msrs(fd, msrs)?,
            // Last: the calls above may have turned pending exceptions into injected ones.
            events: fd.get_vcpu_events().map_err(read("events"))?,
        })
    }

    /// Writes the state to a fresh vCPU with its CPUID set. `is_first` means that no vCPU of the VM has one
    /// yet. The TSC has the host's rate afterwards, which may differ from the saved one by 250 millionths:
    /// hosts measure it at each boot. KVM begins a vCPU of another rate than the last one's at 0, so the VM's
    /// later vCPUs would not have the time of this one.
    pub(crate) fn restore(
        &self,
        fd: &VcpuFd,
        xsave_bytes: usize,
        is_first: bool,
    ) -> Result<(), VcpuSnapshotError> {
        let write = |part| move |source| VcpuSnapshotError::Write { part, source };
        let xsave = self.xsave(xsave_bytes)?;
        let here = fd.get_tsc_khz().map_err(write("TSC frequency"))?;
        if u64::from(self.tsc_khz.abs_diff(here)) * TSC_TOLERANCE > u64::from(here) {
            return Err(VcpuSnapshotError::TscRate { saved: self.tsc_khz, here });
        }
        if is_first {
            // Before Linux 6.7 KVM takes a value within a second of a new vCPU's for an attempt to be equal
            // to it. After a far one it takes the saved one as it is.
            restore_msrs(fd, &[kvm_msr_entry { index: TSC, data: TSC_FAR, ..Default::default() }])?;
        }
        fd.set_mp_state(self.mp_state).map_err(write("multiprocessing state"))?;
        fd.set_regs(&self.regs).map_err(write("registers"))?;
        fd.set_sregs(&self.sregs).map_err(write("special registers"))?;
        // SAFETY: KVM reads as many bytes as it reported for the extended state, and the buffer is that long.
        unsafe { fd.set_xsave2(&xsave) }.map_err(write("extended state"))?;
        fd.set_xcrs(&self.xcrs).map_err(write("extended control registers"))?;
        fd.set_debug_regs(&self.debug).map_err(write("debug registers"))?;
        fd.set_lapic(&self.lapic).map_err(write("local APIC"))?;
        restore_msrs(fd, &self.with_timer())?;
        fd.set_vcpu_events(&self.events).map_err(write("events"))
    }

    /// Returns the extended state, at this host's length.
    fn xsave(&self, xsave_bytes: usize) -> Result<Xsave, VcpuSnapshotError> {
        let mut xsave = Xsave::new(words_beyond(xsave_bytes)).map_err(|_| VcpuSnapshotError::TooLong)?;
        let (saved, here) = (self.xsave.len(), XSAVE_WORDS + xsave.as_slice().len());
        if saved != here {
            return Err(VcpuSnapshotError::Xsave { saved, here });
        }
        let (least, beyond) = self.xsave.split_at(XSAVE_WORDS);
        xsave.as_mut_slice().copy_from_slice(beyond);
        // SAFETY: the length of the flexible part stays as it is.
        unsafe { xsave.as_mut_fam_struct() }.xsave.region.copy_from_slice(least);
        Ok(xsave)
    }

    /// Returns the MSRs to restore. A deadline of 0 may have passed without the delivery of its interrupt,
    /// and KVM keeps that interrupt where it cannot be read. So the timer is set to fire at once. At worst,
    /// the guest gets one interrupt too many.
    fn with_timer(&self) -> Vec<kvm_msr_entry> {
        let now = self.msrs.iter().find(|entry| entry.index == TSC).map_or(0, |entry| entry.data);
        let mut msrs = self.msrs.clone();
        for entry in msrs.iter_mut().filter(|entry| entry.index == TSC_DEADLINE && entry.data == 0) {
            entry.data = now;
        }
        msrs
    }
}

/// Returns the bytes of a vCPU's extended state in this VM: KVM_CAP_XSAVE2, or the fixed size if KVM has no
/// such capability.
pub(crate) fn xsave_bytes(vm: &kvm_ioctls::VmFd) -> usize {
    usize::try_from(vm.check_extension_int(kvm_ioctls::Cap::Xsave2)).unwrap_or(0).max(XSAVE_BYTES)
}

/// Words of the extended state beyond `kvm_xsave`.
fn words_beyond(xsave_bytes: usize) -> usize {
    xsave_bytes.saturating_sub(XSAVE_BYTES).div_ceil(size_of::<u32>())
}

fn save_xsave(fd: &VcpuFd, xsave_bytes: usize) -> Result<Vec<u32>, VcpuSnapshotError> {
    let read = |source| VcpuSnapshotError::Read { part: "extended state", source };
    let words = words_beyond(xsave_bytes);
    if words == 0 {
        return Ok(fd.get_xsave().map_err(read)?.region.to_vec());
    }
    let mut xsave = Xsave::new(words).map_err(|_| VcpuSnapshotError::TooLong)?;
    // SAFETY: the buffer is as long as KVM reported for the state; no feature is granted to this process
    // later.
    unsafe { fd.get_xsave2(&mut xsave) }.map_err(read)?;
    let least = xsave.as_fam_struct_ref().xsave.region;
    Ok(least.iter().chain(xsave.as_slice()).copied().collect())
}

/// Reads this vCPU's MSRs among `indices`.
fn save_msrs(fd: &VcpuFd, indices: &[u32]) -> Result<Vec<kvm_msr_entry>, VcpuSnapshotError> {
    let read = |source| VcpuSnapshotError::Read { part: "MSRs", source };
    let mut rest = indices;
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
        // KVM stops at the first MSR this vCPU does not have: continue after it.
        let skip = if count < chunk.len() { count + 1 } else { count };
        rest = &rest[skip..];
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
    pub(crate) fn tsc_khz(&self) -> u32 {
        self.tsc_khz
    }

    pub(crate) fn tsc(&self) -> u64 {
        self.msrs.iter().find(|entry| entry.index == TSC).unwrap().data
    }

    /// Returns everything as text, except the TSC and values counting in it, because they advance by
    /// themselves.
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
