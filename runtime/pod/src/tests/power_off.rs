//! The node goes down, and takes its pods along in order.

use std::time::Duration;

use super::found_again::recovering;
use super::{World, container, life, pod};
use crate::{ContainerState, PodState};

/// The times with the unit's stop timeout.
const GRACE: Duration = Duration::from_secs(90);
const WITHIN: Duration = Duration::from_secs(120);

#[tokio::test(start_paused = true)]
async fn containers_are_asked_first_and_guests_write_their_disks_before_their_vms_end() {
    let world = World::new().await;
    let (pod_id, id) = world.with_container().await;
    let other = world.pods.run(pod("other")).await.unwrap();
    world.pods.create_container(&other, container("created")).await.unwrap();
    world.pods.power_off(GRACE, WITHIN).await;
    let view = world.pods.container(&id).unwrap();
    assert_eq!((view.state, view.exit_code), (ContainerState::Exited, 143));
    assert!(world.script.running().is_empty());
    let seen = world.script.state().seen.clone();
    let at = |step: &str| seen.iter().rposition(|seen| seen == step).unwrap();
    assert!(at("agent.signal 15") < at("agent.shutdown") && at("agent.shutdown") < at("vm.shutdown"));
    assert_eq!((world.script.count("agent.shutdown"), world.script.count("vm.shutdown")), (2, 2));
    for id in [&pod_id, &other] {
        let view = world.pods.pod(id).unwrap();
        assert_eq!((view.state, view.message.as_deref()), (PodState::NotReady, Some("the node went down")));
    }
    assert_eq!(world.script.state().networks.len(), 2, "a kubelet stops the pods after the reboot");
}

#[tokio::test(start_paused = true)]
async fn what_ignores_its_signal_is_killed_after_its_time_and_holds_up_no_other_pod() {
    let world = World::new().await;
    let (_, id) = world.with_container().await;
    world.pods.run(pod("other")).await.unwrap();
    world.script.state().stubborn = true;
    let pods = world.pods.clone();
    let down = tokio::spawn(async move { pods.power_off(GRACE, WITHIN).await });
    world.until(|world| world.script.running().len() == 1).await;
    down.await.unwrap();
    assert_eq!(world.pods.container(&id).unwrap().exit_code, 137);
    assert!(world.script.running().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_guest_writes_its_disks_in_time_although_a_killed_container_still_writes() {
    let world = World::new().await;
    world.with_container().await;
    {
        let mut state = world.script.state();
        (state.flushing, state.written_bytes_each, state.stubborn) = (u32::MAX, 2 << 20, true);
    }
    let down = world.pods.power_off(GRACE, WITHIN);
    tokio::time::timeout(WITHIN, down).await.expect("the node does not wait for longer");
    let seen = world.script.state().seen.clone();
    let at = |step: &str| seen.iter().rposition(|seen| seen == step).unwrap();
    assert!(at("agent.signal 9 all") < at("agent.shutdown") && at("agent.shutdown") < at("vm.shutdown"));
    assert!(world.script.running().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_is_being_stopped_is_waited_for() {
    let world = World::new().await;
    let (pod_id, id) = world.with_container().await;
    {
        let mut state = world.script.state();
        (state.flushing, state.written_bytes_each) = (5, 2 << 20);
    }
    let (pods, stopped) = (world.pods.clone(), pod_id.clone());
    let stopping = tokio::spawn(async move { pods.stop(&stopped).await });
    world.until(|world| world.pods.pod(&pod_id).unwrap().state == PodState::NotReady).await;
    world.pods.power_off(GRACE, WITHIN).await;
    assert!(world.script.running().is_empty());
    assert_eq!(world.ended(&id).await.message, "", "it ended by itself");
    stopping.await.unwrap().unwrap();
}

/// As where a package's upgrade restarts the daemon, and the node goes down at once.
#[test]
fn a_pod_that_is_still_being_recovered_ends_in_order_too() {
    let (left, ()) = life(None, async |world: &World| {
        world.with_container().await;
    });
    left.1.fail("vm.connect");
    recovering(left, async |world: &World| {
        let repairing = async {
            world.until(|world| world.script.count("vm.connect") > 0).await;
            world.script.repair();
        };
        tokio::join!(world.pods.power_off(GRACE, WITHIN), repairing);
        let counted = ["agent.signal 15", "agent.shutdown"].map(|step| world.script.count(step));
        assert_eq!(counted, [1, 1]);
        assert!(world.script.running().is_empty());
    });
}

#[test]
fn the_next_daemon_finds_the_pods_not_ready_and_can_remove_them() {
    let (left, (pod_id, id)) = life(None, async |world: &World| {
        let ids = world.with_container().await;
        world.pods.power_off(GRACE, WITHIN).await;
        ids
    });
    life(Some(left), async |world: &World| {
        let view = world.pods.pod(&pod_id).unwrap();
        assert_eq!((view.state, view.message.as_deref()), (PodState::NotReady, Some("the node went down")));
        assert_eq!(world.pods.container(&id).unwrap().exit_code, 143);
        world.pods.remove(&pod_id).await.unwrap();
        world.assert_nothing_left();
    });
}
