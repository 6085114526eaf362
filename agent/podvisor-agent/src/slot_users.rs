//! Counts the containers using a slot. This module only counts. Its callers bind or mount for the first user,
//! and unbind or unmount after the last.

use std::collections::HashMap;

/// Users by slot.
#[derive(Debug, Default)]
pub(crate) struct SlotUsers(HashMap<u32, usize>);

impl SlotUsers {
    /// Returns true if the slot has users.
    pub(crate) fn has(&self, slot: u32) -> bool {
        self.0.contains_key(&slot)
    }

    /// Counts one user more.
    pub(crate) fn join(&mut self, slot: u32) {
        *self.0.entry(slot).or_default() += 1;
    }

    /// Counts one user less and returns false, unless it is the last. For the last user it returns true, and
    /// the slot stays in use: the caller takes down the slot's resources and then calls [`SlotUsers::clear`].
    /// False for a slot without users.
    pub(crate) fn leave(&mut self, slot: u32) -> bool {
        match self.0.get_mut(&slot) {
            Some(count) if *count > 1 => {
                *count -= 1;
                false
            }
            users => users.is_some(),
        }
    }

    /// Frees the slot of the last user.
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
