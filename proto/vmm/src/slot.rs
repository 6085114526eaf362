//! The fixed table of virtio-mmio slots. The guest learns it from its command line at boot; a slot
//! without a device answers with device ID 0, which Linux leaves unbound until the agent asks again.
//!
//! Every busy kind has an interrupt pin of its own (the I/O APIC has 24, of which 5 to 21 serve us);
//! the pmem slots, which hardly interrupt, share one.

use serde::{Deserialize, Serialize};

/// Number of a slot, `0..Slot::COUNT`. In the guest it is the platform device `virtio-mmio.<number>`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u8", into = "u8")]
pub struct Slot(u8);

/// What may be plugged into a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotKind {
    /// The guest's root image (pmem); filled at boot.
    Root,
    /// virtio-vsock; filled at boot.
    Vsock,
    /// virtio-rng; filled at boot.
    Rng,
    /// virtio-fs; filled at boot.
    Fs,
    /// virtio-mem; filled when the VM first grows.
    Mem,
    /// Kept for balloon and console.
    Reserved,
    /// virtio-net.
    Net,
    /// virtio-blk; the first one is the pod's scratch disk.
    Blk,
    /// virtio-pmem: images.
    Pmem,
}

impl Slot {
    /// Slots in the table.
    pub const COUNT: u8 = 33;
    /// The guest's root image.
    pub const ROOT: Slot = Slot(0);
    /// The vsock device.
    pub const VSOCK: Slot = Slot(1);
    /// The entropy device.
    pub const RNG: Slot = Slot(2);
    /// The pod's shared directory.
    pub const FS: Slot = Slot(5);
    /// The memory device.
    pub const MEM: Slot = Slot(3);
    /// The pod's scratch disk.
    pub const SCRATCH: Slot = Slot(11);

    const NET: std::ops::Range<u8> = 7..11;
    const BLK: std::ops::Range<u8> = 11..17;
    const PMEM: std::ops::Range<u8> = 17..Self::COUNT;

    /// Interrupt pin that slot 1 uses; the following slots follow on.
    const IRQ_FIRST: u32 = 5;
    /// Pin shared by the root image and the pmem slots.
    const IRQ_PMEM: u32 = 21;

    /// The slot with this number, or `None` beyond the table.
    pub fn new(number: u8) -> Option<Slot> {
        (number < Self::COUNT).then_some(Slot(number))
    }

    /// Its number.
    pub fn number(self) -> u8 {
        self.0
    }

    /// What may be plugged here.
    pub fn kind(self) -> SlotKind {
        match self.0 {
            0 => SlotKind::Root,
            1 => SlotKind::Vsock,
            2 => SlotKind::Rng,
            5 => SlotKind::Fs,
            3 => SlotKind::Mem,
            n if Self::NET.contains(&n) => SlotKind::Net,
            n if Self::BLK.contains(&n) => SlotKind::Blk,
            n if Self::PMEM.contains(&n) => SlotKind::Pmem,
            _ => SlotKind::Reserved,
        }
    }

    /// The I/O APIC pin (GSI) of its interrupt.
    pub fn irq(self) -> u32 {
        match self.kind() {
            SlotKind::Root | SlotKind::Pmem => Self::IRQ_PMEM,
            _ => Self::IRQ_FIRST + u32::from(self.0) - 1,
        }
    }

    /// All slots, in order.
    pub fn all() -> impl Iterator<Item = Slot> {
        (0..Self::COUNT).map(Slot)
    }

    /// All slots for network interfaces.
    pub fn nets() -> impl Iterator<Item = Slot> {
        Self::NET.map(Slot)
    }

    /// All slots for disks, the scratch disk's first.
    pub fn blks() -> impl Iterator<Item = Slot> {
        Self::BLK.map(Slot)
    }

    /// All slots for images.
    pub fn pmems() -> impl Iterator<Item = Slot> {
        Self::PMEM.map(Slot)
    }
}

impl TryFrom<u8> for Slot {
    type Error = String;

    fn try_from(number: u8) -> Result<Self, Self::Error> {
        Slot::new(number).ok_or_else(|| format!("slot {number} is beyond the table of {}", Self::COUNT))
    }
}

impl From<Slot> for u8 {
    fn from(slot: Slot) -> u8 {
        slot.0
    }
}

impl std::fmt::Display for Slot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn busy_slots_have_pins_of_their_own() {
        let mut pins: Vec<u32> = Slot::all()
            .filter(|s| !matches!(s.kind(), SlotKind::Root | SlotKind::Pmem))
            .map(Slot::irq)
            .collect();
        pins.push(Slot::ROOT.irq());
        let count = pins.len();
        pins.sort_unstable();
        pins.dedup();
        assert_eq!(pins.len(), count);
        assert!(pins.iter().all(|pin| (5..24).contains(pin)));
    }

    #[test]
    fn a_number_beyond_the_table_is_refused() {
        assert_eq!(Slot::new(Slot::COUNT), None);
        assert!(serde_json::from_str::<Slot>("200").is_err());
    }

    #[test]
    fn the_scratch_disk_is_the_first_disk_slot() {
        assert_eq!(Slot::blks().next(), Some(Slot::SCRATCH));
    }
}
