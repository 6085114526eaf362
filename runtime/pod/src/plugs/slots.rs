//! The devices in a VM's slots, and how many containers use each.
//!
//! Pure. An unused image stays plugged, so a recreated container starts faster. Such an image makes room only
//! when all slots are taken. An unused disk is to be unplugged. A slot may be filled with a device without a
//! record, left by a killed daemon: it has no users, and its slot is emptied before the next use.

use std::collections::BTreeMap;

use proto_vmm::{FilledSlot, Slot};

/// The slots of one kind in a VM.
#[derive(Clone, Debug)]
pub(crate) struct SlotTable {
    slots: Vec<Slot>,
    held: BTreeMap<Slot, Held>,
}

#[derive(Clone, Debug)]
struct Held {
    /// The device's name; `None` for a device without a record.
    device: Option<String>,
    users: usize,
    /// Bytes of the guest's address space taken by the device, as far as known.
    bytes: u64,
}

/// A device's slot, and the necessary preparation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Claim {
    /// The device is plugged into this slot.
    Plugged(Slot),
    /// Plug it into this empty slot.
    Plug(Slot),
    /// Unplug the unused device from this slot, then plug it.
    Replace(Slot),
}

impl Claim {
    pub(crate) fn slot(self) -> Slot {
        match self {
            Claim::Plugged(slot) | Claim::Plug(slot) | Claim::Replace(slot) => slot,
        }
    }
}

impl SlotTable {
    /// Slots for images.
    pub(crate) fn images() -> SlotTable {
        SlotTable { slots: Slot::pmems().collect(), held: BTreeMap::new() }
    }

    /// Slots for disks of containers.
    pub(crate) fn disks() -> SlotTable {
        SlotTable { slots: Slot::disks().collect(), held: BTreeMap::new() }
    }

    /// How many slots there are.
    pub(crate) fn count(&self) -> usize {
        self.slots.len()
    }

    /// Slots with an unused device of known name, each with the name.
    pub(crate) fn unused_with_names(&self) -> Vec<(Slot, String)> {
        let unused = self.held.iter().filter(|(_, held)| held.users == 0);
        unused.filter_map(|(slot, held)| Some((*slot, held.device.clone()?))).collect()
    }

    /// Whether the slot has a device, as far as known.
    pub(crate) fn is_filled(&self, slot: Slot) -> bool {
        self.held.contains_key(&slot)
    }

    /// Slots with an unused device.
    pub(crate) fn unused(&self) -> Vec<Slot> {
        self.held.iter().filter(|(_, held)| held.users == 0).map(|(slot, _)| *slot).collect()
    }

    /// Whether the device has a user.
    pub(crate) fn is_used(&self, device: &str) -> bool {
        self.held.values().any(|held| held.users > 0 && held.device.as_deref() == Some(device))
    }

    /// The device's possible slot; `None` if every slot holds something else in use. Changes nothing.
    pub(crate) fn find(&self, device: &str) -> Option<Claim> {
        if let Some((slot, _)) = self.held.iter().find(|(_, held)| held.device.as_deref() == Some(device)) {
            return Some(Claim::Plugged(*slot));
        }
        if let Some(slot) = self.slots.iter().copied().find(|slot| !self.held.contains_key(slot)) {
            return Some(Claim::Plug(slot));
        }
        let mut unused = self.held.iter().filter(|(_, held)| held.users == 0);
        // A nameless device is useless, but an unused image may be requested again.
        let nameless = unused.clone().find(|(_, held)| held.device.is_none());
        nameless.or_else(|| unused.next()).map(|(slot, _)| Claim::Replace(*slot))
    }

    /// Counts one more user of the device, now in `slot`.
    pub(crate) fn hold(&mut self, slot: Slot, device: &str) {
        let held = self.held.entry(slot).or_insert_with(|| Held {
            device: Some(device.to_owned()),
            users: 0,
            bytes: 0,
        });
        debug_assert_eq!(held.device.as_deref(), Some(device), "one slot holds one device");
        held.users += 1;
    }

    /// Notes how large the device in the slot is.
    pub(crate) fn set_bytes(&mut self, slot: Slot, bytes: u64) {
        if let Some(held) = self.held.get_mut(&slot) {
            held.bytes = bytes;
        }
    }

    /// Bytes of all devices together, including unused ones.
    pub(crate) fn bytes(&self) -> u64 {
        self.held.values().map(|held| held.bytes).fold(0, u64::saturating_add)
    }

