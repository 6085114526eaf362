//! Which image is plugged into which of a machine's slots, and how many containers use it.
//!
//! Pure. An image that nobody uses stays plugged, so that a container which is made again starts
//! faster; it makes room only when all slots are taken.

use std::collections::BTreeMap;

use vmm_api::Slot;

/// The ledger of one machine.
#[derive(Debug, Default)]
pub(crate) struct ImageSlots {
    held: BTreeMap<Slot, Held>,
}

#[derive(Debug)]
struct Held {
    image: String,
    users: usize,
}

/// Where an image goes, and what to do for it first.
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

impl ImageSlots {
    /// Where `image` would go; `None` when every slot holds another image in use. Changes nothing.
    pub(crate) fn find(&self, image: &str) -> Option<Claim> {
        if let Some((slot, _)) = self.held.iter().find(|(_, held)| held.image == image) {
            return Some(Claim::Plugged(*slot));
        }
        if let Some(slot) = Slot::pmems().find(|slot| !self.held.contains_key(slot)) {
            return Some(Claim::Plug(slot));
        }
        let unused = self.held.iter().find(|(_, held)| held.users == 0);
        unused.map(|(slot, _)| Claim::Replace(*slot))
    }

    /// Counts one more user of `image`, which is in `slot` now.
    pub(crate) fn hold(&mut self, slot: Slot, image: &str) {
        let held = self.held.entry(slot).or_insert_with(|| Held { image: image.to_owned(), users: 0 });
        debug_assert_eq!(held.image, image, "one slot holds one image");
        held.users += 1;
    }

    /// One user less. The image stays.
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
        let mut slots = ImageSlots::default();
        let Some(Claim::Plug(slot)) = slots.find("a") else { panic!("an empty slot") };
        slots.hold(slot, "a");
        assert_eq!(slots.find("a"), Some(Claim::Plugged(slot)));
        assert_ne!(slots.find("b").unwrap().slot(), slot);
    }

    #[test]
    fn an_unused_image_stays_until_its_slot_is_needed() {
        let mut slots = ImageSlots::default();
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
            let mut slots = ImageSlots::default();
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
