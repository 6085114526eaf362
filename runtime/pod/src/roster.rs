//! What is published: the drivers write, everyone reads. Locks are held for moments only, never
//! across an await.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use oci_spec::runtime::Process;
use runtime_logs::LogFile;
use runtime_spec::PodSpec;
use tokio::sync::{mpsc, watch};

use crate::driver::Command;
use crate::outside::{Agent, Machine};
use crate::{ContainerView, Phase, PodError, PodErrorKind, PodView};

/// How a pod's start ended; `None` while it is under way.
pub(crate) type Outcome = Option<Result<String, PodError>>;

/// Pods and containers as they are now, and the names that are taken.
#[derive(Debug, Default)]
pub(crate) struct Roster {
    state: RwLock<State>,
}

#[derive(Debug, Default)]
struct State {
    pods: HashMap<String, PodEntry>,
    containers: HashMap<String, ContainerEntry>,
    names: HashMap<PodKey, Holder>,
}

/// What makes two RunPodSandbox calls the same.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PodKey {
    namespace: String,
    name: String,
    uid: String,
    attempt: u32,
}

impl PodKey {
    pub(crate) fn of(spec: &PodSpec) -> Self {
        PodKey {
            namespace: spec.namespace.clone(),
            name: spec.name.clone(),
            uid: spec.uid.clone(),
            attempt: spec.attempt,
        }
    }
}

/// Who has a name.
#[derive(Debug)]
struct Holder {
    id: String,
    spec: PodSpec,
    outcome: watch::Receiver<Outcome>,
}

/// A published pod.
#[derive(Clone, Debug)]
pub(crate) struct PodEntry {
    pub(crate) view: Arc<PodView>,
    pub(crate) commands: mpsc::Sender<Command>,
    pub(crate) live: Option<Live>,
    pub(crate) phases: Arc<Vec<Phase>>,
}

/// A running machine and its agent.
#[derive(Clone, Debug)]
pub(crate) struct Live {
    pub(crate) machine: Arc<dyn Machine>,
    pub(crate) agent: Arc<dyn Agent>,
}

/// A published container.
#[derive(Clone, Debug)]
pub(crate) struct ContainerEntry {
    pub(crate) view: Arc<ContainerView>,
    /// Its first process, which exec takes its environment from.
    pub(crate) process: Arc<Process>,
    pub(crate) log: LogFile,
    /// Whether it has ended.
    pub(crate) ended: watch::Receiver<bool>,
}

/// What reserving a name came to.
#[derive(Debug)]
pub(crate) enum Reservation {
    /// It was free: start the pod under this id, and tell how that ended.
    New(String, watch::Sender<Outcome>, watch::Receiver<Outcome>),
    /// An identical call came before: its outcome is this one's too.
    Joined(watch::Receiver<Outcome>),
}

impl Roster {
    /// Reserves the pod's name, or joins an identical call.
    pub(crate) fn reserve(&self, spec: &PodSpec) -> Result<Reservation, PodError> {
        let key = PodKey::of(spec);
        let mut state = self.write();
        if let Some(holder) = state.names.get(&key) {
            let ready = state.pods.get(&holder.id).is_none_or(|pod| pod.view.state == crate::PodState::Ready);
            if holder.spec == *spec && ready {
                return Ok(Reservation::Joined(holder.outcome.clone()));
            }
            let why = if ready { "asked for differently" } else { "not ready" };
            let text = format!(
                "pod {}/{}, attempt {}, exists already and is {why}: {}",
                spec.namespace, spec.name, spec.attempt, holder.id
            );
            return Err(PodError::new(PodErrorKind::AlreadyExists, text));
        }
        let id = crate::clock::new_id();
        let (sender, receiver) = watch::channel(None);
        let holder = Holder { id: id.clone(), spec: spec.clone(), outcome: receiver.clone() };
        state.names.insert(key, holder);
        Ok(Reservation::New(id, sender, receiver))
    }

    /// Takes the name for a pod that an earlier daemon made.
    pub(crate) fn hold(&self, id: &str, spec: &PodSpec) {
        let (_, outcome) = watch::channel(Some(Ok(id.to_owned())));
        let holder = Holder { id: id.to_owned(), spec: spec.clone(), outcome };
        self.write().names.insert(PodKey::of(spec), holder);
    }

    /// Frees the name, if this pod has it.
    pub(crate) fn free(&self, id: &str, spec: &PodSpec) {
        let key = PodKey::of(spec);
        let mut state = self.write();
        if state.names.get(&key).is_some_and(|holder| holder.id == id) {
            state.names.remove(&key);
        }
    }

    pub(crate) fn publish_pod(&self, entry: PodEntry) {
        self.write().pods.insert(entry.view.id.clone(), entry);
    }

    pub(crate) fn withdraw_pod(&self, id: &str) {
        self.write().pods.remove(id);
    }

    pub(crate) fn publish_container(&self, entry: ContainerEntry) {
        self.write().containers.insert(entry.view.id.clone(), entry);
    }

    pub(crate) fn withdraw_container(&self, id: &str) {
        self.write().containers.remove(id);
    }

    pub(crate) fn pod(&self, id: &str) -> Option<PodEntry> {
        self.read().pods.get(id).cloned()
    }

    pub(crate) fn container(&self, id: &str) -> Option<ContainerEntry> {
        self.read().containers.get(id).cloned()
    }

    /// Oldest first.
    pub(crate) fn pods(&self) -> Vec<Arc<PodView>> {
        let mut all: Vec<_> = self.read().pods.values().map(|entry| entry.view.clone()).collect();
        all.sort_by(|a, b| (a.created_at_ns, &a.id).cmp(&(b.created_at_ns, &b.id)));
        all
    }

    /// Oldest first.
    pub(crate) fn containers(&self) -> Vec<Arc<ContainerView>> {
        let mut all: Vec<_> = self.read().containers.values().map(|entry| entry.view.clone()).collect();
        all.sort_by(|a, b| (a.created_at_ns, &a.id).cmp(&(b.created_at_ns, &b.id)));
        all
    }

    fn read(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, State> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }
}