    /// Bytes of all devices after adding these, each with its name and size, in this order. A device without
    /// a free slot does not count.
    pub(crate) fn bytes_with<'a>(&self, devices: impl IntoIterator<Item = (&'a str, u64)>) -> u64 {
        let mut table = self.clone();
        for (device, bytes) in devices {
            let Some(claim) = table.find(device) else { continue };
            if let Claim::Replace(slot) = claim {
                table.emptied(slot);
            }
            table.hold(claim.slot(), device);
            if claim != Claim::Plugged(claim.slot()) {
                table.set_bytes(claim.slot(), bytes);
            }
        }
        table.bytes()
    }

    /// Counts one user less. The device stays.
    pub(crate) fn release(&mut self, slot: Slot) {
        if let Some(held) = self.held.get_mut(&slot) {
            held.users = held.users.saturating_sub(1);
        }
    }

    /// Notes the slot as empty.
    pub(crate) fn emptied(&mut self, slot: Slot) {
        self.held.remove(&slot);
    }

    /// Compares the table with the slots filled in the VMM, and stores the sizes from its answer. An extra
    /// filled slot there holds an unnamed device from now on. Returns the slots filled in the table but not
    /// in the VMM.
    pub(crate) fn compare(&mut self, filled: &[FilledSlot]) -> Vec<Slot> {
        for filled in filled.iter().filter(|filled| self.slots.contains(&filled.slot)) {
            let held = self.held.entry(filled.slot).or_insert(Held { device: None, users: 0, bytes: 0 });
            // A VMM of an earlier version does not report it.
            held.bytes = held.bytes.max(filled.bytes);
        }
        let is_filled = |slot: &Slot| filled.iter().any(|filled| filled.slot == *slot);
        self.held.keys().filter(|slot| !is_filled(slot)).copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use proto_vmm::DeviceKind;

    use super::*;

    fn filled(slot: Slot, bytes: u64) -> FilledSlot {
        FilledSlot { slot, kind: DeviceKind::Pmem, read_only: true, bytes }
    }

    #[test]
    fn the_size_of_what_is_to_come_counts_each_image_once_and_no_image_that_goes_for_it() {
        let mut slots = SlotTable::images();
        let all: Vec<Slot> = Slot::pmems().collect();
        for slot in &all {
            slots.hold(*slot, &format!("image{slot}"));
            slots.set_bytes(*slot, 10);
        }
        let full = 10 * all.len() as u64;
        assert_eq!(slots.bytes_with([("new", 100)]), full, "there is no slot for it");
        slots.release(all[3]);
        assert_eq!(slots.bytes_with([("new", 100), ("new", 100)]), full + 90);
        assert_eq!(slots.bytes_with([(format!("image{}", all[3]).as_str(), 10), ("new", 100)]), full);
        slots.emptied(all[3]);
        assert_eq!((slots.bytes(), slots.bytes_with([("new", 100)])), (full - 10, full + 90));
    }

    #[test]
    fn one_image_takes_one_slot_for_all_its_users() {
        let mut slots = SlotTable::images();
        let Some(Claim::Plug(slot)) = slots.find("a") else { panic!("an empty slot") };
        slots.hold(slot, "a");
        assert_eq!(slots.find("a"), Some(Claim::Plugged(slot)));
        assert_ne!(slots.find("b").unwrap().slot(), slot);
    }

    #[test]
    fn an_unused_image_stays_until_its_slot_is_needed() {
        let mut slots = SlotTable::images();
        let images: Vec<String> = (0..Slot::pmems().count()).map(|i| format!("image{i}")).collect();
        for image in &images {
            let slot = slots.find(image).unwrap().slot();
            slots.hold(slot, image);
        }
        assert_eq!(slots.find("new"), None);
        let third = slots.find(&images[3]).unwrap().slot();
        slots.release(third);
        assert_eq!(slots.find(&images[3]), Some(Claim::Plugged(third)));
        assert_eq!(slots.find("new"), Some(Claim::Replace(third)));
        slots.emptied(third);
        assert_eq!(slots.find("new"), Some(Claim::Plug(third)));
    }

    #[test]
    fn a_slot_that_only_the_vmm_knows_is_filled_is_replaced_before_any_image() {
        let mut slots = SlotTable::images();
        let all: Vec<Slot> = Slot::pmems().collect();
        for slot in &all[1..] {
            slots.hold(*slot, &format!("image{slot}"));
            slots.release(*slot);
        }
        assert_eq!(slots.find("new"), Some(Claim::Plug(all[0])));
        assert_eq!(slots.compare(&all.iter().map(|slot| filled(*slot, 4096)).collect::<Vec<_>>()), []);
        assert_eq!(slots.bytes(), 4096 * all.len() as u64);
        assert_eq!(slots.find("new"), Some(Claim::Replace(all[0])));
        assert!(slots.unused().contains(&all[0]));
    }

    #[test]
    fn a_slot_that_only_the_table_has_filled_is_returned_and_foreign_slots_are_passed_over() {
        let mut slots = SlotTable::images();
        let first = Slot::pmems().next().unwrap();
        slots.hold(first, "a");
        assert_eq!(slots.compare(&[filled(Slot::ROOT, 7), filled(Slot::SCRATCH, 0)]), [first]);
        assert_eq!(slots.bytes(), 0);
        assert!(slots.unused().is_empty());
    }

    proptest! {
        /// With any coming and going: an image in use is never replaced, and no slot holds two.
        #[test]
        fn an_image_in_use_is_never_given_away(steps in prop::collection::vec((0usize..24, any::<bool>()), 0..200)) {
            let mut slots = SlotTable::images();
            let mut users: Vec<(usize, Slot)> = Vec::new();
            for (image, come) in steps {
                let name = format!("image{image}");
                if come {
                    let Some(claim) = slots.find(&name) else { continue };
                    if let Claim::Replace(slot) = claim {
                        prop_assert!(users.iter().all(|(_, used)| *used != slot));
                        slots.emptied(slot);
                    }
                    prop_assert!(users.iter().all(|(other, slot)| *other == image || *slot != claim.slot()));
                    slots.hold(claim.slot(), &name);
                    users.push((image, claim.slot()));
                } else if let Some(at) = users.iter().position(|(user, _)| *user == image) {
                    slots.release(users.swap_remove(at).1);
                }
            }
        }
    }
}
