//! Pods that stop by themselves behind their last container's end.

use runtime_spec::{PodSpec, STOP_WITH_CONTAINERS};

use super::{World, container, life, pod};
use crate::{ContainerState, PodState};

fn stopping(name: &str) -> PodSpec {
    let annotations = [(STOP_WITH_CONTAINERS.to_owned(), "true".to_owned())].into();
    PodSpec { annotations, ..pod(name) }
}

/// The pod with a running container.
async fn with_container(world: &World, spec: PodSpec) -> (String, String) {
    let pod_id = world.pods.run(spec).await.unwrap();
    let id = world.pods.create_container(&pod_id, container("app")).await.unwrap();
    world.pods.start_container(&id).await.unwrap();
    (pod_id, id)
}

/// Waits until nothing of the pod is left but its records and logs.
async fn stopped(world: &World, pod_id: &str) {
    world.until(|world| world.script.state().networks.is_empty() && world.script.running().is_empty()).await;
    // The driver answers once it has finished.
    world.pods.stop(pod_id).await.unwrap();
    let view = world.pods.pod(pod_id).unwrap();
    assert_eq!((view.state, view.unclean.as_deref()), (PodState::NotReady, None));
    assert!(!world.node.places.scratch_path(pod_id).exists());
}

#[tokio::test]
async fn a_pod_stops_behind_its_last_containers_end_and_keeps_its_record() {
    let world = World::new().await;
    let (pod_id, id) = with_container(&world, stopping("job")).await;
    let second = world.pods.create_container(&pod_id, container("second")).await.unwrap();
    world.script.vm().agent.end(&id, 3, false);
    world.ended(&id).await;
    // The driver has its turn: a container that may still run keeps the pod.
    world.pods.start_container(&second).await.unwrap();
    assert_eq!(world.pods.pod(&pod_id).unwrap().state, PodState::Ready);
    world.script.vm().agent.end(&second, 0, false);
    stopped(&world, &pod_id).await;
    let view = world.pods.container(&id).unwrap();
    assert_eq!((view.state, view.exit_code), (ContainerState::Exited, 3));
    assert_eq!(world.script.count("agent.shutdown"), 1);
    world.pods.remove(&pod_id).await.unwrap();
    world.assert_nothing_left();
}

#[tokio::test]
async fn a_pod_that_does_not_ask_for_it_stays_ready() {
    let world = World::new().await;
    let (pod_id, id) = world.with_container().await;
    world.script.vm().agent.end(&id, 0, false);
    world.ended(&id).await;
    world.pods.create_container(&pod_id, container("second")).await.unwrap();
    assert_eq!(world.pods.pod(&pod_id).unwrap().state, PodState::Ready);
}

#[tokio::test]
async fn a_pod_whose_vm_ends_stops_too() {
    let world = World::new().await;
    let (pod_id, id) = with_container(&world, stopping("job")).await;
    world.script.vm().crash("");
    stopped(&world, &pod_id).await;
    assert_eq!(world.pods.container(&id).unwrap().exit_code, 137);
    assert!(world.pods.pod(&pod_id).unwrap().message.is_some());
}

#[tokio::test]
async fn a_stop_that_fails_is_not_tried_until_somebody_asks() {
    let world = World::new().await;
    let (pod_id, id) = with_container(&world, stopping("job")).await;
    world.script.fail("network.teardown");
    world.script.vm().agent.end(&id, 0, false);
    world.until(|world| world.pods.pod(&pod_id).unwrap().unclean.is_some()).await;
    assert_eq!(world.script.count("network.teardown"), 1);
    world.script.repair();
    world.pods.stop(&pod_id).await.unwrap();
    stopped(&world, &pod_id).await;
}

#[test]
fn an_end_that_no_daemon_sees_stops_the_pod_at_the_next_start() {
    for ends_unseen in [true, false] {
        let (left, (pod_id, id)) = life(None, async |world: &World| {
            let (pod_id, id) = with_container(world, stopping("job")).await;
            if !ends_unseen {
                // Killed within the stop.
                world.script.hang("agent.shutdown");
                world.script.vm().agent.end(&id, 4, false);
                world.until(|world| world.script.count("agent.shutdown") == 1).await;
            }
            (pod_id, id)
        });
        left.1.repair();
        if ends_unseen {
            left.1.vm().agent.end(&id, 4, false);
        }
        life(Some(left), async |world: &World| {
            stopped(world, &pod_id).await;
            assert_eq!(world.pods.container(&id).unwrap().exit_code, 4);
            world.pods.remove(&pod_id).await.unwrap();
            world.assert_nothing_left();
        });
    }
}
