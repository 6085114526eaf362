//! Pooled VMMs without a guest: their assignment to pods, and the fate of unused ones.

use std::sync::Arc;

use runtime_spec::TemplateScope;

use super::world::Left;
use super::{Script, World, life, pod};
use crate::PodState;

/// A script with this limit of pooled VMMs.
fn wanting(spare_vmms: u8) -> Script {
    let script = Script::default();
    script.state().spare_vmms = spare_vmms;
    script
}

impl World {
    /// How often each of these steps was taken.
    fn steps<const N: usize>(&self, steps: [&str; N]) -> [usize; N] {
        steps.map(|step| self.script.count(step))
    }
}

#[tokio::test]
async fn a_pod_boots_in_the_vmm_that_waits_and_has_its_id() {
    let world = World::scripted(wanting(1)).await;
    world.spares(1).await;
    let waiting = world.unclaimed();
    assert_eq!(world.pods.ids(), waiting, "the doctor takes nothing of it for a leftover");
    assert_eq!(world.steps(["vm.spawn", "vm.boot"]), [1, 0]);
    let id = world.pods.run(pod("web")).await.unwrap();
    assert_eq!(waiting, std::slice::from_ref(&id));
    assert_eq!(world.pods.pod(&id).unwrap().state, PodState::Ready);
    assert_eq!(world.steps(["vm.enter_cgroups", "vm.boot", "vm.plug_scratch"]), [1, 1, 1]);
    // Another one waits for the next pod.
    world.spares(1).await;
    assert_eq!(world.steps(["vm.spawn", "vm.boot"]), [2, 1]);
    world.pods.remove(&id).await.unwrap();
    assert_eq!(world.script.running().len(), 1, "the one that waits");
}

#[tokio::test]
async fn a_pod_starts_from_a_template_in_the_vmm_that_waits() {
    let script = wanting(1);
    script.state().template = TemplateScope::Node;
    let world = World::scripted(script).await;
    world.pods.run(pod("first")).await.unwrap();
    world.spares(1).await;
    let [spawned, restored, taken] = world.steps(["vm.spawn", "vm.restore", "vm.enter_cgroups"]);
    world.pods.run(pod("second")).await.unwrap();
    assert_eq!(world.steps(["vm.restore", "vm.enter_cgroups"]), [restored + 1, taken + 1]);
    world.spares(1).await;
    assert_eq!(world.script.count("vm.spawn"), spawned + 1, "for the pod after it");
}

#[tokio::test]
async fn a_vm_that_waits_comes_before_a_vmm_that_does() {
    let script = wanting(1);
    script.state().template = TemplateScope::Node;
    script.state().spare_vms = 1;
    let world = World::scripted(script).await;
    world.spares(2).await;
    let restored = world.script.count("vm.restore");
    world.pods.run(pod("web")).await.unwrap();
    assert_eq!(world.script.count("agent.prepare"), 1);
    world.spares(2).await;
    assert_eq!(world.script.count("vm.restore"), restored + 1, "the next one that waits");
}

#[tokio::test]
async fn as_many_wait_as_pods_took_and_no_more_than_are_allowed() {
    let world = World::scripted(wanting(2)).await;
    world.spares(1).await;
    for name in ["one", "two", "three"] {
        world.pods.run(pod(name)).await.unwrap();
    }
    world.spares(2).await;
}

#[tokio::test]
async fn a_vmm_that_is_no_good_is_ended_and_the_pod_gets_another() {
    let world = World::scripted(wanting(1)).await;
    world.spares(1).await;
    world.script.fail("vm.enter_cgroups");
    let id = world.pods.run(pod("one")).await.unwrap();
    assert_eq!(world.pods.pod(&id).unwrap().state, PodState::Ready);
    assert_eq!(world.script.count("vm.boot"), 1);
    world.script.repair();
    world.spares(1).await;
    assert_eq!(world.script.running().len(), 2, "the pod's, and the one that waits");
}

#[tokio::test]
async fn a_vmm_that_ended_while_it_waited_is_nobodys() {
    let world = World::scripted(wanting(1)).await;
    world.spares(1).await;
    let dead = world.unclaimed();
    world.script.running()[0].kill();
    let id = world.pods.run(pod("web")).await.unwrap();
    assert_ne!(dead, [id]);
    world.until(|world| world.unclaimed() != dead && world.node.spares.waiting() == 1).await;
    assert_eq!(world.script.running().len(), 2);
}

#[tokio::test]
async fn a_start_that_fails_in_a_vmm_that_waited_leaves_nothing() {
    for step in ["vm.boot", "vm.wait_ready", "network.setup", "vm.plug_scratch", "agent.configure"] {
        let world = World::scripted(wanting(1)).await;
        world.spares(1).await;
        world.script.fail(step);
        world.pods.run(pod("web")).await.unwrap_err();
        world.script.repair();
        world.spares(1).await;
        assert_eq!(world.pods.ids(), world.unclaimed(), "{step}");
        assert_eq!(world.script.running().len(), 1, "{step}");
        assert!(world.pods.run(pod("web")).await.is_ok(), "{step}");
    }
}

#[tokio::test]
async fn a_vmm_that_cannot_be_made_leaves_nothing_and_pods_start_without() {
    let script = wanting(1);
    script.fail("vm.spawn");
    let world = World::scripted(script).await;
    world.until(|world| world.script.count("vm.spawn") > 0 && world.unclaimed().is_empty()).await;
    assert_eq!((world.directories(), world.script.running().len()), (0, 0));
    world.script.repair();
    world.pods.run(pod("web")).await.unwrap();
    assert_eq!(world.script.count("vm.spawn"), 2, "one for the pod; the other is tried again after a while");
}

#[tokio::test]
async fn a_daemon_that_stops_leaves_no_vmm_without_a_pod() {
    let world = World::scripted(wanting(1)).await;
    world.spares(1).await;
    world.pods.close().await;
    assert_eq!((world.directories(), world.script.running().len()), (0, 0));
}

#[test]
fn a_daemon_that_is_killed_leaves_what_the_next_one_takes_away() {
    let left: Left = (Arc::new(World::files()), Arc::new(wanting(1)));
    let (left, ()) = life(Some(left), async |world| world.spares(1).await);
    left.1.state().spare_vmms = 0;
    let (left, ()) = life(Some(left), async |world| world.until(|world| world.directories() == 0).await);
    assert!(left.1.running().is_empty());
}
