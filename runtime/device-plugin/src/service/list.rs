//! A watched list, sent at once and after each change. A watcher that does not read costs only one list: the
//! next one it takes holds all later changes.

use futures::{Stream, stream};
use tokio::sync::watch;
use tonic::Status;

use crate::devices::{Devices, Usable};

/// A place among the watchers, given back when dropped.
#[derive(Debug)]
pub(super) struct Watcher {
    watchers: watch::Sender<usize>,
}

impl Watcher {
    /// Takes a place. `None` if there are `max` watchers already.
    pub(super) fn new(watchers: &watch::Sender<usize>, max: usize) -> Option<Watcher> {
        let taken = watchers.send_if_modified(|count| {
            let free = *count < max;
            *count += usize::from(free);
            free
        });
        taken.then(|| Watcher { watchers: watchers.clone() })
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.watchers.send_modify(|count| *count -= 1);
    }
}

/// Returns the lists, made by `list`, until `stopping` is set.
pub(super) fn lists<L>(
    devices: Devices,
    mut usable: watch::Receiver<Usable>,
    stopping: watch::Receiver<bool>,
    watcher: Watcher,
    list: fn(Devices, &Usable) -> L,
) -> impl Stream<Item = Result<L, Status>> {
    usable.mark_changed();
    stream::unfold((usable, stopping, watcher), move |(mut usable, mut stopping, watcher)| async move {
        let next = tokio::select! {
            biased;
            // An error means a vanished server. The list ends then, too.
            _ = stopping.wait_for(|stopping| *stopping) => None,
            changed = usable.changed() => changed.ok(),
        };
        next?;
        let sent = list(devices, &usable.borrow_and_update());
        Some((Ok(sent), (usable, stopping, watcher)))
    })
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use futures::StreamExt;

    use super::*;

    #[tokio::test]
    async fn a_list_comes_at_once_after_each_change_and_ends_with_the_plugin() {
        let (usable, stopping, watchers) =
            (watch::Sender::new(Usable::All), watch::Sender::new(false), watch::Sender::new(0));
        let watcher = Watcher::new(&watchers, 1).unwrap();
        assert!(Watcher::new(&watchers, 1).is_none());
        let shown = |_: Devices, usable: &Usable| usable.clone();
        let devices = Devices { count: 1 };
        {
            let mut lists = pin!(lists(devices, usable.subscribe(), stopping.subscribe(), watcher, shown));
            assert_eq!(lists.next().await.unwrap().unwrap(), Usable::All);
            usable.send_replace(Usable::None);
            usable.send_replace(Usable::Held([3].into()));
            assert_eq!(lists.next().await.unwrap().unwrap(), Usable::Held([3].into()));
            assert!(futures::poll!(lists.next()).is_pending());
            stopping.send_replace(true);
            assert!(lists.next().await.is_none());
        }
        assert_eq!(*watchers.borrow(), 0);
        assert!(Watcher::new(&watchers, 1).is_some());
    }
}
