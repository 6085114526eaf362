//! The pool of spares, and the next action on it. Nothing here makes or ends a spare.

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

/// Age at which a spare is ended and replaced by one from the current template.
const AGE_MAX: Duration = Duration::from_secs(24 * 3600);

/// Most kinds in backoff after a failure. If there are more, the oldest is retried early.
const PAUSES_MAX: usize = 64;

/// A pooled VMM.
#[derive(Debug)]
pub(crate) struct Spare {
    /// The id of its future pod.
    pub(crate) id: String,
    pub(crate) vm: Arc<dyn Vm>,
    /// The guest running in it, if any.
    pub(crate) guest: Option<SpareGuest>,
    pub(super) made: Instant,
}

/// The guest of a pooled VM.
#[derive(Debug)]
pub(crate) struct SpareGuest {
    pub(crate) agent: Arc<dyn Agent>,
    pub(crate) releases: GuestReleases,
    /// Builds of the files used for its start.
    pub(crate) builds: Builds,
    pub(crate) template: Arc<Template>,
}

/// A kind of spare requested by a pod.
#[derive(Debug)]
pub(crate) struct AskedKind {
    pub(crate) kind: SpareKind,
    /// Whether to keep a spare for the next pod.
    pub(crate) counts: bool,
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
    /// The pool, the oldest first.
    waiting: VecDeque<(SpareKind, Spare)>,
    demand: Demand,
    /// Kinds in backoff. Others are still made.
    pauses: Vec<Pause>,
    /// Whether the task works.
    works: bool,
}

/// A kind in backoff.
#[derive(Debug)]
struct Pause {
    kind: SpareKind,
    /// Failed attempts to make one since the last success.
    failures: u32,
    until: Instant,
}

impl Spares {
    /// Takes a spare for a pod: one of the first available kind. The pod has the spare's id from then on. A
    /// request with `counts` counts as demand whether there is one or not.
    pub(crate) fn claim(&self, kinds: &[AskedKind]) -> Option<Spare> {
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

    /// Wakes the task. Returns true if a task is needed and none runs. The caller starts it.
    pub(super) fn begin(&self, wanted: bool) -> bool {
        self.changed.notify_one();
        let mut inner = self.lock();
        let needed = !self.closing.has_begun() && (wanted || !inner.waiting.is_empty());
        needed && !std::mem::replace(&mut inner.works, true)
    }

    /// Ends the task's work if the pool is empty, and returns whether it is.
    pub(super) fn rest(&self) -> bool {
        let mut inner = self.lock();
        inner.works = !inner.waiting.is_empty();
        if !inner.works {
            self.closing.note_task_ended();
        }
        !inner.works
    }

    /// The next action, within the handlers' allowances.
    pub(super) fn next(&self, allowances: &[Allowance]) -> Step {
        let mut inner = self.lock();
        if self.closing.has_begun() {
            inner.works = false;
            self.closing.note_task_ended();
            return Step::Rest;
        }
        inner.next(allowances, Instant::now())
    }

    /// Puts the spare into the pool, or gives it back if the daemon ends.
    pub(super) fn keep(&self, kind: SpareKind, spare: Spare) -> Result<(), Box<Spare>> {
        let mut inner = self.lock();
        if self.closing.has_begun() {
            return Err(Box::new(spare));
        }
        inner.pauses.retain(|pause| pause.kind != kind);
        inner.waiting.push_back((kind, spare));
        inner.count();
        Ok(())
    }

    /// Makes none of this kind for a while: one could not be made.
    pub(super) fn pause(&self, kind: &SpareKind) {
        let mut inner = self.lock();
        let pause = inner.pause_of(kind);
        pause.until = Instant::now() + pauses::after(pause.failures);
        pause.failures = pause.failures.saturating_add(1);
    }

    /// Makes none of this kind for so long: its template is not there.
    pub(super) fn put_off(&self, kind: &SpareKind, by: Duration) {
        self.lock().pause_of(kind).until = Instant::now() + by;
    }

    /// Stops making spares, and takes those in the pool.
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
    /// Nothing, for this time if it is known, or until something changes.
    Wait(Option<Duration>),
    /// Nothing, until the rules change.
    Rest,
}

impl Inner {
    fn claim(&mut self, kinds: &[AskedKind], now: Instant) -> Option<Spare> {
        for AskedKind { kind, counts } in kinds {
            if *counts {
                self.demand.asked(kind, now);
            }
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
        let mut shortest: Option<Duration> = None;
        for (kind, _) in wanted.into_iter().filter(|(_, count)| *count > 0) {
            let until = self.pauses.iter().find(|pause| pause.kind == kind).map(|pause| pause.until);
            match until.map(|until| until.saturating_duration_since(now)) {
                Some(pause) if !pause.is_zero() => {
                    shortest = Some(shortest.map_or(pause, |shortest| shortest.min(pause)));
                }
                _ => return Step::Make(kind),
            }
        }
        Step::Wait(shortest)
    }

    /// The kind's backoff, possibly over.
    fn pause_of(&mut self, kind: &SpareKind) -> &mut Pause {
        let now = Instant::now();
        // A kind not requested recently starts again without failures.
        self.pauses.retain(|pause| pause.kind == *kind || now < pause.until + pauses::LONGEST);
        let place = self.pauses.iter().position(|pause| pause.kind == *kind).unwrap_or_else(|| {
            if self.pauses.len() >= PAUSES_MAX {
                self.pauses.remove(0);
            }
            self.pauses.push(Pause { kind: kind.clone(), failures: 0, until: now });
            self.pauses.len() - 1
        });
        &mut self.pauses[place]
    }
}

#[cfg(test)]
mod tests {
    use runtime_spec::VolumeCache;

