//! Chains taken off a queue in advance, for frames to come.
//!
//! A place is used again when its chain is done, so a frame costs no allocation and no move of a place's
//! content. There are as many places as were ever held at once.

use crate::virtio::chain::Chain;
use crate::virtio::ring::Taken;

/// A held chain.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) taken: Taken,
    pub(super) chain: Chain,
    /// Buffers in the chain.
    pub(super) segments: usize,
}

/// The held chains, in order: `count` of the places from `first` on, in a ring.
#[derive(Debug, Default)]
pub(super) struct HeldChains {
    places: Vec<Held>,
    first: usize,
    count: usize,
}

impl HeldChains {
    pub(super) fn len(&self) -> usize {
        self.count
    }

    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns the held chains, the longest held first.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Held> {
        let (before, from_first) = self.places.split_at(self.first);
        from_first.iter().chain(before).take(self.count)
    }

    /// Fills the next place by `take`, and holds the chain if `take` returns true.
    pub(super) fn push(&mut self, take: impl FnOnce(&mut Held) -> bool) -> bool {
        if self.count == self.places.len() {
            self.places.rotate_left(self.first);
            self.first = 0;
            let taken = Taken { head: 0, fault: None };
            self.places.push(Held { taken, chain: Chain::default(), segments: 0 });
        }
        let behind = self.first + self.count;
        let place = if behind < self.places.len() { behind } else { behind - self.places.len() };
        let holds = take(&mut self.places[place]);
        self.count += usize::from(holds);
        holds
    }

    /// Releases the longest held chain.
    pub(super) fn pop(&mut self) -> Option<&Held> {
        let count = self.count.checked_sub(1)?;
        let place = self.first;
        self.first = if place + 1 < self.places.len() { place + 1 } else { 0 };
        self.count = count;
        self.places.get(place)
    }

    /// Releases all.
    pub(super) fn clear(&mut self) {
        self.count = 0;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    fn push(held: &mut HeldChains, head: u16) {
        held.push(|held| {
            held.taken.head = head;
            true
        });
    }

    #[test]
    fn a_place_that_was_not_filled_is_not_held() {
        let mut held = HeldChains::default();
        assert!(!held.push(|_| false));
        assert!(held.is_empty() && held.pop().is_none());
    }

    #[test]
    fn places_serve_again() {
        let mut held = HeldChains::default();
        for head in 0..100 {
            push(&mut held, head);
            push(&mut held, head);
            held.pop();
            held.pop();
        }
        assert_eq!(held.places.len(), 2);
    }

    proptest! {
        #[test]
        fn chains_leave_in_the_order_in_which_they_came(steps in proptest::collection::vec(0u8..8, 0..200)) {
            let (mut held, mut model) = (HeldChains::default(), VecDeque::new());
            for (head, step) in (0u16..).zip(steps) {
                match step {
                    0 => {
                        held.clear();
                        model.clear();
                    }
                    1..4 => prop_assert_eq!(held.pop().map(|held| held.taken.head), model.pop_front()),
                    _ => {
                        push(&mut held, head);
                        model.push_back(head);
                    }
                }
                prop_assert_eq!(held.len(), model.len());
                prop_assert!(held.iter().map(|held| held.taken.head).eq(model.iter().copied()));
            }
        }
    }
}
