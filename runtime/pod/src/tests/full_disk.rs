//! The state's disk is full, or fails: calls that free it go on, and calls that need it are refused.

use std::time::Duration;

use runtime_store::Table;

use super::{Fault, World, container, pod};
use crate::ContainerState;
use crate::record::{ContainerStage, ContainerStatus};

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
async fn a_disk_that_takes_no_changes_is_known_until_it_takes_one_again() {
    let world = World::new().await;
    assert_eq!(world.pods.records_trouble(), None);
    world.fill_disk(true);
    world.pods.run(pod("late")).await.unwrap_err();
    for _ in 0..3 {
        let trouble = world.pods.records_trouble().unwrap();
        assert!(trouble.contains("the disk is full"), "{trouble}");
        tokio::time::sleep(Duration::from_secs(5)).await;
    }
    world.fill_disk(false);
    // This is noticed even without a write.
    world.until(|world| world.pods.records_trouble().is_none()).await;
}

#[tokio::test(start_paused = true)]
async fn outcomes_are_on_disk_as_soon_as_there_is_room() {
    let world = World::new().await;
    let (pod_id, id) = world.with_container().await;
    world.fill_disk(true);
    world.pods.stop_container(&id, Duration::ZERO).await.unwrap();
    world.pods.remove(&pod_id).await.unwrap();
    assert_eq!(world.records().len(), 4, "the disk has the pod and its container still");
    assert!(world.pods.outcomes_wait());
    world.fill_disk(false);
    world.until(|world| world.records().is_empty() && !world.pods.outcomes_wait()).await;
    world.assert_nothing_left();
}

#[tokio::test(start_paused = true)]
async fn a_start_that_was_refused_is_on_no_disk_though_the_disk_took_it_as_it_failed() {
    let world = World::new().await;
    let pod_id = world.pods.run(pod("web")).await.unwrap();
    let id = world.pods.create_container(&pod_id, container("app")).await.unwrap();
    world.script.plan(Fault::Lose, 0);
    world.pods.start_container(&id).await.unwrap_err();
    assert_eq!(world.script.end_plan(), Some((Fault::Lose, "store.commit, answered".to_owned())));
    let store = world.node.records.store();
    let status: ContainerStatus = store.get(Table::ContainerStatuses, &id).unwrap().unwrap();
    assert_eq!(status.stage, ContainerStage::Created);
    world.pods.start_container(&id).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_vmm_that_reports_full_disks_without_end_is_heard_at_intervals() {
    let world = World::new().await;
    let id = world.pods.run(pod("web")).await.unwrap();
    let (disks, begun) = (world.script.vm().full_disks.clone(), tokio::time::Instant::now());
    let count = || world.pods.pod(&id).unwrap().full_disks;
    disks.send_replace(1);
    world.until(|_| count() == 1).await;
    let mut heard = vec![1];
    while begun.elapsed() < Duration::from_secs(60) {
        disks.send_modify(|count| *count += 1);
        tokio::time::sleep(Duration::from_millis(100)).await;
        if heard.last() != Some(&count()) {
            heard.push(count());
        }
    }
    assert!((10..=13).contains(&heard.len()), "{heard:?}");
    // Its last word is heard, and the pod's calls are answered.
    disks.send_replace(0);
    world.until(|_| count() == 0).await;
    world.pods.stop(&id).await.unwrap();
}
