//! Pods that start from templates, and boot if there is no usable one.

use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use runtime_spec::{PodSpec, Resources, TemplateScope, VmBounds};

use super::vm::FakeVm;
use super::world::Left;
use super::{Script, World, life, pod};
use crate::PodState;
use crate::templates::{self, TemplateShape};
use crate::unclaimed::pauses;

/// A daemon with templates enabled.
async fn world(scope: TemplateScope) -> World {
    let script = Script::default();
    script.state().template = scope;
    World::scripted(script).await
}

impl World {
    /// Waits until nothing more is to be done about templates.
    async fn settled(&self) {
        self.until(|world| world.node.templates.is_idle()).await;
    }

    /// Starts the pod. Returns whether it came from a template.
    async fn restores(&self, pod: PodSpec) -> bool {
        let before = self.script.count("vm.restore");
        let id = self.pods.run(pod).await.unwrap();
        assert_eq!(self.pods.pod(&id).unwrap().state, PodState::Ready);
        self.script.count("vm.restore") > before
    }

    /// Lets time pass while nothing else happens.
    async fn skip(&self, time: Duration) {
        self.settled().await;
        tokio::time::pause();
        tokio::time::advance(time).await;
        tokio::time::resume();
    }

    fn template_files(&self) -> Vec<PathBuf> {
        let dirs = std::fs::read_dir(self.dir.path().join("state/templates")).into_iter().flatten();
        dirs.map(|entry| entry.unwrap().path()).collect()
    }
}

#[tokio::test]
async fn a_node_with_templates_makes_one_at_its_start_and_pods_go_on_from_it() {
    let world = world(TemplateScope::Node).await;
    world.settled().await;
    assert_eq!(world.directories(), 0, "the template's VM is gone");
    assert!(world.script.running().is_empty());
    assert!(world.restores(pod("one")).await);
    assert!(world.restores(PodSpec { namespace: "other".into(), ..pod("two") }).await);
    let state = world.script.state();
    assert_eq!(state.restored, vec![(true, b"guest 5000000".to_vec()); 2], "sealed, and as it was saved");
    let seen = |step: &str| state.seen.iter().filter(|seen| *seen == step).count();
    assert_eq!([seen("vm.boot_template"), seen("vm.save"), seen("vm.boot"), seen("vm.wake")], [1, 1, 0, 2]);
    let restored = state.seen.iter().position(|seen| seen == "vm.restore").unwrap();
    let rest = &state.seen[restored..];
    let after = |step: &str| rest.iter().position(|seen| seen == step).unwrap();
    assert!(after("vm.wake") < after("vm.wait_ready") && after("vm.wait_ready") < after("agent.configure"));
}

#[tokio::test]
async fn a_node_without_templates_boots_and_keeps_none() {
    let world = World::new().await;
    assert!(!world.restores(pod("web")).await);
    assert_eq!((world.script.count("vm.boot_template"), world.template_files().len()), (0, 0));
}

#[tokio::test]
async fn a_daemon_that_stops_leaves_no_vm_of_a_template_that_was_being_made() {
    let script = Script::default();
    script.state().template = TemplateScope::Node;
    script.hang("vm.boot_template");
    let world = World::scripted(script).await;
    world.until(|world| world.script.count("vm.boot_template") == 1).await;
    assert_eq!(world.script.running().len(), 1);
    world.pods.close().await;
    assert_eq!((world.directories(), world.script.running().len()), (0, 0));
    world.pods.close().await;
    assert_eq!(world.script.count("vm.boot_template"), 1, "no other is made");
}

#[tokio::test]
async fn pods_of_namespaces_share_no_template() {
    let world = world(TemplateScope::Namespace).await;
    for namespace in ["red", "blue"] {
        let named = |name: &str| PodSpec { namespace: namespace.into(), ..pod(name) };
        for boots in ["first", "second"] {
            assert!(!world.restores(named(boots)).await);
            world.settled().await;
        }
        assert!(world.restores(named("third")).await);
    }
    assert_eq!(world.script.count("vm.boot_template"), 2);
    let memories: Vec<_> = world.script.state().restored.iter().map(|(_, first)| first.clone()).collect();
    assert_ne!(memories[0], memories[1]);
}

/// A pod with a memory limit.
fn limited(name: &str, mib: i64) -> PodSpec {
    let resources = Resources { memory_limit_bytes: mib << 20, ..Resources::default() };
    PodSpec { resources: Some(resources), ..pod(name) }
}

#[tokio::test]
async fn a_size_has_a_template_from_its_second_pod_on() {
    let world = world(TemplateScope::Node).await;
    world.settled().await;
    assert!(!world.restores(limited("first", 40)).await);
    world.settled().await;
    assert_eq!(world.script.count("vm.boot_template"), 1, "the handler's own");
    assert!(!world.restores(limited("other", 48)).await);
    assert!(!world.restores(limited("second", 40)).await);
    world.settled().await;
    assert!(world.restores(limited("third", 40)).await);
    assert_eq!(world.script.count("vm.boot_template"), 2);
    assert!(world.restores(pod("without")).await);
}

