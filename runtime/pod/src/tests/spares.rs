//! Pooled VMs: their assignment to pods, and the fate of unused ones.

use std::sync::Arc;

use runtime_spec::{PodSpec, Resources, TemplateScope};

use super::world::Left;
use super::{Script, World, life, pod};
use crate::PodState;
use crate::config::StartConfig;

/// A script with this limit of pooled VMs.
fn wanting(spare_vms: u8) -> Script {
    let script = Script::default();
    script.state().template = TemplateScope::Node;
    script.state().spare_vms = spare_vms;
    script
}

impl World {
    /// Waits until so many VMs and VMMs wait for pods, and nothing else is to be done.
    pub(super) async fn spares(&self, count: usize) {
        self.until(|world| world.node.spares.waiting() == count && world.node.templates.is_idle()).await;
    }

    /// Ids of VMs and VMMs without a pod.
    pub(super) fn unclaimed(&self) -> Vec<String> {
        self.node.unclaimed.all()
    }

    /// Starts a pod and waits until it is ready. Returns its id.
    async fn started(&self, spec: PodSpec) -> String {
        let id = self.pods.run(spec).await.unwrap();
        assert_eq!(self.pods.pod(&id).unwrap().state, PodState::Ready);
        id
    }
}

#[tokio::test]
async fn a_pod_gets_the_vm_that_waits_with_its_id_and_all_that_is_prepared() {
    let world = World::scripted(wanting(1)).await;
    world.spares(1).await;
    let spare = world.unclaimed();
    assert_eq!(spare.len(), 1);
    assert_eq!(world.pods.ids(), spare, "the doctor takes nothing of it for a leftover");
    assert!(world.pods.pods().is_empty());
    let [scratch, restored] = ["vm.plug_scratch", "vm.restore"].map(|step| world.script.count(step));
    let id = world.started(pod("web")).await;
    assert_eq!(spare, std::slice::from_ref(&id));
    let steps = ["vm.enter_cgroups", "agent.prepare", "agent.configure", "vm.boot"];
    assert_eq!(steps.map(|step| world.script.count(step)), [1, 1, 1, 0]);
    // Another one is made for the next pod, and nothing for this one.
    world.spares(1).await;
    assert_eq!(
        (world.script.count("vm.plug_scratch"), world.script.count("vm.restore")),
        (scratch + 1, restored + 1)
    );
    let mut ids = world.pods.ids();
    ids.sort();
    let mut known = world.unclaimed();
    known.push(id);
    known.sort();
    assert_eq!(ids, known);
}

#[tokio::test]
async fn vms_without_a_pod_are_killed_first_and_a_claimed_one_as_any_pods() {
    let script = wanting(1);
    script.state().spare_vmms = 1;
    let world = World::scripted(script).await;
    world.spares(2).await;
    let count = |step: &str| world.script.count(step);
    assert_eq!((count("vm.spawn"), count("vm.oom_score 1000")), (3, 3), "the template's too");
    assert_eq!(count("vm.oom_score -998"), 0);
    world.started(pod("web")).await;
    world.spares(2).await;
    assert_eq!((count("vm.oom_score -998"), count("vm.enter_cgroups")), (1, 1));
}

#[tokio::test]
async fn a_spare_that_keeps_its_oom_score_becomes_no_pods() {
    let world = World::scripted(wanting(1)).await;
    world.spares(1).await;
    let spare = world.script.vm();
    world.script.fail("vm.oom_score -998");
    world.started(pod("web")).await;
    world.script.repair();
    assert!(world.script.running().iter().all(|vm| !Arc::ptr_eq(vm, &spare)));
}

#[tokio::test]
async fn the_same_pod_asked_for_twice_takes_one_spare() {
    let world = World::scripted(wanting(1)).await;
    world.spares(1).await;
    let (first, second) = tokio::join!(world.pods.run(pod("web")), world.pods.run(pod("web")));
    assert_eq!(first.unwrap(), second.unwrap());
    assert_eq!(world.script.count("vm.enter_cgroups"), 1);
}

#[tokio::test]
async fn as_many_wait_as_pods_were_asked_for_and_no_more_than_the_handler_allows() {
    let world = World::scripted(wanting(2)).await;
    world.spares(1).await;
    for name in ["one", "two", "three"] {
        world.started(pod(name)).await;
    }
    world.spares(2).await;
    // Pods of a size without spares are served without them, and counted.
    let resources = Resources { memory_limit_bytes: 40 << 20, ..Resources::default() };
    let small = |name| PodSpec { resources: Some(resources.clone()), ..pod(name) };
    let claimed = world.script.count("vm.enter_cgroups");
    world.started(small("first")).await;
    world.started(small("second")).await;
    assert_eq!(world.script.count("vm.enter_cgroups"), claimed);
    world.until(|world| world.script.count("vm.boot_template") == 2).await;
    world.spares(2).await;
    world.started(small("third")).await;
    assert_eq!(world.script.count("vm.enter_cgroups"), claimed + 1);
}

