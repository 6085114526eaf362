//! Images a side could not pull without credentials. Such an image counts as absent until the side has pulled
//! it, so that the kubelet's next try brings the pod's own credentials.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use super::super::route::Side;

/// Most images remembered; the oldest is dropped first. A dropped one costs the kubelet one more failed try.
const IMAGES_MAX: usize = 256;

/// The images absent on each side.
#[derive(Debug, Default)]
pub(in super::super) struct Absent(Mutex<VecDeque<(Side, Vec<String>)>>);

impl Absent {
    /// Counts the image as absent, under all of its names.
    pub(super) fn add(&self, side: Side, names: Vec<String>) {
        let mut images = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        images.retain(|(of, known)| *of != side || !shares(known, &names));
        if images.len() == IMAGES_MAX {
            images.pop_front();
        }
        images.push_back((side, names));
    }

    /// Returns true if a side lacks the image of this name.
    pub(super) fn has(&self, name: &str) -> bool {
        let images = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        images.iter().any(|(_, names)| names.iter().any(|known| known == name))
    }

    /// Records the arrival of the image of these names on the side.
    pub(super) fn remove(&self, side: Side, names: &[String]) {
        let mut images = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        images.retain(|(of, known)| *of != side || !shares(known, names));
    }
}

fn shares(some: &[String], others: &[String]) -> bool {
    some.iter().any(|name| others.contains(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn an_image_is_absent_until_the_side_that_lacked_it_has_got_it() {
        let absent = Absent::default();
        absent.add(Side::Upstream, names(&["sha256:1", "app:1"]));
        assert!(absent.has("app:1") && absent.has("sha256:1") && !absent.has("app:2"));
        absent.remove(Side::Ours, &names(&["app:1"]));
        assert!(absent.has("app:1"), "the other side has it all the same");
        absent.remove(Side::Upstream, &names(&["app:1"]));
        assert!(!absent.has("app:1") && !absent.has("sha256:1"));
    }

    #[test]
    fn the_list_does_not_grow_without_bound() {
        let absent = Absent::default();
        for number in 0..=IMAGES_MAX {
            absent.add(Side::Ours, names(&[&number.to_string()]));
        }
        assert!(!absent.has("0") && absent.has("1") && absent.has(&IMAGES_MAX.to_string()));
        absent.add(Side::Ours, names(&["1"]));
        assert_eq!(absent.0.lock().unwrap().len(), IMAGES_MAX);
    }
}