    use super::*;

    const KINDS: [SpareKind; 2] = [SpareKind::Vmm(VolumeCache::Auto), SpareKind::Vmm(VolumeCache::Always)];

    /// Spares with a demand of one for each kind, the first kind first.
    fn spares() -> (Spares, [Allowance; 1]) {
        let spares = Spares::default();
        let [second, first] = KINDS.map(|kind| AskedKind { kind, counts: true });
        assert!(spares.claim(&[first]).is_none() && spares.claim(&[second]).is_none());
        (spares, [Allowance { handler: None, most: 2, first: None }])
    }

    #[tokio::test(start_paused = true)]
    async fn the_pause_after_a_failure_doubles_with_each_further_one() {
        let spares = Spares::default();
        let [kind, _] = KINDS;
        let allowances = [Allowance { handler: None, most: 1, first: Some(kind.clone()) }];
        for seconds in [60, 120, 240] {
            assert!(matches!(spares.next(&allowances), Step::Make(_)));
            spares.pause(&kind);
            let pause = Duration::from_secs(seconds);
            assert!(matches!(spares.next(&allowances), Step::Wait(Some(wait)) if wait == pause), "{pause:?}");
            tokio::time::advance(pause).await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_kind_that_fails_or_waits_for_its_template_holds_up_no_other() {
        let (spares, allowances) = spares();
        let made = |kind: &SpareKind| matches!(spares.next(&allowances), Step::Make(next) if next == *kind);
        let [first, second] = KINDS;
        assert!(made(&first));
        spares.pause(&first);
        assert!(made(&second));
        spares.put_off(&second, Duration::from_secs(1));
        let soonest = spares.next(&allowances);
        assert!(matches!(soonest, Step::Wait(Some(wait)) if wait == Duration::from_secs(1)), "{soonest:?}");
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(made(&second));
        tokio::time::advance(Duration::from_secs(60)).await;
        assert!(made(&first));
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_remembered_of_failures_is_bounded() {
        let (spares, _) = spares();
        let handler = runtime_spec::HandlerConfig {
            template: runtime_spec::TemplateScope::Node,
            spare_vms: 1,
            ..Default::default()
        };
        for scratch_bytes in 0..1000 {
            spares.pause(&SpareKind::all_of(&handler, "", &Default::default(), scratch_bytes)[0]);
        }
        assert_eq!(spares.lock().pauses.len(), PAUSES_MAX);
    }
}
