//! Which image or disk is plugged into which of a machine's slots, and how many containers use it.
//!
//! Pure. An image that nobody uses stays plugged, so that a container which is made again starts
//! faster; it makes room only when all slots are taken. A disk that nobody uses is to be unplugged.

use std::collections::BTreeMap;

use proto_vmm::Slot;

/// The ledger of one machine's slots of a kind.
#[derive(Debug)]
pub(crate) struct DeviceSlots {
    slots: Vec<Slot>,
    held: BTreeMap<Slot, Held>,
}

#[derive(Debug)]
struct Held {
    what: String,
    users: usize,
}

/// Where an image or disk goes, and what to do for it first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Claim {
    /// It is there.
    Plugged(Slot),
    /// Plug it into this empty slot.
    Plug(Slot),
    /// Unplug what nobody uses from this slot, then plug it.
    Replace(Slot),
}

impl Claim {
    pub(crate) fn slot(self) -> Slot {
        match self {
            Claim::Plugged(slot) | Claim::Plug(slot) | Claim::Replace(slot) => slot,
        }
    }
}

impl DeviceSlots {
    /// For images.
    pub(crate) fn images() -> DeviceSlots {
        DeviceSlots { slots: Slot::pmems().collect(), held: BTreeMap::new() }
    }

    /// For disks of containers.
    pub(crate) fn disks() -> DeviceSlots {
        let slots = Slot::blks().filter(|slot| *slot != Slot::SCRATCH).collect();
        DeviceSlots { slots, held: BTreeMap::new() }
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.slots.len()
    }

    /// Slots with something that nobody uses.
    pub(crate) fn unused(&self) -> Vec<Slot> {
        self.held.iter().filter(|(_, held)| held.users == 0).map(|(slot, _)| *slot).collect()
    }

    /// Whether somebody uses it.
    pub(crate) fn holds(&self, what: &str) -> bool {
        self.held.values().any(|held| held.what == what && held.users > 0)
    }

    /// Where `what` would go; `None` when every slot holds something else in use. Changes nothing.
    pub(crate) fn find(&self, what: &str) -> Option<Claim> {
        if let Some((slot, _)) = self.held.iter().find(|(_, held)| held.what == what) {
            return Some(Claim::Plugged(*slot));
        }
        if let Some(slot) = self.slots.iter().copied().find(|slot| !self.held.contains_key(slot)) {
            return Some(Claim::Plug(slot));
        }
        let unused = self.held.iter().find(|(_, held)| held.users == 0);
        unused.map(|(slot, _)| Claim::Replace(*slot))
    }

    /// Counts one more user of `what`, which is in `slot` now.
    pub(crate) fn hold(&mut self, slot: Slot, what: &str) {
        let held = self.held.entry(slot).or_insert_with(|| Held { what: what.to_owned(), users: 0 });
        debug_assert_eq!(held.what, what, "one slot holds one device");
        held.users += 1;
    }

    /// One user less. What it is stays.
    pub(crate) fn release(&mut self, slot: Slot) {
        if let Some(held) = self.held.get_mut(&slot) {
            held.users = held.users.saturating_sub(1);
        }
    }

    /// The slot is empty now.
    pub(crate) fn emptied(&mut self, slot: Slot) {
        self.held.remove(&slot);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn one_image_takes_one_slot_for_all_its_users() {
        let mut slots = DeviceSlots::images();
        let Some(Claim::Plug(slot)) = slots.find("a") else { panic!("an empty slot") };
        slots.hold(slot, "a");
        assert_eq!(slots.find("a"), Some(Claim::Plugged(slot)));
        assert_ne!(slots.find("b").unwrap().slot(), slot);
    }

    #[test]
    fn an_unused_image_stays_until_its_slot_is_needed() {
        let mut slots = DeviceSlots::images();
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

    proptest! {
        /// Whatever comes and goes: an image in use is never replaced, and no slot holds two.
        #[test]
        fn an_image_in_use_is_never_given_away(steps in prop::collection::vec((0usize..24, any::<bool>()), 0..200)) {
            let mut slots = DeviceSlots::images();
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