#[tokio::test]
async fn a_much_larger_pod_starts_from_the_handlers_template_and_grows() {
    let world = world(TemplateScope::Node).await;
    world.settled().await;
    for mib in [1 << 10, 2 << 10] {
        assert!(world.restores(limited(&format!("large-{mib}"), mib)).await);
    }
    assert_eq!(world.script.count("vm.boot_template"), 1);
}

#[tokio::test]
async fn a_template_that_is_no_good_is_discarded_and_the_pod_boots() {
    for (step, doubted) in
        [("vm.restore", false), ("vm.wake", false), ("vm.wake", true), ("vm.wait_ready", true)]
    {
        let world = world(TemplateScope::Node).await;
        world.settled().await;
        match (step, doubted) {
            // The agents of VMs from it alone say nothing.
            ("vm.wait_ready", _) => world.script.state().silent_restored = true,
            (_, true) => world.script.fail(step),
            (_, false) => world.script.refuse(step),
        }
        // Without an answer it may be the node's fault, but not that often.
        let tries = if doubted { 3 } else { 1 };
        for tried in 0..tries {
            assert!(world.restores(pod(&format!("one-{tried}"))).await, "{step}: it is tried");
        }
        assert_eq!((world.script.count("vm.boot"), world.script.running().len()), (tries, tries), "{step}");
        world.script.repair();
        world.script.state().silent_restored = false;
        assert!(!world.restores(pod("two")).await, "{step}: the next is made after a while");
        world.settled().await;
        assert!(world.template_files().is_empty(), "{step}: no daemon finds it again");
        world.skip(pauses::FIRST).await;
        assert!(!world.restores(pod("three")).await, "{step}");
        world.settled().await;
        assert_eq!(world.script.count("vm.boot_template"), 2, "{step}: it is made anew");
        assert!(world.restores(pod("four")).await, "{step}");
    }
}

#[tokio::test]
async fn a_template_stays_if_the_node_may_be_to_blame_for_a_pods_failure() {
    let world = world(TemplateScope::Node).await;
    world.settled().await;
    // As under the node's memory pressure: the kernel kills the VMM.
    world.script.hang("vm.wait_ready");
    let killing = async {
        world.until(|world| world.script.count("vm.wait_ready") == 1).await;
        world.script.vm().kill();
        world.until(|world| world.script.count("vm.boot") == 1).await;
        world.script.repair();
    };
    let (restored, ()) = tokio::join!(world.restores(pod("killed")), killing);
    assert!(restored);
    for round in 0..3 {
        assert!(world.restores(pod(&format!("next-{round}"))).await, "the template is still there");
        world.script.fail("vm.restore");
        assert!(world.restores(pod(&format!("slow-{round}"))).await);
        world.script.repair();
    }
    assert!(world.restores(pod("last")).await);
    assert_eq!((world.script.count("vm.boot_template"), world.script.count("vm.boot")), (1, 4));
}

/// Such a guest has answered its daemon, so the pod does not boot instead: the next one does.
#[tokio::test]
async fn a_template_is_discarded_when_its_guests_cannot_be_configured_time_after_time() {
    let world = world(TemplateScope::Node).await;
    world.settled().await;
    let dies = async |name: &str| {
        let (before, others) = (world.script.count("agent.configure"), world.script.running());
        world.script.hang("agent.configure");
        let killing = async {
            world.until(|world| world.script.count("agent.configure") == before + 1).await;
            let is_new = |vm: &Arc<FakeVm>| !others.iter().any(|other| Arc::ptr_eq(vm, other));
            world.script.running().into_iter().find(is_new).unwrap().kill();
        };
        let (started, ()) = tokio::join!(world.pods.run(pod(name)), killing);
        world.script.repair();
        started.unwrap_err()
    };
    for round in 0..2 {
        dies(&format!("first-{round}")).await;
    }
    assert!(world.restores(pod("well")).await, "a pod that starts takes the doubts away");
    for round in 0..3 {
        dies(&format!("then-{round}")).await;
    }
    world.settled().await;
    assert_eq!(world.script.count("vm.boot_template"), 1, "after a failure the next one is made later");
    assert!(!world.restores(pod("next")).await);
}

#[tokio::test]
async fn a_template_stays_if_many_pods_fail_in_one_stall_of_the_node() {
    const PODS: usize = 5;
    let world = world(TemplateScope::Node).await;
    world.settled().await;
    world.script.hang("vm.wait_ready");
    let starting = (0..PODS).map(|number| world.pods.run(pod(&format!("stalled-{number}"))));
    let killing = async {
        world.until(|world| world.script.count("vm.wait_ready") == PODS).await;
        world.script.running().iter().for_each(|vm| vm.kill());
        world.until(|world| world.script.count("vm.boot") == PODS).await;
        world.script.repair();
    };
    let (started, ()) = tokio::join!(futures::future::join_all(starting), killing);
    assert!(started.into_iter().all(|started| started.is_ok()));
    assert!(world.restores(pod("next")).await, "the template is still there");
    assert_eq!(world.script.count("vm.boot_template"), 1);
}

