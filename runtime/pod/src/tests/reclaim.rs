//! Guests are asked for memory of cached files while the node is short of memory.

use std::cell::Cell;

use super::{World, pod};
use crate::reclaim::from_guests;

#[tokio::test]
async fn every_guest_is_asked_for_what_it_caches_and_one_that_refuses_is_passed_over() {
    let world = World::new().await;
    for name in ["one", "two"] {
        world.pods.run(pod(name)).await.unwrap();
    }
    from_guests(&world.node, || true).await;
    assert_eq!(world.script.count("agent.reclaim"), 2);
    // Like an agent without this call.
    world.script.fail("agent.reclaim");
    from_guests(&world.node, || true).await;
    assert_eq!(world.script.count("agent.reclaim"), 4);
}

#[tokio::test]
async fn no_guest_is_asked_once_there_is_memory_again() {
    let world = World::new().await;
    for name in ["one", "two"] {
        world.pods.run(pod(name)).await.unwrap();
    }
    let short = Cell::new(true);
    from_guests(&world.node, || short.replace(false)).await;
    assert_eq!(world.script.count("agent.reclaim"), 1);
}

#[tokio::test]
async fn a_pod_without_a_vm_is_not_asked() {
    let world = World::new().await;
    let id = world.pods.run(pod("web")).await.unwrap();
    world.pods.stop(&id).await.unwrap();
    from_guests(&world.node, || true).await;
    assert_eq!(world.script.count("agent.reclaim"), 0);
}
