//! Decides whether a node's memory has room for one more VM. Pure: `probe.rs` reads the values.
//!
//! ```text
//!            available < vm + RESERVE
//!   enough ──────────────────────────────► short
//!          ◄──────────────────────────────
//!            available ≥ vm + RESERVE + vm / 4
//! ```
//!
//! Between the two bounds the last answer stays. This hysteresis keeps a node at the bound from flapping.

/// Memory in bytes to remain beside the new VM. A kubelet evicts pods below 100 MiB by default
/// (`memory.available<100Mi`), and a VM causing evictions should not start.
const RESERVE: u64 = 100 << 20;

/// The last answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Memory {
    /// Memory in bytes for one more VM on the node.
    vm_bytes: u64,
    short: bool,
}

impl Memory {
    /// Memory that counts as enough at first.
    pub(crate) fn new(vm_bytes: u64) -> Memory {
        Memory { vm_bytes, short: false }
    }

    /// Returns the number of available bytes needed for one more VM.
    pub(crate) fn needed(self) -> u64 {
        self.vm_bytes.saturating_add(RESERVE)
    }

    /// Returns true if memory is short with so many bytes available.
    pub(crate) fn is_short(&mut self, available: u64) -> bool {
        let margin = if self.short { self.vm_bytes / 4 } else { 0 };
        self.short = available < self.needed().saturating_add(margin);
        self.short
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn memory_is_short_below_one_vm_and_enough_again_a_quarter_above() {
        let mut memory = Memory::new(400 * MIB);
        let answers = [500, 499, 500, 599, 600, 500, 0, 599, 10_000].map(|mib| memory.is_short(mib * MIB));
        assert_eq!(answers, [false, true, true, true, false, false, true, true, false]);
    }

    #[test]
    fn a_vm_of_any_size_has_a_bound() {
        let mut memory = Memory::new(u64::MAX);
        assert!(memory.is_short(u64::MAX - 1) && !memory.is_short(u64::MAX));
    }
}
