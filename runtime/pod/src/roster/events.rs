//! Events of pods and containers, for listeners.
//!
//! An event is sent where a change is published, so its receiver finds the change in the lists. A slow
//! listener gets an error; nothing is kept for it beyond [`WAITING_MAX`].

use std::sync::Arc;

use tokio::sync::broadcast;

use crate::view::{ContainerState, ContainerView, PodState, PodView};

/// Events waiting for a listener: a burst of a hundred pods starting or ending at once.
const WAITING_MAX: usize = 1024;

/// The kind of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// The pod or container is listed.
    Created,
    /// A pod is ready; a container runs.
    Started,
    /// A pod is not ready any more; a container has ended.
    Stopped,
    /// The pod or container is not listed any more.
    Deleted,
}

/// An event of a pod or of one of its containers.
#[derive(Clone, Debug)]
pub struct Event {
    /// The container's id, or the pod's own.
    pub id: String,
    /// The kind of the event.
    pub kind: EventKind,
    /// Nanoseconds since the epoch.
    pub at_ns: i64,
    /// The pod after the event; for a removed pod, its last state.
    pub pod: Arc<PodView>,
    /// The pod's containers after the event, oldest first.
    pub containers: Vec<Arc<ContainerView>>,
}

/// The listener has missed events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{missed} events were missed, since they were not taken in time")]
pub struct Missed {
    /// How many events were missed.
    pub missed: u64,
}

/// Events from now on.
#[derive(Debug)]
pub struct Events(broadcast::Receiver<Arc<Event>>);

impl Events {
    /// Waits for the next event. `None` at the daemon's end.
    ///
    /// # Errors
    /// Some events were missed; those after them follow.
    pub async fn next(&mut self) -> Option<Result<Arc<Event>, Missed>> {
        match self.0.recv().await {
            Ok(event) => Some(Ok(event)),
            Err(broadcast::error::RecvError::Lagged(missed)) => Some(Err(Missed { missed })),
            Err(broadcast::error::RecvError::Closed) => None,
        }
    }
}

/// The sending side of all listeners' events.
#[derive(Debug)]
pub(crate) struct EventSender(broadcast::Sender<Arc<Event>>);

impl Default for EventSender {
    fn default() -> Self {
        EventSender(broadcast::Sender::new(WAITING_MAX))
    }
}

impl EventSender {
    pub(crate) fn listen(&self) -> Events {
        Events(self.0.subscribe())
    }

    /// Whether anybody listens.
    pub(crate) fn is_heard(&self) -> bool {
        self.0.receiver_count() > 0
    }

    pub(crate) fn send(&self, event: Event) {
        // The last listener may have gone meanwhile.
        let _ = self.0.send(Arc::new(event));
    }
}

/// Returns the events of a container's change.
pub(crate) fn of_container(before: Option<ContainerState>, now: ContainerState) -> &'static [EventKind] {
    use ContainerState::{Created, Exited, Running, Unknown};
    match (before, now) {
        (None, Created | Unknown) => &[EventKind::Created],
        (None, Running) => &[EventKind::Created, EventKind::Started],
        (None, Exited) => &[EventKind::Created, EventKind::Stopped],
        (Some(Created | Unknown), Running) => &[EventKind::Started],
        (Some(Created | Running | Unknown), Exited) => &[EventKind::Stopped],
        _ => &[],
    }
}

/// Returns the events of a pod's change.
pub(crate) fn of_pod(before: Option<PodState>, now: PodState) -> &'static [EventKind] {
    match (before, now) {
        (None, PodState::Ready) => &[EventKind::Created, EventKind::Started],
        (None, PodState::NotReady) => &[EventKind::Created, EventKind::Stopped],
        (Some(PodState::Ready), PodState::NotReady) => &[EventKind::Stopped],
        (Some(PodState::NotReady), PodState::Ready) => &[EventKind::Started],
        _ => &[],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_life_is_created_started_and_stopped_once_each() {
        use ContainerState::{Created, Exited, Running};
        let life = [None, Some(Created), Some(Running), Some(Exited), Some(Exited)];
        let kinds: Vec<_> =
            life.windows(2).flat_map(|step| of_container(step[0], step[1].unwrap())).copied().collect();
        assert_eq!(kinds, [EventKind::Created, EventKind::Started, EventKind::Stopped]);
        assert_eq!(of_pod(Some(PodState::NotReady), PodState::NotReady), []);
    }

    #[tokio::test]
    async fn a_listener_that_falls_behind_gets_an_error_and_then_goes_on() {
        let event_sender = EventSender::default();
        let mut events = event_sender.listen();
        for number in 0..WAITING_MAX + 10 {
            event_sender.send(Event {
                id: number.to_string(),
                kind: EventKind::Created,
                at_ns: 1,
                pod: Arc::new(PodView::default()),
                containers: Vec::new(),
            });
        }
        assert_eq!(events.next().await.unwrap().unwrap_err(), Missed { missed: 10 });
        assert_eq!(events.next().await.unwrap().unwrap().id, "10");
        drop(event_sender);
    }
}
