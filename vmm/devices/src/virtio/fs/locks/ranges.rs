//! The ranges of an owner's record locks on a file, as the host's kernel keeps them (fs/locks.c,
//! `posix_lock_inode`): neighbours of one kind are one range, and a range within another divides it. The
//! kernel has no bound for them, charges them to nobody, and walks through all of a file's at each request.
//! So they are counted here.

use std::collections::BTreeMap;

/// A locked range. Both ends are in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Range {
    start: u64,
    end: u64,
    exclusive: bool,
}

/// The ranges of an owner.
#[derive(Debug, Default)]
pub(in crate::virtio::fs) struct Ranges {
    by_start: BTreeMap<u64, Range>,
}

/// The difference that a request makes.
#[derive(Debug)]
pub(in crate::virtio::fs) struct Change {
    gone: Vec<u64>,
    new: Vec<Range>,
}

impl Change {
    /// Number of ranges more than before. Zero if there will be fewer.
    pub(in crate::virtio::fs) fn growth(&self) -> usize {
        self.new.len().saturating_sub(self.gone.len())
    }
}

impl Ranges {
    pub(in crate::virtio::fs) fn len(&self) -> usize {
        self.by_start.len()
    }

    /// Returns the change by a lock from `start` to `end`, or by an unlock if `exclusive` is `None`. `end` is
    /// at least `start` and below `u64::MAX`.
    pub(in crate::virtio::fs) fn change(&self, start: u64, end: u64, exclusive: Option<bool>) -> Change {
        let mut change = Change { gone: Vec::new(), new: Vec::new() };
        let mut whole = (start, end);
        let before = self.by_start.range(..start).next_back();
        let from = self.by_start.range(start..=end + 1);
        for range in before.into_iter().chain(from).map(|(_, range)| *range) {
            let overlaps = range.start <= end && range.end >= start;
            let touches = range.end + 1 >= start;
            if exclusive == Some(range.exclusive) && touches {
                whole = (whole.0.min(range.start), whole.1.max(range.end));
                change.gone.push(range.start);
            } else if overlaps {
                change.gone.push(range.start);
                if range.start < start {
                    change.new.push(Range { end: start - 1, ..range });
                }
                if range.end > end {
                    change.new.push(Range { start: end + 1, ..range });
                }
            }
        }
        let (start, end) = whole;
        change.new.extend(exclusive.map(|exclusive| Range { start, end, exclusive }));
        change
    }

    /// Makes a change that the host's kernel has made.
    pub(in crate::virtio::fs) fn apply(&mut self, change: &Change) {
        for start in &change.gone {
            self.by_start.remove(start);
        }
        self.by_start.extend(change.new.iter().map(|range| (range.start, *range)));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Bytes of the model.
    const BYTES: usize = 24;

    fn kind() -> impl Strategy<Value = Option<bool>> {
        prop_oneof![Just(None), Just(Some(false)), Just(Some(true))]
    }

    proptest! {
        #[test]
        fn ranges_are_the_runs_of_a_file_locked_byte_by_byte(
            requests in prop::collection::vec((0..BYTES, 0..BYTES, kind()), 1..40)
        ) {
            let (mut ranges, mut bytes) = (Ranges::default(), [None; BYTES]);
            for (one, other, kind) in requests {
                let (start, end) = (one.min(other), one.max(other));
                let (before, change) = (ranges.len(), ranges.change(start as u64, end as u64, kind));
                ranges.apply(&change);
                prop_assert_eq!(change.growth(), ranges.len().saturating_sub(before));
                bytes[start..=end].fill(kind);
                let mut runs: Vec<Range> = Vec::new();
                for (at, kind) in bytes.iter().enumerate() {
                    let (at, Some(exclusive)) = (at as u64, *kind) else { continue };
                    match runs.last_mut() {
                        Some(last) if last.end + 1 == at && last.exclusive == exclusive => last.end = at,
                        _ => runs.push(Range { start: at, end: at, exclusive }),
                    }
                }
                prop_assert_eq!(ranges.by_start.values().copied().collect::<Vec<_>>(), runs);
            }
        }
    }

    #[test]
    fn the_last_byte_of_the_largest_file_has_no_neighbour() {
        let end = i64::MAX as u64;
        let mut ranges = Ranges::default();
        for start in [end, 0] {
            ranges.apply(&ranges.change(start, end, Some(true)));
        }
        assert_eq!(ranges.len(), 1);
        ranges.apply(&ranges.change(5, end - 1, None));
        assert_eq!(ranges.len(), 2);
    }
}
