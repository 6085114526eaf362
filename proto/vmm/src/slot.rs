//! The fixed table of virtio-mmio slots. The guest learns it from its command line at boot. An empty slot
//! answers with device ID 0, and Linux leaves it unbound until the agent asks again.
//!
//! Every busy slot has its own interrupt pin as far as the pins go: the I/O APIC has 24, and pins 5 to 23 are
//! ours. The pmem slots hardly interrupt, so they share one. The slots for volumes share four, one of them
//! with the balloon.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::DeviceKind;

/// Number of a slot, `0..Slot::COUNT`. In the guest it is the platform device `virtio-mmio.<number>`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u8", into = "u8")]
pub struct Slot(u8);

/// A slot with a device in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilledSlot {
    /// The slot.
    pub slot: Slot,
    /// The device's kind.
    pub kind: DeviceKind,
    /// True if the guest can only read the device's content.
    pub read_only: bool,
    /// The device's bytes in the guest's address space, as for an image; 0 from a VMM that does not report
    /// them.
    #[serde(default)]
    pub bytes: u64,
}

/// The first version of the protocol with slots for volumes.
pub const VOLUME_SLOTS_VERSION: u32 = 3;

/// The table: slots by number, and the one kind of device for each. `None` reserves slots for future devices.
const TABLE: [(Range<u8>, Option<DeviceKind>); 11] = [
    // The guest's root image.
    (0..1, Some(DeviceKind::Pmem)),
    (1..2, Some(DeviceKind::Vsock)),
    (2..3, Some(DeviceKind::Rng)),
    (3..4, Some(DeviceKind::Mem)),
    (4..5, Some(DeviceKind::Balloon)),
    (5..6, Some(DeviceKind::Fs)),
    (6..7, None),
    (7..11, Some(DeviceKind::Net)),
    // The pod's scratch disk, then disks of the host.
    (11..17, Some(DeviceKind::Blk)),
    // Images of containers.
    (17..33, Some(DeviceKind::Pmem)),
    // Volumes of the pod.
    (VOLUMES, Some(DeviceKind::Blk)),
];

/// The slots for volumes. A kernel's command line has no room for many more slots.
const VOLUMES: Range<u8> = 33..Slot::COUNT;

/// Pins of the slots for volumes: two pins not used by any other slot, the balloon's because it seldom
/// interrupts, and the reserved slot's. Pods seldom have more than four such volumes.
const IRQS_VOLUMES: [u32; 4] = [22, 23, 8, 10];

impl Slot {
    /// Slots in the table.
    pub const COUNT: u8 = 39;
    /// The guest's root image.
    pub const ROOT: Slot = Slot(0);
    /// The vsock device.
    pub const VSOCK: Slot = Slot(1);
    /// The entropy device.
    pub const RNG: Slot = Slot(2);
    /// The balloon.
    pub const BALLOON: Slot = Slot(4);
    /// The pod's shared directory.
    pub const FS: Slot = Slot(5);
    /// The memory device.
    pub const MEM: Slot = Slot(3);
    /// The pod's scratch disk.
    pub const SCRATCH: Slot = Slot(11);

    /// Interrupt pin of slot 1; the following slots have the next ones.
    const IRQ_FIRST: u32 = 5;
    /// Pin shared by the root image and the pmem slots.
    const IRQ_PMEM: u32 = 21;

    /// Returns the slot with this number, or `None` beyond the table.
    pub fn new(number: u8) -> Option<Slot> {
        (number < Self::COUNT).then_some(Slot(number))
    }

    /// Returns the slot's number.
    pub fn number(self) -> u8 {
        self.0
    }

    /// Returns the kind of device for this slot; `None` for a reserved one.
    pub fn kind(self) -> Option<DeviceKind> {
        TABLE.iter().find(|(numbers, _)| numbers.contains(&self.0)).and_then(|(_, kind)| *kind)
    }

    /// Returns the I/O APIC pin (GSI) of the slot's interrupt.
    pub fn irq(self) -> u32 {
        match self.kind() {
            Some(DeviceKind::Pmem) => Self::IRQ_PMEM,
            _ if VOLUMES.contains(&self.0) => {
                IRQS_VOLUMES[usize::from(self.0 - VOLUMES.start) % IRQS_VOLUMES.len()]
            }
            _ => Self::IRQ_FIRST + u32::from(self.0) - 1,
        }
    }

