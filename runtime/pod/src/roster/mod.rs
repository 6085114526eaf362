//! The published pods and containers: the drivers write, everyone reads. Locks are only held for moments,
//! never across an await.

mod entry;
pub(crate) mod events;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Bound;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use runtime_spec::PodSpec;
use tokio::sync::watch;

pub(crate) use self::entry::{ContainerEntry, Outcome, PodEntry};
use self::events::{Event, EventKind, EventSender, Events};
use crate::clock;
use crate::error::{PodError, PodErrorKind};
use crate::plugins::Plugins;
use crate::record::PodRecord;
use crate::usage::Known;
use crate::view::{ContainerView, PodState, PodView};

/// The current pods and containers, and the taken names.
#[derive(Debug)]
pub(crate) struct Roster {
    state: RwLock<State>,
    event_sender: EventSender,
    plugins: Arc<dyn Plugins>,
}

#[derive(Debug, Default)]
struct State {
    pods: BTreeMap<String, PodEntry>,
    containers: BTreeMap<String, ContainerEntry>,
    names: HashMap<PodKey, Holder>,
}

/// The part of a spec that identifies a RunPodSandbox call.
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

/// The pod with a name.
#[derive(Debug)]
struct Holder {
    id: String,
    spec: PodSpec,
    /// Name of the pod's handler, even if the spec has none.
    handler: String,
    /// Size of the pod's scratch disk.
    scratch_bytes: u64,
    outcome: watch::Receiver<Outcome>,
}

/// The scratch disk requested for a new pod.
#[derive(Clone, Debug)]
pub(crate) struct Scratch {
    /// Name of the pod's handler.
    pub(crate) handler: String,
    pub(crate) bytes: u64,
    /// Upper limit for the sum of the disks of all pods of its handler.
    pub(crate) sum_max: Option<u64>,
}

/// The outcome of reserving a name.
#[derive(Debug)]
pub(crate) enum Reservation {
    /// The name was free: start the pod under this id, and report the outcome.
    New(String, watch::Sender<Outcome>, watch::Receiver<Outcome>),
    /// An identical call came before: both have one outcome.
    Joined(watch::Receiver<Outcome>),
}

impl Roster {
    /// An empty roster. These plugins are notified of its changes.
    pub(crate) fn heard_by(plugins: Arc<dyn Plugins>) -> Roster {
        Roster { state: RwLock::default(), event_sender: EventSender::default(), plugins }
    }

