//! Usage of pods, and its values when a guest lies, hangs or ends.

use std::time::Duration;

use proto_agent::agent::{ContainerUsage, CpuUsage, InterfaceUsage, UsageResponse};

use super::{World, container, pod};
use crate::PodErrorKind;

/// An answer with these containers' CPU time in microseconds.
fn used(containers: &[(&str, u64)]) -> UsageResponse {
    let containers = containers.iter().map(|(id, usage_us)| ContainerUsage {
        container_id: (*id).to_owned(),
        cpu: Some(CpuUsage { usage_us: *usage_us, ..Default::default() }).into(),
        ..Default::default()
    });
    let interfaces = vec![InterfaceUsage { name: "eth0".into(), rx_bytes: 5, ..Default::default() }];
    UsageResponse { containers: containers.collect(), interfaces, ..Default::default() }
}

#[tokio::test]
async fn containers_come_with_a_rate_from_the_second_reading_on() {
    let world = World::new().await;
    let (pod_id, id) = world.with_container().await;
    tokio::time::pause();
    world.script.state().usage = used(&[(&id, 1_000_000), ("of nobody", 1)]);
    let usage = world.pods.usage(&pod_id).await.unwrap();
    let guest = usage.guest.unwrap();
    assert!(usage.host.at_ns > 0 && guest.at_ns > 0);
    assert_eq!(guest.containers.keys().collect::<Vec<_>>(), [&id]);
    let cpu = &guest.containers[&id].cpu;
    assert_eq!((cpu.usage_ns, cpu.nano_cores), (1_000_000_000, None));
    assert_eq!(guest.interfaces[0].rx_bytes, 5);

    tokio::time::advance(Duration::from_secs(10)).await;
    world.script.state().usage = used(&[(&id, 6_000_000)]);
    let guest = world.pods.usage(&pod_id).await.unwrap().guest.unwrap();
    let nano_cores = guest.containers[&id].cpu.nano_cores.unwrap();
    // Time went on a little by itself.
    assert!((490_000_000..=500_000_000).contains(&nano_cores), "{nano_cores}");
}

#[tokio::test]
async fn a_guest_that_hangs_is_shown_with_its_last_answer_and_keeps_nobody_waiting() {
    let world = World::new().await;
    let (pod_id, id) = world.with_container().await;
    world.script.state().usage = used(&[(&id, 1)]);
    let before = world.pods.usage(&pod_id).await.unwrap().guest.unwrap();
    world.script.hang("agent.usage");
    let other = world.pods.run(pod("other")).await.unwrap();
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(1)).await;
    let usages = world.pods.usages([pod_id.as_str(), other.as_str(), "none"]).await;
    assert_eq!(usages.len(), 2);
    let guest = usages[0].guest.as_ref().unwrap();
    assert_eq!((guest.at_ns, &guest.containers), (before.at_ns, &before.containers));
    assert!(usages[1].guest.is_none() && usages[1].host.at_ns > 0);
}

#[tokio::test]
async fn many_who_ask_at_once_are_one_request_to_the_guest() {
    let world = World::new().await;
    let (pod_id, _) = world.with_container().await;
    world.script.hang("agent.usage");
    tokio::time::pause();
    let usages = world.pods.usages([pod_id.as_str(); 20]).await;
    assert_eq!(usages.len(), 20);
    assert_eq!(world.script.count("agent.usage"), 1);
}

#[tokio::test(start_paused = true)]
async fn those_who_ask_within_a_second_share_one_answer() {
    let world = World::new().await;
    let (pod_id, id) = world.with_container().await;
    world.script.state().usage = used(&[(&id, 1)]);
    let first = world.pods.usage(&pod_id).await.unwrap().guest.unwrap();
    tokio::time::advance(Duration::from_millis(900)).await;
    let second = world.pods.usage(&pod_id).await.unwrap().guest.unwrap();
    assert_eq!((world.script.count("agent.usage"), second.at_ns), (1, first.at_ns));
    tokio::time::advance(Duration::from_millis(200)).await;
    world.pods.usage(&pod_id).await.unwrap();
    assert_eq!(world.script.count("agent.usage"), 2);
}

#[tokio::test(start_paused = true)]
async fn a_container_that_has_started_since_the_last_answer_is_asked_for() {
    let world = World::new().await;
    let (pod_id, id) = world.with_container().await;
    world.script.state().usage = used(&[(&id, 1)]);
    world.pods.usage(&pod_id).await.unwrap();
    let other = world.pods.create_container(&pod_id, container("other")).await.unwrap();
    world.pods.start_container(&other).await.unwrap();
    world.script.state().usage = used(&[(&id, 1), (&other, 1)]);
    let guest = world.pods.usage(&pod_id).await.unwrap().guest.unwrap();
    assert!(guest.containers.contains_key(&other));
}

#[tokio::test]
async fn what_vms_take_of_the_node_is_known_without_their_guests() {
    let world = World::new().await;
    let (pod_id, _) = world.with_container().await;
    let usages = world.pods.usages_on_host([pod_id.as_str(), "none"]).await;
    assert!(usages.len() == 1 && usages[0].at_ns > 0);
    assert_eq!(world.script.count("agent.usage"), 0);
}

#[tokio::test(start_paused = true)]
async fn a_refusal_keeps_the_last_answer_and_the_next_request_is_a_new_one() {
    let world = World::new().await;
    let (pod_id, id) = world.with_container().await;
    world.script.state().usage = used(&[(&id, 1)]);
    world.pods.usage(&pod_id).await.unwrap();
    world.script.fail("agent.usage");
    tokio::time::advance(Duration::from_secs(1)).await;
    let guest = world.pods.usage(&pod_id).await.unwrap().guest.unwrap();
    assert_eq!(guest.containers[&id].cpu.usage_ns, 1000);
    world.script.repair();
    world.script.state().usage = used(&[(&id, 2)]);
    let guest = world.pods.usage(&pod_id).await.unwrap().guest.unwrap();
    assert_eq!(guest.containers[&id].cpu.usage_ns, 2000);
}

#[tokio::test]
async fn a_pod_without_a_vm_has_no_figures() {
    let world = World::new().await;
    let (pod_id, _) = world.with_container().await;
    assert_eq!(world.pods.usage("none").await.unwrap_err().kind(), PodErrorKind::NotFound);
    world.pods.stop(&pod_id).await.unwrap();
    assert_eq!(world.pods.usage(&pod_id).await.unwrap_err().kind(), PodErrorKind::FailedPrecondition);
    assert!(world.pods.usages([pod_id.as_str()]).await.is_empty());
}
