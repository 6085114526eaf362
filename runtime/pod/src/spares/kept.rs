//! The spares that wait, and the next thing to do about them. Nothing here makes one or ends one.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::FutureExt;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::demand::{Allowance, Demand};
use super::kind::SpareKind;
use crate::backend::{Agent, GuestReleases, Vm};
use crate::counters;
use crate::installation::Builds;
use crate::templates::Template;
use crate::unclaimed::closing::Closing;
use crate::unclaimed::pauses;

/// Age at which a spare is ended, and another made from the template of then.
const AGE_MAX: Duration = Duration::from_secs(24 * 3600);

/// A VMM that waits for its pod.
#[derive(Debug)]
pub(crate) struct Spare {
    /// The id of the pod that will have it.
    pub(crate) id: String,
    pub(crate) vm: Arc<dyn Vm>,
    /// The guest that runs in it, if one does.
    pub(crate) guest: Option<SpareGuest>,
    pub(super) made: Instant,
}

/// The guest of a VM that waits for its pod.
#[derive(Debug)]
pub(crate) struct SpareGuest {
    pub(crate) agent: Arc<dyn Agent>,
    pub(crate) releases: GuestReleases,
    /// Builds of the files that it was started from.
    pub(crate) builds: Builds,
    pub(crate) template: Arc<Template>,
}

impl Spare {
    /// Whether no pod should get it any more.
    fn is_bad(&self, now: Instant) -> bool {
        now.duration_since(self.made) >= AGE_MAX || self.vm.stopped().now_or_never().is_some()
    }
}

/// The node's spares.
#[derive(Debug, Default)]
pub(crate) struct Spares {
    inner: Mutex<Inner>,
    /// Notified when there may be something to do.
    changed: Arc<Notify>,
    /// Notified when a network namespace may be wanted.
    networks: Arc<Notify>,
    pub(super) closing: Closing,
}

#[derive(Debug, Default)]
struct Inner {
    /// Spares that wait, the oldest first.
    waiting: VecDeque<(SpareKind, Spare)>,
    demand: Demand,
    /// Spares that could not be made, since the last one that could.
    failures: u32,
    /// Until when none is made after that.
    pause_until: Option<Instant>,
    /// Whether the task works.
    works: bool,
}

impl Spares {
    /// Takes a spare of the first of these kinds of which there is one, for a pod, which has its id from then on. The asking
    /// counts, whether there is one or not.
    pub(crate) fn claim(&self, kinds: &[SpareKind]) -> Option<Spare> {
        let found = self.lock().claim(kinds, Instant::now());
        self.changed.notify_one();
        found
    }

    /// Whether a spare waits.
    #[cfg(test)]
    pub(crate) fn waiting(&self) -> usize {
        self.lock().waiting.len()
    }

    /// Notified when there may be something to do.
    pub(super) fn changed(&self) -> Arc<Notify> {
        Arc::clone(&self.changed)
    }

    /// Notified when a network namespace may be wanted.
    pub(crate) fn networks(&self) -> Arc<Notify> {
        Arc::clone(&self.networks)
    }

    /// Wakes the task. Whether there is to be one and is none, which the caller starts then.
    pub(super) fn begin(&self, wanted: bool) -> bool {
        self.changed.notify_one();
        let mut inner = self.lock();
        let needed = !self.closing.has_begun() && (wanted || !inner.waiting.is_empty());
        needed && !std::mem::replace(&mut inner.works, true)
    }

    /// Ends the task's work where no spare waits, and says whether that is so.
    pub(super) fn rest(&self) -> bool {
        let mut inner = self.lock();
        inner.works = !inner.waiting.is_empty();
        if !inner.works {
            self.closing.note_task_ended();
        }
        !inner.works
    }

    /// The next thing to do, where the handlers allow this.
    pub(super) fn next(&self, allowances: &[Allowance]) -> Step {
        let mut inner = self.lock();
        if self.closing.has_begun() {
            inner.works = false;
            self.closing.note_task_ended();
            return Step::Rest;
        }
        inner.next(allowances, Instant::now())
    }

