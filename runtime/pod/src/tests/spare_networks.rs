//! Pooled network namespaces.

use super::{Script, World, pod};
use crate::{PodState, spares};

/// A world where so many namespaces are to wait.
async fn wanting(count: usize, script: Script) -> World {
    script.state().spare_networks_wanted = count;
    let world = World::scripted(script).await;
    spares::networks::begin(&world.node);
    world
}

impl World {
    /// Waits until so many namespaces wait.
    async fn namespaces(&self, count: usize) {
        self.until(|world| world.script.state().spare_networks == count).await;
    }
}

#[tokio::test]
async fn as_many_namespaces_wait_as_are_wanted_and_a_pods_is_replaced() {
    let world = wanting(2, Script::default()).await;
    world.namespaces(2).await;
    world.pods.run(pod("web")).await.unwrap();
    world.until(|world| world.script.count("network.make_spare") == 3).await;
    world.namespaces(2).await;
}

#[tokio::test]
async fn a_namespace_that_cannot_be_made_keeps_no_pod_from_starting() {
    let script = Script::default();
    script.fail("network.make_spare");
    let world = wanting(1, script).await;
    world.until(|world| world.script.count("network.make_spare") == 1).await;
    let id = world.pods.run(pod("web")).await.unwrap();
    assert_eq!(world.pods.pod(&id).unwrap().state, PodState::Ready);
    assert_eq!(world.script.count("network.make_spare"), 1, "the next pod is no reason to try again");
}
