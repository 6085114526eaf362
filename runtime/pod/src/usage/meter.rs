//! One VM's meter: the guest's last answer, and the rates up to it. The meter lives with the VM.
//!
//! The guest gets one request for any number of callers at a time or within a second. A caller waits a
//! bounded time for the answer and else takes the last one. A later answer is there for the next caller.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use super::figures::{GuestUsage, HostUsage};
use super::rate::Rate;
use super::sanitized;
use crate::backend::Agent;
use crate::clock;
use crate::error::chain_of;

/// How long a guest may take before its last answer is used instead. A client's own patience is 2 s
/// (crictl), and no pod may use up the time of the others.
pub(crate) const ANSWER_WITHIN: Duration = Duration::from_millis(1500);

/// How long an answer counts as fresh. A kubelet asks for the usage of pods, of containers and for metrics in
/// a row, and each question wakes the guest.
const FRESH_FOR: Duration = Duration::from_secs(1);

/// The containers of a pod, by id, and whether each runs.
pub(crate) type Known = HashMap<String, bool>;

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Meter {
    began: Instant,
    state: Mutex<State>,
    /// Changes with each answer, and with each missing one.
    last: watch::Sender<Option<Arc<GuestUsage>>>,
}

#[derive(Debug, Default)]
struct State {
    asking: bool,
    /// When the last answer came.
    answered: Option<Instant>,
    host: Option<Rate>,
    /// By container, of those in the last answer.
    containers: HashMap<String, Rate>,
}

impl Default for Meter {
    fn default() -> Self {
        Meter { began: Instant::now(), state: Mutex::default(), last: watch::Sender::new(None) }
    }
}

impl Meter {
    /// Returns the guest's current answer, or the last one. `known` are the pod's containers: others are
    /// ignored.
    pub(crate) async fn guest(
        self: &Arc<Self>,
        agent: &Arc<dyn Agent>,
        known: Known,
    ) -> Option<Arc<GuestUsage>> {
        if let Some(fresh) = self.fresh(&known) {
            return Some(fresh);
        }
        // Before the request, so no answer is missed.
        let mut answered = self.last.subscribe();
        if !std::mem::replace(&mut self.state().asking, true) {
            tokio::spawn(self.clone().ask(agent.clone(), known));
        }
        if tokio::time::timeout(ANSWER_WITHIN, answered.changed()).await.is_err() {
            tracing::debug!("a guest does not report its usage in time");
        }
        answered.borrow().clone()
    }

    /// The last answer, if it is still fresh and has every running container.
    fn fresh(&self, known: &Known) -> Option<Arc<GuestUsage>> {
        let answered = self.state().answered?;
        let last = self.last.borrow().clone().filter(|_| answered.elapsed() < FRESH_FOR)?;
        let mut running = known.iter().filter(|(_, runs)| **runs);
        running.all(|(id, _)| last.containers.contains_key(id)).then_some(last)
    }

    async fn ask(self: Arc<Self>, agent: Arc<dyn Agent>, known: Known) {
        // The call has a deadline of its own.
        let answer = agent.usage().await;
        let taken = answer.map(|answer| {
            let known = |id: &str| known.contains_key(id);
            let mut usage = sanitized::usage(answer, known, clock::now_ns());
            self.rate(&mut usage);
            Arc::new(usage)
        });
        let mut state = self.state();
        state.asking = false;
        if taken.is_ok() {
            state.answered = Some(Instant::now());
        }
        drop(state);
        match taken {
            Ok(usage) => {
                self.last.send_replace(Some(usage));
            }
            Err(error) => {
                tracing::debug!(error = chain_of(&error), "a guest does not report its usage");
                self.last.send_modify(|_| {});
            }
        }
    }

    /// Fills in the containers' rates.
    fn rate(&self, usage: &mut GuestUsage) {
        let at = self.began.elapsed();
        let mut state = self.state();
        let mut rates = HashMap::new();
        for (id, container) in &mut usage.containers {
            let rate = update(state.containers.remove(id), at, container.cpu.usage_ns);
            container.cpu.nano_cores = rate.per_second();
            rates.insert(id.clone(), rate);
        }
        state.containers = rates;
    }

    /// Fills in the host's rate.
    pub(crate) fn rate_host(&self, usage: &mut HostUsage) {
        let mut state = self.state();
        let rate = update(state.host, self.began.elapsed(), usage.cpu.usage_ns);
        usage.cpu.nano_cores = rate.per_second();
        state.host = Some(rate);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn update(before: Option<Rate>, at: Duration, counter: u64) -> Rate {
    match before {
        Some(mut rate) => {
            rate.update(at, counter);
            rate
        }
        None => Rate::new(at, counter),
    }
}