    /// Lets the spare wait for its pod, or gives it back where the daemon ends.
    pub(super) fn keep(&self, kind: SpareKind, spare: Spare) -> Result<(), Box<Spare>> {
        let mut inner = self.lock();
        if self.closing.has_begun() {
            return Err(Box::new(spare));
        }
        inner.waiting.push_back((kind, spare));
        inner.failures = 0;
        inner.count();
        Ok(())
    }

    /// Makes none for a while: one could not be made.
    pub(super) fn pause(&self) {
        let mut inner = self.lock();
        inner.pause_until = Some(Instant::now() + pauses::after(inner.failures));
        inner.failures = inner.failures.saturating_add(1);
    }

    /// Wants no more, and takes those that wait.
    pub(super) fn close(&self) -> Vec<Spare> {
        let mut inner = self.lock();
        self.closing.begin();
        self.changed.notify_one();
        inner.waiting.drain(..).map(|(_, spare)| spare).collect()
    }

    /// Returns once nothing is being made any more.
    pub(super) async fn task_ended(&self) {
        self.closing.task_ended(|| self.lock().works).await;
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The next thing to do about spares.
#[derive(Debug)]
pub(super) enum Step {
    Make(SpareKind),
    End(Spare),
    /// Nothing, for so long if that is known, or until something changes.
    Wait(Option<Duration>),
    /// Nothing, until the rules change.
    Rest,
}

impl Inner {
    fn claim(&mut self, kinds: &[SpareKind], now: Instant) -> Option<Spare> {
        for kind in kinds {
            self.demand.asked(kind, now);
            let fits = |(of, spare): &(SpareKind, Spare)| of == kind && !spare.is_bad(now);
            let found = self.waiting.iter().position(fits).and_then(|place| self.waiting.remove(place));
            if let Some((_, spare)) = found {
                self.count();
                return Some(spare);
            }
        }
        None
    }

    /// Publishes how many wait.
    fn count(&self) {
        let vms = self.waiting.iter().filter(|(kind, _)| matches!(kind, SpareKind::Vm(_))).count();
        counters::spares_waiting(self.waiting.len() - vms, vms);
    }

    fn next(&mut self, allowances: &[Allowance], now: Instant) -> Step {
        let mut wanted = self.demand.wanted(allowances, now);
        let mut surplus = None;
        for (place, (kind, spare)) in self.waiting.iter().enumerate() {
            let left = wanted.iter_mut().find(|(of, count)| of == kind && *count > 0);
            match left.filter(|_| !spare.is_bad(now)) {
                Some((_, count)) => *count -= 1,
                None => surplus = surplus.or(Some(place)),
            }
        }
        if let Some((_, spare)) = surplus.and_then(|place| self.waiting.remove(place)) {
            self.count();
            return Step::End(spare);
        }
        let Some((kind, _)) = wanted.into_iter().find(|(_, count)| *count > 0) else {
            return Step::Wait(None);
        };
        match self.pause_until.and_then(|until| until.checked_duration_since(now)) {
            Some(pause) if !pause.is_zero() => Step::Wait(Some(pause)),
            _ => Step::Make(kind),
        }
    }
}

#[cfg(test)]
mod tests {
    use runtime_spec::VolumeCache;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_pause_after_a_failure_doubles_with_each_further_one() {
        let spares = Spares::default();
        let first = Some(SpareKind::Vmm(VolumeCache::Auto));
        let allowances = [Allowance { handler: None, most: 1, first }];
        for seconds in [60, 120, 240] {
            assert!(matches!(spares.next(&allowances), Step::Make(_)));
            spares.pause();
            let pause = Duration::from_secs(seconds);
            assert!(matches!(spares.next(&allowances), Step::Wait(Some(wait)) if wait == pause), "{pause:?}");
            tokio::time::advance(pause).await;
        }
    }
}