    /// All slots, in order.
    pub fn all() -> impl Iterator<Item = Slot> {
        (0..Self::COUNT).map(Slot)
    }

    /// All slots for network interfaces.
    pub fn nets() -> impl Iterator<Item = Slot> {
        Self::for_kind(DeviceKind::Net)
    }

    /// All slots for the host's disks given to containers as devices.
    pub fn disks() -> impl Iterator<Item = Slot> {
        Self::for_kind(DeviceKind::Blk).filter(|slot| *slot != Self::SCRATCH && !slot.is_for_volume())
    }

    /// All slots for disks with volumes of the pod.
    pub fn volumes() -> impl Iterator<Item = Slot> {
        VOLUMES.map(Slot)
    }

    fn is_for_volume(self) -> bool {
        VOLUMES.contains(&self.0)
    }

    /// Returns the first version of the protocol with this slot.
    pub fn version(self) -> u32 {
        if self.is_for_volume() { VOLUME_SLOTS_VERSION } else { 1 }
    }

    /// All slots for images but the guest's root.
    pub fn pmems() -> impl Iterator<Item = Slot> {
        Self::for_kind(DeviceKind::Pmem).filter(|slot| *slot != Self::ROOT)
    }

    fn for_kind(kind: DeviceKind) -> impl Iterator<Item = Slot> {
        Self::all().filter(move |slot| slot.kind() == Some(kind))
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
        let shares = |slot: &Slot| {
            slot.kind() == Some(DeviceKind::Pmem) || slot.is_for_volume() || *slot == Slot::BALLOON
        };
        let mut pins: Vec<u32> =
            Slot::all().filter(|slot| !shares(slot) && slot.kind().is_some()).map(Slot::irq).collect();
        pins.push(Slot::ROOT.irq());
        pins.extend(Slot::volumes().take(IRQS_VOLUMES.len()).map(Slot::irq));
        let count = pins.len();
        pins.sort_unstable();
        pins.dedup();
        assert_eq!(pins.len(), count);
        assert!(Slot::all().all(|slot| (5..24).contains(&slot.irq())));
    }

    #[test]
    fn volumes_have_slots_that_an_older_vmm_lacks() {
        assert_eq!(Slot::volumes().count(), 6);
        assert!(Slot::volumes().all(|slot| slot.kind() == Some(DeviceKind::Blk) && slot.version() == 3));
        assert!(Slot::disks().chain(Slot::pmems()).chain([Slot::SCRATCH]).all(|slot| slot.version() == 1));
    }

    #[test]
    fn the_table_has_each_slot_once_and_those_with_names_where_they_belong() {
        let numbers: Vec<u8> = TABLE.iter().flat_map(|(numbers, _)| numbers.clone()).collect();
        assert_eq!(numbers, (0..Slot::COUNT).collect::<Vec<_>>());
        let named = [Slot::ROOT, Slot::VSOCK, Slot::RNG, Slot::MEM, Slot::BALLOON, Slot::FS, Slot::SCRATCH];
        let expected = [
            DeviceKind::Pmem,
            DeviceKind::Vsock,
            DeviceKind::Rng,
            DeviceKind::Mem,
            DeviceKind::Balloon,
            DeviceKind::Fs,
            DeviceKind::Blk,
        ];
        assert_eq!(named.map(Slot::kind), expected.map(Some));
        assert_eq!((Slot::nets().count(), Slot::disks().count(), Slot::pmems().count()), (4, 5, 16));
    }

    #[test]
    fn a_number_beyond_the_table_is_refused() {
        assert_eq!(Slot::new(Slot::COUNT), None);
        assert!(serde_json::from_str::<Slot>("200").is_err());
    }

    #[test]
    fn the_slots_of_containers_disks_follow_the_scratch_disks() {
        assert_eq!(Slot::disks().next().map(Slot::number), Some(Slot::SCRATCH.number() + 1));
    }
}