    /// Reserves the pod's name and room for its scratch disk, or joins an identical call. A new pod's id
    /// comes from `id`.
    pub(crate) fn reserve(
        &self,
        spec: &PodSpec,
        scratch: Scratch,
        id: impl FnOnce() -> String,
    ) -> Result<Reservation, PodError> {
        let key = PodKey::of(spec);
        let mut state = self.write();
        if let Some(holder) = state.names.get(&key) {
            let ready = state.is_ready_or_starts(&holder.id);
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
        state.room_for(&scratch)?;
        let id = id();
        let (sender, receiver) = watch::channel(None);
        let (spec, outcome) = (spec.clone(), receiver.clone());
        let Scratch { handler, bytes: scratch_bytes, .. } = scratch;
        let holder = Holder { id: id.clone(), spec, handler, scratch_bytes, outcome };
        state.names.insert(key, holder);
        Ok(Reservation::New(id, sender, receiver))
    }

    /// Takes the name for a pod of an earlier daemon, with this handler. Calls for the same pod wait until it
    /// is recovered.
    pub(crate) fn hold(&self, record: &PodRecord, handler: String) -> watch::Sender<Outcome> {
        let (sender, outcome) = watch::channel(None);
        let PodRecord { id, spec, scratch_bytes, .. } = record;
        let (id, spec, scratch_bytes) = (id.clone(), spec.clone(), *scratch_bytes);
        let holder = Holder { id, spec, handler, scratch_bytes, outcome };
        self.write().names.insert(PodKey::of(&record.spec), holder);
        sender
    }

    /// Whether a start or a recovery is under way.
    pub(crate) fn is_busy(&self) -> bool {
        self.read().names.values().any(|holder| holder.outcome.borrow().is_none())
    }

    /// Frees the name, if this pod has it.
    pub(crate) fn free(&self, id: &str, spec: &PodSpec) {
        let key = PodKey::of(spec);
        let mut state = self.write();
        if state.names.get(&key).is_some_and(|holder| holder.id == id) {
            state.names.remove(&key);
        }
    }

    /// The outcomes of all starts, of those under way, too.
    pub(crate) fn outcomes(&self) -> Vec<watch::Receiver<Outcome>> {
        self.read().names.values().map(|holder| holder.outcome.clone()).collect()
    }

    pub(crate) fn publish_pod(&self, entry: PodEntry) {
        let view = entry.view.clone();
        let mut state = self.write();
        let before = state.pods.insert(view.id.clone(), entry);
        let kinds = events::of_pod(before.map(|entry| entry.view.state), view.state);
        self.send_events(&state, kinds, Some(&view), None);
    }

    pub(crate) fn withdraw_pod(&self, id: &str) {
        let mut state = self.write();
        if let Some(entry) = state.pods.remove(id) {
            self.send_events(&state, &[EventKind::Deleted], Some(&entry.view), None);
        }
    }

    pub(crate) fn publish_container(&self, entry: ContainerEntry) {
        let view = entry.view.clone();
        let mut state = self.write();
        let before = state.containers.insert(view.id.clone(), entry);
        let kinds = events::of_container(before.map(|entry| entry.view.state), view.state);
        let pod = state.pods.get(&view.pod_id).map(|pod| &pod.view);
        self.send_events(&state, kinds, pod, Some(&view));
    }

    pub(crate) fn withdraw_container(&self, id: &str) {
        let mut state = self.write();
        if let Some(entry) = state.containers.remove(id) {
            let pod = state.pods.get(&entry.view.pod_id).map(|pod| &pod.view);
            self.send_events(&state, &[EventKind::Deleted], pod, Some(&entry.view));
        }
    }

    /// Listens to events from now on.
    pub(crate) fn listen(&self) -> Events {
        self.event_sender.listen()
    }

    /// Sends the events of the change just published, under the same lock, so events keep the order of the
    /// changes. A container without a listed pod is one found by a starting daemon.
    fn send_events(
        &self,
        state: &State,
        kinds: &[EventKind],
        pod: Option<&Arc<PodView>>,
        container: Option<&Arc<ContainerView>>,
    ) {
        let Some(pod) = pod else { return };
        if self.plugins.hears() {
            for kind in kinds {
                self.plugins.notice(*kind, pod, container.map(Arc::as_ref));
            }
        }
        if !self.event_sender.is_heard() {
            return;
        }
        for kind in kinds {
            self.event_sender.send(Event {
                id: container.map_or(&pod.id, |container| &container.id).clone(),
                kind: *kind,
                at_ns: clock::now_ns(),
                pod: pod.clone(),
                containers: state.containers_of(&pod.id),
            });
        }
    }

    /// Finds a pod by its id, or by a unique beginning of it.
    pub(crate) fn pod(&self, id: &str) -> Option<PodEntry> {
        by_id(&self.read().pods, id).cloned()
    }

    /// Finds a container by its id, or by a unique beginning of it.
    pub(crate) fn container(&self, id: &str) -> Option<ContainerEntry> {
        by_id(&self.read().containers, id).cloned()
    }

    /// A pod, as [`Roster::pod`] finds it, and its containers of the same moment, oldest first.
    pub(crate) fn pod_with_containers(&self, id: &str) -> Option<(Arc<PodView>, Vec<Arc<ContainerView>>)> {
        let state = self.read();
        let pod = by_id(&state.pods, id)?.view.clone();
        let containers = state.containers_of(&pod.id);
        Some((pod, containers))
    }

    /// Checks whether this id matches no pod. It is an error if it matches several.
    pub(crate) fn no_pod_meant(&self, id: &str) -> Result<(), PodError> {
        none_meant(&self.read().pods, "pod", id)
    }

    /// Checks whether this id matches no container. It is an error if it matches several.
    pub(crate) fn no_container_meant(&self, id: &str) -> Result<(), PodError> {
        none_meant(&self.read().containers, "container", id)
    }

    /// All pods, oldest first.
    pub(crate) fn pods(&self) -> Vec<Arc<PodView>> {
        let mut all: Vec<_> = self.read().pods.values().map(|entry| entry.view.clone()).collect();
        all.sort_by(|a, b| (a.created_at_ns, &a.id).cmp(&(b.created_at_ns, &b.id)));
        all
    }

    /// The newest creation among the attempts of this pod, in nanoseconds since the epoch.
    pub(crate) fn newest(&self, spec: &PodSpec) -> Option<i64> {
        let state = self.read();
        let is_attempt = |pod: &&PodEntry| {
            let found = &pod.view.spec;
            found.uid == spec.uid && found.name == spec.name && found.namespace == spec.namespace
        };
        state.pods.values().filter(is_attempt).map(|pod| pod.view.created_at_ns).max()
    }

    /// The pods still being recovered by their drivers, oldest first.
    pub(crate) fn recovering(&self) -> Vec<Arc<PodView>> {
        let state = self.read();
        let waiting = state.pods.values().filter(|entry| !*entry.recovered.borrow());
        let mut all: Vec<_> = waiting.map(|entry| entry.view.clone()).collect();
        all.sort_by(|a, b| (a.created_at_ns, &a.id).cmp(&(b.created_at_ns, &b.id)));
        all
    }

    /// All containers, oldest first.
    pub(crate) fn containers(&self) -> Vec<Arc<ContainerView>> {
        oldest_first(self.read().containers.values())
    }

    /// The containers of one pod, by id, and whether each runs.
    pub(crate) fn known_of(&self, pod_id: &str) -> Known {
        let state = self.read();
        let of_pod = state.containers.values().filter(|entry| entry.view.pod_id == pod_id);
        of_pod.map(ContainerEntry::known).collect()
    }

    /// The containers of each pod with any, as in [`Roster::known_of`].
    pub(crate) fn known(&self) -> HashMap<String, Known> {
        let mut by_pod: HashMap<String, Known> = HashMap::new();
        for entry in self.read().containers.values() {
            by_pod.entry(entry.view.pod_id.clone()).or_default().extend([entry.known()]);
        }
        by_pod
    }

    /// Ids of all pods on record, including starting ones.
    pub(crate) fn pod_ids(&self) -> Vec<String> {
        let state = self.read();
        let ids: BTreeSet<&String> =
            state.names.values().map(|holder| &holder.id).chain(state.pods.keys()).collect();
        ids.into_iter().cloned().collect()
    }

    /// Ids of pods that hold a name and are not listed yet.
    pub(crate) fn starting(&self) -> Vec<String> {
        let state = self.read();
        let held: BTreeSet<&String> = state.names.values().map(|holder| &holder.id).collect();
        held.into_iter().filter(|id| !state.pods.contains_key(*id)).cloned().collect()
    }

    fn read(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, State> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Whether the pod with a name is ready or becomes it.
    fn is_ready_or_starts(&self, id: &str) -> bool {
        self.pods.get(id).is_none_or(|pod| pod.view.state == PodState::Ready)
    }

    /// Whether the pod with a name has a scratch disk, or is about to have one.
    fn has_scratch(&self, id: &str) -> bool {
        self.pods.get(id).is_none_or(|pod| pod.has_scratch)
    }

    /// Checks whether there is room for another scratch disk.
    fn room_for(&self, scratch: &Scratch) -> Result<(), PodError> {
        let Some(sum_max) = scratch.sum_max else { return Ok(()) };
        let handler = &scratch.handler;
        let of_handler = self.names.values().filter(|holder| holder.handler == *handler);
        let taking = of_handler.filter(|holder| self.has_scratch(&holder.id));
        let taken: u64 = taking.map(|holder| holder.scratch_bytes).fold(0, u64::saturating_add);
        if taken.saturating_add(scratch.bytes) <= sum_max {
            return Ok(());
        }
        let mib = |bytes: u64| bytes >> 20;
        let text = format!(
            "the scratch disks of handler {handler:?} may come to {} MiB (scratch_sum_mib); its pods have {} MiB, and this one \
             needs {} MiB",
            mib(sum_max),
            mib(taken),
            mib(scratch.bytes)
        );
        Err(PodError::new(PodErrorKind::FailedPrecondition, text))
    }

    fn containers_of(&self, pod_id: &str) -> Vec<Arc<ContainerView>> {
        oldest_first(self.containers.values().filter(|entry| entry.view.pod_id == pod_id))
    }
}

fn oldest_first<'a>(entries: impl Iterator<Item = &'a ContainerEntry>) -> Vec<Arc<ContainerView>> {
    let mut all: Vec<_> = entries.map(|entry| entry.view.clone()).collect();
    all.sort_by(|a, b| (a.created_at_ns, &a.id).cmp(&(b.created_at_ns, &b.id)));
    all
}

/// People type the beginning of an id. It is accepted if it is unique.
fn by_id<'a, T>(entries: &'a BTreeMap<String, T>, id: &str) -> Option<&'a T> {
    if let Some(exact) = entries.get(id) {
        return Some(exact);
    }
    let mut found = beginning_with(entries, id);
    found.next().filter(|_| found.next().is_none())
}

