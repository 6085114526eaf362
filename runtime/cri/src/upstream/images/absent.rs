//! Images a side could not pull without credentials. Such an image counts as absent once, so that the
//! kubelet's next try brings the pod's own credentials. Pods of the other side have the image: one of them
//! may miss it, too, and its kubelet asks again.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::super::route::Side;

/// Most images remembered; the oldest is dropped first. A dropped one costs the kubelet one more failed try.
const IMAGES_MAX: usize = 256;

/// How long an image may count as absent. The kubelet's next try comes within seconds, and later ones within
/// five minutes.
const ABSENT_FOR: Duration = Duration::from_secs(120);

/// An image, with all of its names in their whole form.
#[derive(Debug)]
struct Missing {
    side: Side,
    names: Vec<String>,
    until: Instant,
}

/// The images absent on each side.
#[derive(Debug, Default)]
pub(in super::super) struct Absent(Mutex<VecDeque<Missing>>);

impl Absent {
    /// Counts the image as absent, under all of its names.
    pub(super) fn add(&self, side: Side, names: &[String]) {
        let names: Vec<String> = names.iter().map(|name| whole(name)).collect();
        let mut images = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        images.retain(|known| known.side != side || !shares(&known.names, &names));
        if images.len() == IMAGES_MAX {
            images.pop_front();
        }
        images.push_back(Missing { side, names, until: Instant::now() + ABSENT_FOR });
    }

    /// Returns true if a side lacks the image of this name. This uses the mark up.
    pub(super) fn take(&self, name: &str) -> bool {
        let (name, now) = (whole(name), Instant::now());
        let mut images = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        images.retain(|known| known.until > now);
        let before = images.len();
        images.retain(|known| !known.names.contains(&name));
        images.len() < before
    }

    /// Records the arrival of the image of these names on the side.
    pub(super) fn remove(&self, side: Side, names: &[String]) {
        let names: Vec<String> = names.iter().map(|name| whole(name)).collect();
        let mut images = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        images.retain(|known| known.side != side || !shares(&known.names, &names));
    }
}

/// The whole form of a name: a pod's author may have left out parts that the kubelet adds. An id stays as it
/// is.
fn whole(name: &str) -> String {
    runtime_image::whole_name(name).unwrap_or_else(|_| name.to_owned())
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
    fn an_image_is_absent_once() {
        let absent = Absent::default();
        absent.add(Side::Upstream, &names(&["sha256:1", "app"]));
        assert!(!absent.take("app:2"));
        assert!(absent.take("docker.io/library/app:latest"), "the kubelet asks by the whole name");
        assert!(!absent.take("app") && !absent.take("sha256:1"));
    }

    #[test]
    fn an_image_is_absent_until_the_side_that_lacked_it_has_got_it() {
        let absent = Absent::default();
        absent.add(Side::Upstream, &names(&["sha256:1", "app:1"]));
        absent.remove(Side::Ours, &names(&["app:1"]));
        assert!(absent.take("sha256:1"), "the other side has it all the same");
        absent.add(Side::Upstream, &names(&["sha256:1", "app:1"]));
        absent.remove(Side::Upstream, &names(&["app:1"]));
        assert!(!absent.take("app:1") && !absent.take("sha256:1"));
    }

    #[tokio::test(start_paused = true)]
    async fn an_image_that_nobody_asks_for_is_there_again_after_a_while() {
        let absent = Absent::default();
        absent.add(Side::Ours, &names(&["app:1"]));
        tokio::time::advance(ABSENT_FOR).await;
        assert!(!absent.take("app:1"));
    }

    #[test]
    fn the_list_does_not_grow_without_bound() {
        let absent = Absent::default();
        for number in 0..=IMAGES_MAX {
            absent.add(Side::Ours, &names(&[&format!("app:{number}")]));
        }
        assert!(!absent.take("app:0") && absent.take("app:1") && absent.take(&format!("app:{IMAGES_MAX}")));
        absent.add(Side::Ours, &names(&["app:7"]));
        assert_eq!(absent.0.lock().unwrap().len(), IMAGES_MAX - 2);
    }
}