#[tokio::test]
async fn a_single_pod_of_an_odd_size_makes_no_template_and_takes_no_spares_place() {
    let world = World::scripted(wanting(2)).await;
    world.spares(1).await;
    let waiting = world.unclaimed();
    world.started(pod("usual")).await;
    let resources = Resources { memory_limit_bytes: 40 << 20, ..Resources::default() };
    world.started(PodSpec { resources: Some(resources), ..pod("odd") }).await;
    // The task checks the effects of both, and makes a spare for another usual pod.
    world.until(|world| world.unclaimed() != waiting && world.node.spares.waiting() == 1).await;
    world.spares(1).await;
    assert_eq!(world.script.count("vm.boot_template"), 1);
}

#[tokio::test]
async fn a_vm_that_cannot_be_made_holds_up_no_vmm() {
    let script = wanting(1);
    script.state().spare_vmms = 1;
    script.fail("vm.restore");
    let world = World::scripted(script).await;
    world.until(|world| world.script.count("vm.restore") > 0 && world.node.spares.waiting() == 1).await;
    world.script.repair();
    world.started(pod("web")).await;
    world.spares(1).await;
    assert_eq!(world.script.count("vm.enter_cgroups"), 1, "the VMM that waited, and another one waits");
}

#[tokio::test]
async fn a_spare_that_is_no_good_is_ended_and_the_pod_starts_without() {
    let world = World::scripted(wanting(1)).await;
    world.spares(1).await;
    world.script.fail("vm.enter_cgroups");
    let restored = world.script.count("vm.restore");
    world.started(pod("one")).await;
    assert!(world.script.count("vm.restore") > restored);
    world.script.repair();
    world.spares(1).await;
    assert_eq!(world.script.running().len(), 2, "the pod's, and the one that waits");
}

#[tokio::test]
async fn a_vm_that_ended_while_it_waited_is_nobodys() {
    let world = World::scripted(wanting(1)).await;
    world.spares(1).await;
    let dead = world.unclaimed();
    world.script.running()[0].kill();
    let id = world.started(pod("web")).await;
    assert_ne!(dead, [id]);
    world.until(|world| world.unclaimed() != dead && world.node.spares.waiting() == 1).await;
    assert_eq!(world.script.running().len(), 2);
}

#[tokio::test]
async fn spares_that_nobody_wants_any_more_are_ended_and_leave_nothing() {
    let world = World::scripted(wanting(1)).await;
    world.spares(1).await;
    let mut rules = StartConfig::clone(&world.node.start.now());
    rules.handlers[0].spare_vms = 0;
    world.pods.set_start(rules);
    world.until(|world| world.unclaimed().is_empty()).await;
    assert_eq!((world.directories(), world.script.running().len()), (0, 0));
}

#[tokio::test]
async fn a_daemon_that_stops_leaves_no_vm_without_a_pod() {
    let world = World::scripted(wanting(1)).await;
    world.spares(1).await;
    world.started(pod("web")).await;
    world.pods.close().await;
    world.until(|world| world.script.running().len() == 1).await;
    assert_eq!(world.unclaimed(), Vec::<String>::new());
}

#[tokio::test]
async fn a_daemon_that_stops_leaves_no_vm_that_was_being_made() {
    for step in ["vm.restore", "vm.wake", "vm.wait_ready"] {
        let script = wanting(1);
        script.hang(step);
        let world = World::scripted(script).await;
        world.until(|world| world.script.count(step) == 1).await;
        assert_eq!(world.script.running().len(), 1, "{step}");
        world.pods.close().await;
        assert_eq!((world.directories(), world.script.running().len()), (0, 0), "{step}");
        world.pods.close().await;
    }
}

#[test]
fn a_daemon_that_is_killed_leaves_a_vm_that_the_next_one_ends() {
    let left: Left = (Arc::new(World::files()), Arc::new(wanting(1)));
    let (left, ()) = life(Some(left), async |world| world.spares(1).await);
    assert_eq!(left.1.running().len(), 1);
    left.1.state().spare_vms = 0;
    let (left, ()) = life(Some(left), async |world| world.until(|world| world.directories() == 0).await);
    assert!(left.1.running().is_empty());
}

#[tokio::test]
async fn a_spare_that_cannot_be_made_leaves_nothing_and_pods_start_without() {
    for step in ["vm.restore", "vm.wake", "vm.wait_ready", "vm.plug_scratch", "agent.prepare"] {
        let script = wanting(1);
        script.fail(step);
        let world = World::scripted(script).await;
        world.until(|world| world.script.count(step) > 0 && world.unclaimed().is_empty()).await;
        assert_eq!((world.directories(), world.script.running().len()), (0, 0), "{step}");
        world.script.repair();
        world.started(pod("web")).await;
        assert!(world.script.count(step) <= 2, "{step}: it is tried again after a while");
    }
}
