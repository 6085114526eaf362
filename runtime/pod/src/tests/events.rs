//! Events of a pod's life, and the ids accepted by calls.

use std::time::Duration;

use super::{World, container, pod};
use crate::{ContainerState, EventKind, PodErrorKind, PodState};

#[tokio::test]
async fn each_step_of_a_life_is_an_event_with_how_things_are_after_it() {
    let world = World::new().await;
    let mut events = world.pods.events();
    let (pod_id, id) = world.with_container().await;
    world.script.vm().agent.end(&id, 0, false);
    world.ended(&id).await;
    world.pods.remove_container(&id).await.unwrap();
    world.pods.remove(&pod_id).await.unwrap();
    use EventKind::{Created, Deleted, Started, Stopped};
    let seen = [
        (&pod_id, Created, PodState::Ready, None),
        (&pod_id, Started, PodState::Ready, None),
        (&id, Created, PodState::Ready, Some(ContainerState::Created)),
        (&id, Started, PodState::Ready, Some(ContainerState::Running)),
        (&id, Stopped, PodState::Ready, Some(ContainerState::Exited)),
        (&id, Deleted, PodState::Ready, None),
        (&pod_id, Stopped, PodState::NotReady, None),
        (&pod_id, Deleted, PodState::NotReady, None),
    ];
    let mut last_ns = 0;
    for (id, kind, pod, container) in seen {
        let event = events.next().await.unwrap().unwrap();
        assert_eq!((&event.id, event.kind, event.pod.state), (id, kind, pod));
        assert_eq!(event.pod.id, pod_id);
        assert_eq!(event.containers.first().map(|view| view.state), container);
        assert!(event.at_ns >= last_ns);
        last_ns = event.at_ns;
    }
    let more = tokio::time::timeout(Duration::from_millis(1), events.next()).await;
    assert!(more.is_err(), "{more:?}");
}

#[tokio::test]
async fn events_of_what_a_removed_pod_takes_along_come_before_its_own() {
    let world = World::new().await;
    let (pod_id, id) = world.with_container().await;
    let mut events = world.pods.events();
    world.pods.remove(&pod_id).await.unwrap();
    let mut seen = Vec::new();
    while seen.last() != Some(&(pod_id.clone(), EventKind::Deleted)) {
        let event = events.next().await.unwrap().unwrap();
        seen.push((event.id.clone(), event.kind));
    }
    let place = |id: &str, kind| seen.iter().position(|one| *one == (id.to_owned(), kind)).unwrap();
    assert!(place(&id, EventKind::Stopped) < place(&id, EventKind::Deleted));
    assert!(place(&pod_id, EventKind::Stopped) < place(&pod_id, EventKind::Deleted));
    assert!(place(&id, EventKind::Deleted) < place(&pod_id, EventKind::Deleted));
    assert_eq!(seen.len(), 4);
}

#[tokio::test]
async fn calls_take_the_beginning_of_an_id_that_is_no_others() {
    let world = World::new().await;
    let (pod_id, id) = world.with_container().await;
    assert_eq!(world.pods.pod(&pod_id[..13]).unwrap().id, pod_id);
    assert_eq!(world.pods.container(&id[..13]).unwrap().id, id);
    world.pods.stop_container(&id[..13], Duration::ZERO).await.unwrap();
    assert_eq!(world.pods.container(&id).unwrap().state, ContainerState::Exited);
    world.pods.remove_container(&id[..13]).await.unwrap();
    assert!(world.pods.container(&id).is_none());
    // Seventeen ids have sixteen first digits between them.
    for number in 0..17 {
        world.pods.create_container(&pod_id, container(&format!("c{number}"))).await.unwrap();
    }
    let containers = world.pods.containers();
    let shared = |digit: &str| containers.iter().filter(|one| one.id.starts_with(digit)).count() > 1;
    let digit = (0..16).map(|digit| format!("{digit:x}")).find(|digit| shared(digit)).unwrap();
    let error = world.pods.remove_container(&digit).await.unwrap_err();
    assert_eq!(error.kind(), PodErrorKind::InvalidArgument);
    assert!(world.pods.container(&digit).is_none());
    world.pods.remove(&pod_id[..13]).await.unwrap();
    world.assert_nothing_left();
}

#[tokio::test]
async fn a_pods_name_is_free_again_when_it_is_removed() {
    let world = World::new().await;
    let first = world.pods.run(pod("web")).await.unwrap();
    world.pods.stop(&first).await.unwrap();
    assert_eq!(world.pods.run(pod("web")).await.unwrap_err().kind(), PodErrorKind::AlreadyExists);
    world.pods.remove(&first).await.unwrap();
    assert_ne!(world.pods.run(pod("web")).await.unwrap(), first);
}
