//! The record of a region's plugged blocks. Pure.

use super::BLOCK_BYTES;

/// The state of a range of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Plugged {
    All,
    None,
    Some,
}

/// A bit for each block of a region.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Blocks {
    plugged: Vec<bool>,
    count: u64,
}

impl Blocks {
    /// Returns the blocks of a region of `length` bytes, none of them plugged.
    pub(super) fn new(length: u64) -> Blocks {
        let blocks = usize::try_from(length / BLOCK_BYTES).unwrap_or(usize::MAX);
        Blocks { plugged: vec![false; blocks], count: 0 }
    }

    /// Bytes plugged.
    pub(super) fn plugged_bytes(&self) -> u64 {
        self.count * BLOCK_BYTES
    }

    /// Returns the state of the blocks at these offsets; `None` if some are beyond the region.
    pub(super) fn state(&self, first: usize, count: usize) -> Option<Plugged> {
        let blocks = self.plugged.get(first..first.checked_add(count)?)?;
        let plugged = blocks.iter().filter(|plugged| **plugged).count();
        Some(match plugged {
            0 => Plugged::None,
            all if all == blocks.len() => Plugged::All,
            _ => Plugged::Some,
        })
    }

    /// Marks blocks known to [`state`](Self::state).
    pub(super) fn set(&mut self, first: usize, count: usize, plugged: bool) {
        for block in self.plugged.iter_mut().skip(first).take(count) {
            if *block != plugged {
                *block = plugged;
                self.count = if plugged { self.count + 1 } else { self.count - 1 };
            }
        }
    }

    /// Returns the plugged ranges as (first block, blocks), in order.
    pub(super) fn runs(&self) -> Vec<(usize, usize)> {
        let mut runs: Vec<(usize, usize)> = Vec::new();
        for (index, _) in self.plugged.iter().enumerate().filter(|(_, plugged)| **plugged) {
            match runs.last_mut() {
                Some((first, count)) if *first + *count == index => *count += 1,
                _ => runs.push((index, 1)),
            }
        }
        runs
    }

    /// Returns the plugged ranges as (offset, length) in bytes, in order.
    pub(super) fn places(&self) -> Vec<(u64, u64)> {
        let bytes = |(first, count)| (first as u64 * BLOCK_BYTES, count as u64 * BLOCK_BYTES);
        self.runs().into_iter().map(bytes).collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_book_counts_what_its_runs_have(changes in proptest::collection::vec((0usize..40, 0usize..40, any::<bool>()), 0..40)) {
            let mut blocks = Blocks::new(32 * BLOCK_BYTES);
            for (first, count, plugged) in changes {
                match blocks.state(first, count) {
                    Some(_) => {
                        blocks.set(first, count, plugged);
                        let wanted = if plugged { Plugged::All } else { Plugged::None };
                        prop_assert!(count == 0 || blocks.state(first, count) == Some(wanted));
                    }
                    None => prop_assert!(first + count > 32),
                }
            }
            let runs = blocks.runs();
            let total: usize = runs.iter().map(|(_, count)| count).sum();
            prop_assert_eq!(total as u64 * BLOCK_BYTES, blocks.plugged_bytes());
            for (first, count) in runs {
                prop_assert_eq!(blocks.state(first, count), Some(Plugged::All));
            }
        }
    }
}
