//! How many containers use what is in a slot. It counts; what the first brings up and the last takes down is
//! its callers' to do.

use std::collections::HashMap;

/// Users by slot.
#[derive(Debug, Default)]
pub(crate) struct SlotUsers(HashMap<u32, usize>);

impl SlotUsers {
    /// Whether the slot has users.
    pub(crate) fn has(&self, slot: u32) -> bool {
        self.0.contains_key(&slot)
    }

    /// One more.
    pub(crate) fn join(&mut self, slot: u32) {
        *self.0.entry(slot).or_default() += 1;
    }

    /// One less, unless it is the last: then this is true, and the slot stays in use until what it holds is taken
    /// down and [`SlotUsers::clear`] says so. A slot without users is nobody's to take down.
    pub(crate) fn leave(&mut self, slot: u32) -> bool {
        match self.0.get_mut(&slot) {
            Some(count) if *count > 1 => {
                *count -= 1;
                false
            }
            users => users.is_some(),
        }
    }

    /// The last one's slot is free.
    pub(crate) fn clear(&mut self, slot: u32) {
        self.0.remove(&slot);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_who_leaves_takes_down_and_may_try_again() {
        let mut users = SlotUsers::default();
        assert!(!users.has(3) && !users.leave(3));
        users.join(3);
        users.join(3);
        assert!(users.has(3) && !users.leave(3));
        assert!(users.leave(3) && users.leave(3));
        users.clear(3);
        assert!(!users.has(3) && !users.leave(3));
    }
}
