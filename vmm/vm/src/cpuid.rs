//! CPUID of the guest's processors: KVM's supported features, without those useless to a pod, and with those
//! needed to skip the guest's calibration loops. Pure.
//!
//! Nothing is timed at boot under three conditions (arch/x86/kernel, Linux 6.12). kvmclock gives the TSC
//! frequency (`kvm_get_tsc_khz`). The TSC-deadline timer exists (`calibrate_APIC_clock` returns at once). The
//! timer is reported to run always (ARAT); else `apic_needs_pit` would look for a PIT, and we have none.

use kvm_bindings::{CpuId, KVM_CPUID_FLAG_SIGNIFCANT_INDEX, kvm_cpuid_entry2};

/// The processor cannot be described.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum CpuidError {
    #[error("cannot ask KVM for the processor features it supports")]
    Supported(#[source] kvm_ioctls::Error),
    #[error("KVM's list of processor features is too long")]
    TooLong,
    #[error("KVM has no {feature}; guests need it")]
    Missing { feature: &'static str },
}

/// Leaf 1 ECX.
const X2APIC: u32 = 1 << 21;
const TSC_DEADLINE: u32 = 1 << 24;
const HYPERVISOR: u32 = 1 << 31;
const VMX: u32 = 1 << 5;
/// Leaf 1 EDX: more than one logical processor.
const HTT: u32 = 1 << 28;
/// Leaf 6 EAX: the local APIC's timer never stops.
const ARAT: u32 = 1 << 2;
/// Leaf 0x8000_0001 ECX.
const CMP_LEGACY: u32 = 1 << 1;
const SVM: u32 = 1 << 2;
const PERFCTR_CORE: u32 = 1 << 23;
const PERFCTR_NB: u32 = 1 << 24;

/// Leaf 0xb, ECX bits 15:8.
const LEVEL_SMT: u32 = 1 << 8;
const LEVEL_CORE: u32 = 2 << 8;

/// Returns the guest-physical address bits (leaf 0x8000_0008), or 36 without that leaf.
pub(crate) fn physical_bits(supported: &CpuId) -> u32 {
    supported
        .as_slice()
        .iter()
        .find(|entry| entry.function == 0x8000_0008)
        .map_or(36, |entry| entry.eax & 0xff)
        .clamp(36, 52)
}

/// Returns the features of vCPU `id` of `count` in a VM, from KVM's supported features.
pub(crate) fn for_vcpu(supported: &CpuId, id: u8, count: u8) -> Result<CpuId, CpuidError> {
    // The topology leaves are replaced below.
    let mut entries: Vec<kvm_cpuid_entry2> =
        supported.as_slice().iter().filter(|entry| !matches!(entry.function, 0xb | 0x1f)).copied().collect();
    if !entries.iter().any(|entry| entry.function == 1 && entry.ecx & X2APIC != 0) {
        return Err(CpuidError::Missing { feature: "x2APIC emulation" });
    }
    for entry in &mut entries {
        patch(entry, u32::from(id), u32::from(count));
    }
    if entries.iter().any(|entry| entry.function == 0 && entry.eax >= 0xb) {
        entries.extend(extended_topology(u32::from(id), u32::from(count)));
    }
    CpuId::from_entries(&entries).map_err(|_| CpuidError::TooLong)
}

/// Returns the APIC id bits for the core numbers of the one package.
fn core_bits(count: u32) -> u32 {
    count.next_power_of_two().trailing_zeros()
}

fn patch(entry: &mut kvm_cpuid_entry2, id: u32, count: u32) {
    match entry.function {
        1 => {
            entry.ebx = (entry.ebx & 0x0000_ffff) | (count << 16) | (id << 24);
            entry.ecx = (entry.ecx & !VMX) | X2APIC | TSC_DEADLINE | HYPERVISOR;
            entry.edx = if count > 1 { entry.edx | HTT } else { entry.edx & !HTT };
        }
        4 => entry.eax = cache_sharing(entry.eax, count) & 0x03ff_ffff | ((count - 1) << 26),
        6 => (entry.eax, entry.ebx, entry.ecx) = (ARAT, 0, 0),
        // No performance counters: a pod does not need them, and setting them up costs exits at boot.
        0xa | 0x8000_0022 => (entry.eax, entry.ebx, entry.ecx, entry.edx) = (0, 0, 0, 0),
        0x8000_0001 => {
            entry.ecx &= !(SVM | PERFCTR_CORE | PERFCTR_NB | CMP_LEGACY);
            if count > 1 {
                entry.ecx |= CMP_LEGACY;
            }
        }
        0x8000_0008 => entry.ecx = (entry.ecx & !0xf0ff) | (count - 1) | (core_bits(count) << 12),
        // No VMs inside pods.
        0x8000_000a => (entry.eax, entry.ebx, entry.ecx, entry.edx) = (0, 0, 0, 0),
        0x8000_001d => entry.eax = cache_sharing(entry.eax, count),
        0x8000_001e => (entry.eax, entry.ebx, entry.ecx) = (id, id, 0),
        _ => {}
    }
}

/// Returns cache leaf EAX (0x4, 0x8000_001d) with the sharing of bits 25:14. The first two levels belong to a
/// core, the third to all cores.
fn cache_sharing(eax: u32, count: u32) -> u32 {
    let kind = eax & 0x1f;
    let level = (eax >> 5) & 7;
    let sharing = if kind != 0 && level >= 3 { count - 1 } else { 0 };
    (eax & !(0xfff << 14)) | (sharing << 14)
}

/// Leaf 0xb: one thread per core, all cores in one package.
fn extended_topology(id: u32, count: u32) -> [kvm_cpuid_entry2; 3] {
    let level = |index, eax, ebx, kind| kvm_cpuid_entry2 {
        function: 0xb,
        index,
        flags: KVM_CPUID_FLAG_SIGNIFCANT_INDEX,
        eax,
        ebx,
        ecx: index | kind,
        edx: id,
        ..Default::default()
    };
    [level(0, 0, 1, LEVEL_SMT), level(1, core_bits(count), count, LEVEL_CORE), level(2, 0, 0, 0)]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(function: u32, eax: u32, ecx: u32) -> kvm_cpuid_entry2 {
        kvm_cpuid_entry2 { function, eax, ecx, ..Default::default() }
    }

    fn supported() -> CpuId {
        CpuId::from_entries(&[
            entry(0, 0xd, 0),
            entry(1, 0, X2APIC | VMX),
            entry(6, 0, 1),
            entry(0xb, 77, 77),
            entry(0x8000_0001, 0, SVM),
            entry(0x8000_0008, 48, 0),
        ])
        .unwrap()
    }

    fn find(cpuid: &CpuId, function: u32, index: u32) -> kvm_cpuid_entry2 {
        *cpuid.as_slice().iter().find(|e| e.function == function && e.index == index).unwrap()
    }

    #[test]
    fn each_vcpu_has_its_own_apic_id_everywhere() {
        let cpuid = for_vcpu(&supported(), 5, 6).unwrap();
        assert_eq!(find(&cpuid, 1, 0).ebx >> 24, 5);
        assert_eq!(find(&cpuid, 1, 0).ebx >> 16 & 0xff, 6);
        for index in 0..3 {
            assert_eq!(find(&cpuid, 0xb, index).edx, 5);
        }
        assert_eq!(find(&cpuid, 0xb, 1).eax, 3);
    }

    #[test]
    fn the_guest_calibrates_nothing_and_nests_nothing() {
        let cpuid = for_vcpu(&supported(), 0, 1).unwrap();
        assert_ne!(find(&cpuid, 1, 0).ecx & TSC_DEADLINE, 0);
        assert_ne!(find(&cpuid, 6, 0).eax & ARAT, 0);
        assert_eq!(find(&cpuid, 1, 0).ecx & VMX, 0);
        assert_eq!(find(&cpuid, 0x8000_0001, 0).ecx & SVM, 0);
    }

    #[test]
    fn the_address_limit_is_the_processors() {
        assert_eq!(physical_bits(&supported()), 48);
        assert_eq!(physical_bits(&CpuId::from_entries(&[]).unwrap()), 36);
    }
}
