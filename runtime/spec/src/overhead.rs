//! Overhead of pods for a RuntimeClass: a VM's use of the node beside its containers' memory. The costs are
//! the daemon's own or measured ones. The arithmetic is the ledger's, inverted. Pure.
//!
//! ```text
//!  VM's memory M:  M - guest(M) = containers' memory      guest(M) = constant + share of M
//!  overhead     =  M - containers' memory + VMM(M)        VMM(M)   = constant + share of M
//! ```

use serde::Serialize;

use crate::sizing::{GUEST_OVERHEAD, MEMORY_GRAIN, MEMORY_MIN, PAGE_STRUCTS, PAGE_TABLES, VMM_MEMORY};

const MIB: u64 = 1 << 20;

/// Least memory of a pod with a correct overhead, in bytes: no container starts with less.
const POD_MIN: u64 = MIB;

/// Largest share used, in bytes for each MiB: half of the VM's memory.
const SHARE_MAX: u64 = MIB / 2;

/// A cost growing with a VM's memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct VmCost {
    /// Bytes of every VM.
    pub constant_bytes: u64,
    /// Bytes for each MiB of the VM's memory, at most half of it.
    pub bytes_per_mib: u64,
}

impl VmCost {
    /// The cost of a VM with so much memory, in bytes, rounded up.
    pub fn of(&self, memory_bytes: u64) -> u64 {
        let share = u128::from(memory_bytes) * u128::from(self.bytes_per_mib.min(SHARE_MAX));
        let share = u64::try_from(share.div_ceil(u128::from(MIB))).unwrap_or(u64::MAX);
        self.constant_bytes.saturating_add(share)
    }

    /// The cost covering all of these points, each a VM's memory and its measured cost, in bytes. Its slope
    /// is that from the smallest VM to the largest, and at least `share_min` bytes for each MiB. A single
    /// point gives no slope.
    pub fn holding(points: &[(u64, u64)], share_min: u64) -> VmCost {
        let least = points.iter().min_by_key(|(memory, _)| *memory);
        let most = points.iter().max_by_key(|(memory, _)| *memory);
        let slope = least.zip(most).and_then(|(least, most)| {
            let (run, rise) = (most.0 - least.0, most.1.saturating_sub(least.1));
            let slope = (u128::from(rise) * u128::from(MIB)).checked_div(u128::from(run))?;
            u64::try_from(slope).ok()
        });
        let bytes_per_mib = slope.unwrap_or(0).max(share_min).min(SHARE_MAX);
        let share = VmCost { constant_bytes: 0, bytes_per_mib };
        let rest = points.iter().map(|(memory, cost)| cost.saturating_sub(share.of(*memory)));
        VmCost { constant_bytes: rest.max().unwrap_or(0), bytes_per_mib }
    }

    /// The cost with a reserve.
    #[must_use]
    pub fn plus(self, bytes: u64) -> VmCost {
        VmCost { constant_bytes: self.constant_bytes.saturating_add(bytes), ..self }
    }
}

/// Costs of a VM on its node, beside its containers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct VmCosts {
    /// The guest's own: kernel, page structures, agent.
    pub guest: VmCost,
    /// The VMM's: its own memory, and page tables.
    pub vmm: VmCost,
}

impl VmCosts {
    /// The daemon's costs for sizing a VM, and for fitting one into a pod's cgroup.
    pub const COUNTED: VmCosts = VmCosts {
        guest: VmCost { constant_bytes: GUEST_OVERHEAD, bytes_per_mib: MIB / PAGE_STRUCTS },
        vmm: VmCost { constant_bytes: VMM_MEMORY, bytes_per_mib: MIB / PAGE_TABLES },
    };

    /// The overhead sufficient for every pod with containers of at most so much memory together, in bytes.
    pub fn overhead(&self, containers_bytes: u64) -> Overhead {
        let left = MIB - self.guest.bytes_per_mib.min(SHARE_MAX);
        let needed = u128::from(containers_bytes) + u128::from(self.guest.constant_bytes);
        let vm = (needed * u128::from(MIB)).div_ceil(u128::from(left));
        // A VM's memory is rounded up by less than a grain. A smaller pod's may be rounded up by more.
        let vm = u64::try_from(vm).unwrap_or(u64::MAX).saturating_add(MEMORY_GRAIN);
        let most = self.parts(vm, containers_bytes);
        // Small pods have a VM of the least size, regardless of their request.
        let least = self.parts(MEMORY_MIN, POD_MIN);
        if least.total_bytes() > most.total_bytes() { least } else { most }
    }

    fn parts(&self, vm: u64, containers: u64) -> Overhead {
        Overhead { guest_bytes: vm.saturating_sub(containers), vmm_bytes: self.vmm.of(vm) }
    }
}

/// Memory used by a pod beside its containers, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Overhead {
    /// Part inside the VM.
    pub guest_bytes: u64,
    /// Part of the VMM and the node's kernel.
    pub vmm_bytes: u64,
}

impl Overhead {
    /// Both parts.
    pub fn total_bytes(&self) -> u64 {
        self.guest_bytes.saturating_add(self.vmm_bytes)
    }
}
