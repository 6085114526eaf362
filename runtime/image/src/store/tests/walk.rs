//! Random sequences of pulls, pods' uses and removals, with kills in between, compared with a model.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

#[derive(Clone, Debug)]
enum Act {
    Pull(usize),
    Remove(usize),
    Use(usize),
    Unuse(usize),
    Restart,
}

/// Images, each with its layers: some in common.
const IMAGES: [(char, &[char]); 4] = [('a', &['1', '2']), ('b', &['1', '3']), ('c', &['3']), ('d', &[])];

fn act() -> impl Strategy<Value = Act> {
    let image = || 0..IMAGES.len();
    prop_oneof![
        3 => image().prop_map(Act::Pull),
        3 => image().prop_map(Act::Remove),
        3 => image().prop_map(Act::Use),
        3 => image().prop_map(Act::Unuse),
        1 => Just(Act::Restart),
    ]
}

/// The images and layers required to exist: those of listed or used images.
fn wanted(listed: &BTreeSet<usize>, used: &[usize]) -> (usize, usize) {
    let images: BTreeSet<usize> = listed.iter().chain(used).copied().collect();
    let layers: BTreeSet<char> = images.iter().flat_map(|image| IMAGES[*image].1).copied().collect();
    (images.len(), 2 * layers.len())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]
    #[test]
    fn nothing_that_is_listed_or_used_is_lost_and_nothing_else_stays(
        acts in prop::collection::vec(act(), 1..20)
    ) {
        let directory = tempfile::tempdir().unwrap();
        let mut store = open(directory.path());
        let (mut listed, mut used, mut leases) = (BTreeSet::new(), Vec::new(), Vec::new());
        for act in acts {
            match act {
                Act::Pull(image) => {
                    let (digit, layers) = IMAGES[image];
                    let record = record(digit, &format!("{digit}:1"), layers);
                    match store.known(&record.id) {
                        Some(_) => drop(store.add(record).unwrap()),
                        None => make(&store, &record),
                    }
                    listed.insert(image);
                }
                Act::Remove(image) => {
                    store.remove(&id(IMAGES[image].0)).unwrap();
                    listed.remove(&image);
                }
                Act::Use(image) => {
                    let lease = store.lease(&id(IMAGES[image].0));
                    prop_assert_eq!(lease.is_some(), listed.contains(&image));
                    if let Some(lease) = lease {
                        used.push(image);
                        leases.push(lease);
                    }
                }
                Act::Unuse(image) => {
                    if let Some(at) = used.iter().position(|one| *one == image) {
                        used.remove(at);
                        drop(leases.remove(at));
                    }
                }
                Act::Restart => {
                    leases.drain(..).for_each(std::mem::forget);
                    store = Arc::new(Store::open(directory.path()).unwrap());
                    leases.extend(used.iter().map(|image| store.lease_again(&id(IMAGES[*image].0)).unwrap()));
                    store.users_are_known().unwrap();
                }
            }
            let (images, layers, _) = counts(&store);
            prop_assert_eq!((images, layers), wanted(&listed, &used));
            prop_assert_eq!(ids(&store).len(), listed.len());
            for (digit, _) in listed.iter().chain(&used).map(|image| IMAGES[*image]) {
                let index = store.state().index.clone();
                let record = store.known(&id(digit)).unwrap();
                prop_assert!(store.has_files(&index, &record));
            }
        }
        leases.into_iter().for_each(std::mem::forget);
    }
}
