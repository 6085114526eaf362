//! Parts of a pool, one for each owner of work. An owner whose work hangs leaves the other places to others.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio::sync::Semaphore;

use crate::Pool;

/// Parts of a pool, each with a bounded number of its places.
#[derive(Debug)]
pub struct Parts {
    outer: Arc<Pool>,
    waits_for: &'static str,
    places_max: usize,
    /// The places of each owner with work. Work keeps its owner's places.
    places: Mutex<HashMap<String, Weak<Semaphore>>>,
}

impl Parts {
    /// Parts of `pool` with at most `places_max` threads each. `waits_for` names the thing that may hang for
    /// one owner.
    #[must_use]
    pub fn new(pool: Pool, waits_for: &'static str, places_max: usize) -> Parts {
        Parts { outer: Arc::new(pool), waits_for, places_max, places: Mutex::default() }
    }

    /// The part of this owner. All its parts have the same places.
    #[must_use]
    pub fn of(&self, owner: &str) -> Pool {
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        let known = places.get(owner).and_then(Weak::upgrade);
        let own = known.unwrap_or_else(|| {
            places.retain(|_, places| places.strong_count() > 0);
            let own = Arc::new(Semaphore::new(self.places_max));
            places.insert(owner.to_owned(), Arc::downgrade(&own));
            own
        });
        Pool {
            waits_for: self.waits_for,
            places_max: self.places_max,
            places: own,
            outer: Some(self.outer.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;

    fn parts(outer: usize, each: usize) -> Parts {
        Parts::new(Pool::new("all files", outer), "one's files", each)
    }

    /// Work that hangs until the sender is dropped.
    fn hang(part: Pool) -> mpsc::Sender<()> {
        let (thaw, frozen) = mpsc::channel();
        let (begin, begun) = mpsc::channel();
        tokio::spawn(async move {
            let work = move || (begin.send(()), frozen.recv());
            part.run(work).await
        });
        tokio::task::block_in_place(|| begun.recv()).unwrap();
        thaw
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn an_owner_whose_work_hangs_leaves_places_to_others() {
        let parts = parts(4, 2);
        let hanging = [hang(parts.of("stuck")), hang(parts.of("stuck"))];
        let stuck = parts.of("stuck");
        let late = tokio::time::timeout(Duration::from_millis(50), stuck.run(|| 7)).await;
        assert!(late.is_err(), "both of its places are taken");
        assert_eq!(parts.of("other").run(|| 7).await.unwrap(), 7);
        drop(hanging);
        assert_eq!(parts.of("stuck").run(|| 7).await.unwrap(), 7);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn all_owners_together_have_the_places_of_the_pool() {
        let parts = parts(2, 2);
        let _hanging = [hang(parts.of("a")), hang(parts.of("b"))];
        let third = parts.of("c");
        assert!(tokio::time::timeout(Duration::from_millis(50), third.run(|| 7)).await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn a_full_part_is_an_error_that_names_it() {
        let parts = parts(2, 1);
        let _taken = parts.of("a").place().await;
        let error = parts.of("a").run(|| 7).await.unwrap_err();
        assert_eq!(error.to_string(), "all 1 threads for one's files have been waiting for 30 s");
        let _other = parts.of("b").place().await;
        let error = parts.of("c").run(|| 7).await.unwrap_err();
        assert_eq!(error.to_string(), "all 2 threads for all files have been waiting for 30 s");
    }

    #[tokio::test]
    async fn owners_without_work_are_forgotten() {
        let parts = parts(2, 1);
        for owner in 0..100 {
            parts.of(&owner.to_string()).run(|| 7).await.unwrap();
        }
        assert!(parts.places.lock().unwrap().len() <= 1);
    }
}