fn beginning_with<'a, T>(entries: &'a BTreeMap<String, T>, id: &str) -> impl Iterator<Item = &'a T> {
    let from = entries.range::<str, _>((Bound::Included(id), Bound::Unbounded));
    // The empty string matches nothing.
    from.take_while(move |(key, _)| !id.is_empty() && key.starts_with(id)).map(|(_, entry)| entry)
}

fn none_meant<T>(entries: &BTreeMap<String, T>, what: &str, id: &str) -> Result<(), PodError> {
    match beginning_with(entries, id).count() {
        0 => Ok(()),
        several => {
            let text = format!("the ids of {several} {what}s begin with {id:?}; give more of it");
            Err(PodError::new(PodErrorKind::InvalidArgument, text))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_beginning_of_an_id_counts_where_it_is_one_ids_alone() {
        let entries: BTreeMap<String, u32> =
            [("ab12".into(), 1), ("ab34".into(), 2), ("ab".into(), 3)].into();
        assert_eq!(by_id(&entries, "ab1"), Some(&1));
        assert_eq!(by_id(&entries, "ab34"), Some(&2));
        assert_eq!(by_id(&entries, "ab"), Some(&3), "a whole id is never the beginning of another");
        assert_eq!(by_id(&entries, "a"), None);
        assert_eq!(by_id(&entries, "b"), None);
        assert_eq!(by_id(&entries, ""), None);
        assert!(none_meant(&entries, "pod", "a").unwrap_err().to_string().contains("3 pods"));
        none_meant(&entries, "pod", "").unwrap();
        none_meant(&entries, "pod", "c").unwrap();
    }
}
