//! The disk of the state is full: what frees it goes on, and what needs it is refused.

use std::time::Duration;

use super::{World, container, pod};
use crate::ContainerState;

#[tokio::test(start_paused = true)]
async fn pods_and_containers_are_stopped_and_removed_on_a_full_disk() {
    let world = World::new().await;
    let (pod_id, id) = world.with_container().await;
    let idle = world.pods.create_container(&pod_id, container("idle")).await.unwrap();
    world.fill_disk(true);
    let error = world.pods.run(pod("late")).await.unwrap_err();
    assert!(error.chain().contains("the disk is full"), "{}", error.chain());
    world.pods.create_container(&pod_id, container("late")).await.unwrap_err();
    world.pods.start_container(&idle).await.unwrap_err();
    world.pods.stop_container(&id, Duration::ZERO).await.unwrap();
    assert_eq!(world.pods.container(&id).unwrap().state, ContainerState::Exited);
    world.pods.remove_container(&id).await.unwrap();
    assert!(world.pods.container(&id).is_none());
    world.pods.stop(&pod_id).await.unwrap();
    assert_eq!((world.script.running().len(), world.script.state().networks.len()), (0, 0));
    world.pods.remove(&pod_id).await.unwrap();
    assert!(world.pods.pods().is_empty() && world.pods.containers().is_empty());
}

#[tokio::test(start_paused = true)]
async fn outcomes_are_on_disk_as_soon_as_there_is_room() {
    let world = World::new().await;
    let (pod_id, id) = world.with_container().await;
    world.fill_disk(true);
    world.pods.stop_container(&id, Duration::ZERO).await.unwrap();
    world.pods.remove(&pod_id).await.unwrap();
    assert_eq!(world.records().len(), 4, "the disk has the pod and its container still");
    world.fill_disk(false);
    world.until(|world| world.records().is_empty()).await;
    world.assert_nothing_left();
}