#[tokio::test]
async fn templates_that_are_never_any_good_are_made_at_growing_intervals() {
    let world = world(TemplateScope::Node).await;
    world.settled().await;
    world.script.refuse("vm.restore");
    for (failures, pause) in [pauses::FIRST, pauses::FIRST * 2, pauses::FIRST * 4].into_iter().enumerate() {
        assert!(world.restores(pod(&format!("tries-{failures}"))).await);
        world.settled().await;
        world.skip(pause / 2).await;
        assert!(!world.restores(pod(&format!("early-{failures}"))).await);
        world.settled().await;
        assert_eq!(world.script.count("vm.boot_template"), failures + 1);
        world.skip(pause / 2).await;
        assert!(!world.restores(pod(&format!("later-{failures}"))).await);
        world.settled().await;
        assert_eq!(world.script.count("vm.boot_template"), failures + 2);
    }
}

#[tokio::test]
async fn a_template_that_is_used_up_is_made_anew() {
    let world = world(TemplateScope::Node).await;
    world.settled().await;
    let bounds = VmBounds::of(&PodSpec::default(), &world.node.start.now().handlers[0]).unwrap();
    let shape = TemplateShape::of(&bounds, "");
    let pods = (0..).take_while(|_| templates::take(&world.node, &shape).is_ok()).count();
    assert_eq!(pods, 1000);
    world.settled().await;
    assert_eq!(world.script.count("vm.boot_template"), 2);
    assert!(world.restores(pod("web")).await);
    assert_eq!(world.template_files().len(), 1);
}

#[tokio::test]
async fn a_template_that_cannot_be_made_is_tried_again_later_and_pods_boot() {
    for step in ["vm.spawn", "vm.boot_template", "vm.save"] {
        let script = Script::default();
        script.state().template = TemplateScope::Node;
        script.fail(step);
        let world = World::scripted(script).await;
        world.settled().await;
        world.script.repair();
        assert!(!world.restores(pod("one")).await);
        world.settled().await;
        assert!(!world.restores(pod("two")).await, "{step}");
        assert!(world.script.count(step) <= 3, "{step}: it is not tried for each pod");
        assert_eq!((world.directories(), world.script.running().len()), (4, 2), "{step}");
    }
}

fn wanting() -> (Left, ()) {
    let script = Script::default();
    script.state().template = TemplateScope::Node;
    let left = (std::sync::Arc::new(World::files()), std::sync::Arc::new(script));
    life(Some(left), async |world| world.settled().await)
}

#[test]
fn the_next_daemon_reads_the_template_from_the_disk() {
    let (left, ()) = wanting();
    let (left, restored) = life(Some(left), async |world| {
        world.settled().await;
        world.restores(pod("web")).await
    });
    assert!(restored);
    assert_eq!(left.1.count("vm.boot_template"), 1);
}

#[test]
fn an_odd_template_on_the_disk_is_found_out_and_made_anew() {
    let (left, ()) = wanting();
    let place = std::fs::read_dir(left.0.path().join("state/templates")).unwrap().next().unwrap().unwrap();
    let memory = std::fs::OpenOptions::new().write(true).open(place.path().join("memory")).unwrap();
    memory.write_all_at(b"x", 3).unwrap();
    let (left, restored) = life(Some(left), async |world| {
        world.settled().await;
        world.restores(pod("web")).await
    });
    assert!(restored);
    assert_eq!(left.1.count("vm.boot_template"), 2);
    assert_eq!(left.1.state().restored, [(true, b"guest 5000001".to_vec())], "not the odd one");
}

#[test]
fn a_template_of_another_build_is_not_used() {
    let (left, ()) = wanting();
    // A kernel of another size and time is another build.
    std::fs::write(left.0.path().join("kernel"), vec![2; 8192]).unwrap();
    let (left, ()) = life(Some(left), async |world| world.settled().await);
    assert_eq!(left.1.count("vm.boot_template"), 2);
}

#[test]
fn a_disk_that_takes_no_template_leaves_the_one_in_memory() {
    let script = Script::default();
    script.state().template = TemplateScope::Node;
    let dir = World::files();
    // A file where the directory is to be.
    std::fs::create_dir_all(dir.path().join("state")).unwrap();
    std::fs::write(dir.path().join("state/templates"), "").unwrap();
    let left = (std::sync::Arc::new(dir), std::sync::Arc::new(script));
    let (_, restored) = life(Some(left), async |world| {
        world.settled().await;
        world.restores(pod("web")).await
    });
    assert!(restored);
}

#[test]
fn templates_of_a_node_that_wants_none_any_more_are_removed() {
    let (left, ()) = wanting();
    assert!(left.0.path().join("state/templates").read_dir().unwrap().count() == 1);
    left.1.state().template = TemplateScope::Off;
    let (left, ()) =
        life(Some(left), async |world| world.until(|world| world.template_files().is_empty()).await);
    assert_eq!(left.1.count("vm.boot_template"), 1);
}
