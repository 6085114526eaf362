//! The node's kernel kills VMMs for want of memory, and chooses by their scores.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use runtime_spec::{ContainerSpec, ExitReason, PodSpec, Resources};

use super::{World, container, life, pod};
use crate::PodErrorKind;

const PARENT: &str = "/kubepods/pod1";

/// Gives the node cgroups, with this limit on the pod's.
fn cgroups(world: &World, limit: &str) {
    let parent = world.node.places.cgroup_root.join(PARENT.trim_matches('/'));
    fs::create_dir_all(&parent).unwrap();
    fs::write(world.node.places.cgroup_root.join("cgroup.controllers"), "memory").unwrap();
    fs::write(parent.join("memory.max"), limit).unwrap();
}

fn in_cgroup(name: &str) -> PodSpec {
    PodSpec { cgroup_parent: PARENT.into(), ..pod(name) }
}

/// The VMM's cgroup.
fn own(world: &World, pod_id: &str) -> PathBuf {
    world.node.places.cgroup_root.join(format!("kubepods/pod1/podvisor-{pod_id}"))
}

/// Simulates the kernel's record of a VMM killed because its pod's limit was reached.
fn note_oom_kill(world: &World, pod_id: &str) {
    let own = own(world, pod_id);
    fs::write(own.parent().unwrap().join("memory.events.local"), "oom 1\noom_kill 0\n").unwrap();
    fs::write(own.join("memory.events"), "oom 0\noom_kill 1\n").unwrap();
}

const SAYS: &str = "the cgroup /kubepods/pod1 reached its limit of 512 MiB";

#[tokio::test]
async fn containers_of_a_vm_that_the_nodes_kernel_killed_are_oom_killed_with_the_limit() {
    let world = World::new().await;
    cgroups(&world, "536870912\n");
    let pod_id = world.pods.run(in_cgroup("web")).await.unwrap();
    let running = world.pods.create_container(&pod_id, container("running")).await.unwrap();
    world.pods.start_container(&running).await.unwrap();
    let created = world.pods.create_container(&pod_id, container("created")).await.unwrap();
    note_oom_kill(&world, &pod_id);
    world.script.vm().kill();
    for id in [running, created] {
        let view = world.ended(&id).await;
        assert_eq!((view.exit_code, view.reason), (137, Some(ExitReason::OomKilled)));
        assert!(view.message.contains(SAYS), "{}", view.message);
    }
    let message = world.pods.pod(&pod_id).unwrap().message.clone().unwrap();
    assert!(message.contains(SAYS) && message.contains("signal 9"), "{message}");
}

#[tokio::test]
async fn a_vm_that_ended_otherwise_is_no_matter_of_memory() {
    let world = World::new().await;
    cgroups(&world, "536870912\n");
    let pod_id = world.pods.run(in_cgroup("web")).await.unwrap();
    let id = world.pods.create_container(&pod_id, container("app")).await.unwrap();
    world.pods.start_container(&id).await.unwrap();
    fs::write(own(&world, &pod_id).join("memory.events"), "oom 0\noom_kill 0\n").unwrap();
    world.script.vm().kill();
    assert_eq!(world.ended(&id).await.reason, Some(ExitReason::Error));
}

#[test]
fn the_next_daemon_knows_that_memory_was_short() {
    let (left, (pod_id, id)) = life(None, async |world: &World| {
        cgroups(world, "536870912\n");
        let pod_id = world.pods.run(in_cgroup("web")).await.unwrap();
        let id = world.pods.create_container(&pod_id, container("app")).await.unwrap();
        world.pods.start_container(&id).await.unwrap();
        note_oom_kill(world, &pod_id);
        (pod_id, id)
    });
    left.1.vm().kill();
    life(Some(left), async |world: &World| {
        let view = world.ended(&id).await;
        assert_eq!((view.exit_code, view.reason), (137, Some(ExitReason::OomKilled)));
        assert_eq!(view.message.matches(SAYS).count(), 1, "{}", view.message);
        assert!(world.pods.pod(&pod_id).unwrap().message.as_deref().unwrap().contains(SAYS));
    });
}

#[tokio::test]
async fn a_start_that_memory_was_short_for_says_so() {
    let world = World::new().await;
    cgroups(&world, "536870912\n");
    world.script.hang("vm.wait_ready");
    let killing = async {
        world.until(|world| world.script.count("vm.wait_ready") == 1).await;
        let name = fs::read_dir(own(&world, "").parent().unwrap()).unwrap().flatten();
        let names = name.filter_map(|entry| entry.file_name().into_string().ok());
        let id = names.filter_map(|name| name.strip_prefix("podvisor-").map(str::to_owned)).next().unwrap();
        note_oom_kill(&world, &id);
        world.script.vm().kill();
    };
    let (outcome, ()) = tokio::join!(world.pods.run(in_cgroup("web")), killing);
    let error = outcome.unwrap_err().to_string();
    assert!(error.contains(SAYS) && error.contains("booting the VM"), "{error}");
}

#[tokio::test]
async fn a_vmm_has_the_lowest_score_of_its_containers_and_a_low_one_before() {
    let world = World::new().await;
    let scored = |name: &str, score| {
        let resources = Resources { oom_score_adj: score, ..Resources::default() };
        ContainerSpec { resources, ..container(name) }
    };
    let pod_id = world.pods.run(pod("web")).await.unwrap();
    world.pods.create_container(&pod_id, scored("first", 900)).await.unwrap();
    let second = world.pods.create_container(&pod_id, scored("second", 400)).await.unwrap();
    world.pods.create_container(&pod_id, scored("third", 950)).await.unwrap();
    world.pods.remove_container(&second).await.unwrap();
    world.script.fail("agent.create");
    world.pods.create_container(&pod_id, scored("fourth", 300)).await.unwrap_err();
    let seen = world.script.state().seen.clone();
    let scores: Vec<_> = seen.iter().filter_map(|step| step.strip_prefix("vm.oom_score ")).collect();
    assert_eq!(scores, ["-998", "900", "400", "900", "300", "900"]);
}

#[test]
fn a_daemon_that_comes_back_sets_the_score_again_and_a_score_that_cannot_be_set_keeps_nobody_out() {
    let (left, pod_id) = life(None, async |world: &World| world.with_container().await.0);
    left.1.fail("vm.oom_score 0");
    life(Some(left), async |world: &World| {
        assert_eq!(world.script.count("vm.oom_score 0"), 2);
        world.pods.create_container(&pod_id, container("second")).await.unwrap();
    });
}

fn memory(mib: i64) -> Resources {
    Resources { memory_limit_bytes: mib << 20, ..Resources::default() }
}

/// The VM's current and wanted sizes, in MiB.
fn sizes(world: &World, pod_id: &str) -> (u64, u64) {
    let ledger = &world.pods.pod(pod_id).unwrap().ledger;
    (ledger.size.memory_bytes >> 20, ledger.wanted_bytes >> 20)
}

#[tokio::test]
async fn a_vm_fits_into_its_pods_cgroup_and_grows_when_the_cgroup_does() {
    let world = World::new().await;
    cgroups(&world, &(256 << 20).to_string());
    let spec = PodSpec { resources: Some(memory(256)), ..in_cgroup("web") };
    let pod_id = world.pods.run(spec).await.unwrap();
    assert_eq!(sizes(&world, &pod_id), (238, 314));
    let limited = |name: &str, mib| ContainerSpec { resources: memory(mib), ..container(name) };
    let id = world.pods.create_container(&pod_id, limited("app", 100)).await.unwrap();
    world.pods.create_container(&pod_id, limited("large", 156)).await.unwrap();
    assert!(!world.script.state().seen.iter().any(|step| step.starts_with("vm.resize ")), "there is no room");
    // As the kubelet does before it resizes a pod in place.
    cgroups(&world, &(1024 << 20).to_string());
    world.pods.update_container(&id, memory(101)).await.unwrap();
    assert_eq!(sizes(&world, &pod_id), (314, 314));
    assert_eq!(world.script.count("vm.resize 314"), 1);
}

/// A pod whose cgroup has 256 MiB after an update to 512 MiB.
async fn updated(world: &World) -> String {
    cgroups(world, &(256 << 20).to_string());
    let spec = PodSpec { resources: Some(memory(256)), ..in_cgroup("web") };
    let pod_id = world.pods.run(spec).await.unwrap();
    world.pods.update_pod(&pod_id, memory(512), Resources::default()).await.unwrap();
    assert_eq!(sizes(world, &pod_id), (238, WANTED));
    assert!(!was_resized(world), "there is no room");
    pod_id
}

/// Memory wanted for the VM of the updated pod, in MiB.
const WANTED: u64 = 574;

fn was_resized(world: &World) -> bool {
    world.script.state().seen.iter().any(|step| step.starts_with("vm.resize "))
}

#[tokio::test(start_paused = true)]
async fn a_pods_vm_grows_when_its_cgroup_is_raised_soon_after_the_update() {
    for late_s in [0, 3, 25] {
        let world = World::new().await;
        let pod_id = updated(&world).await;
        tokio::time::sleep(Duration::from_secs(late_s)).await;
        // As kubelets do from 1.36 on.
        cgroups(&world, &(1024 << 20).to_string());
        world.until(|world| sizes(world, &pod_id) == (WANTED, WANTED)).await;
        assert_eq!(world.script.count(&format!("vm.resize {WANTED}")), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_cgroup_raised_much_later_is_seen_at_the_next_change() {
    let world = World::new().await;
    let pod_id = updated(&world).await;
    tokio::time::sleep(Duration::from_secs(31)).await;
    cgroups(&world, &(1024 << 20).to_string());
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert!(!was_resized(&world));
    world.pods.update_pod(&pod_id, memory(512), Resources::default()).await.unwrap();
    assert_eq!(sizes(&world, &pod_id), (WANTED, WANTED));
}

#[tokio::test(start_paused = true)]
async fn a_vm_that_cannot_grow_into_its_cgroup_keeps_its_size() {
    let world = World::new().await;
    let pod_id = updated(&world).await;
    world.script.fail(&format!("vm.resize {WANTED}"));
    cgroups(&world, &(1024 << 20).to_string());
    world.until(|world| world.script.count("vm.resize 238") == 1).await;
    world.script.repair();
    world.pods.update_pod(&pod_id, memory(512), Resources::default()).await.unwrap();
    assert_eq!(sizes(&world, &pod_id), (WANTED, WANTED));
    assert_eq!(world.script.count(&format!("vm.resize {WANTED}")), 2);
}

#[test]
fn the_next_daemon_looks_at_the_cgroup_again() {
    let (left, pod_id) = life(None, async |world: &World| {
        cgroups(world, &(256 << 20).to_string());
        world.pods.run(PodSpec { resources: Some(memory(256)), ..in_cgroup("web") }).await.unwrap()
    });
    life(Some(left), async |world: &World| {
        assert_eq!(sizes(world, &pod_id), (238, 314));
        cgroups(world, &(1024 << 20).to_string());
        world.until(|world| sizes(world, &pod_id) == (314, 314)).await;
    });
}

#[tokio::test]
async fn where_the_operator_says_so_a_pod_that_does_not_fit_is_refused_with_what_it_lacks() {
    let world = World::strict().await;
    cgroups(&world, &(256 << 20).to_string());
    let spec = PodSpec { resources: Some(memory(256)), ..in_cgroup("web") };
    let error = world.pods.run(spec).await.unwrap_err();
    assert_eq!(error.kind(), PodErrorKind::InvalidArgument);
    let text = error.to_string();
    for part in ["/kubepods/pod1 allows 256 MiB", "takes 332 MiB", "76 MiB more", "overhead.podFixed.memory"]
    {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert_eq!(world.pods.pods().len(), 0);
    // With its requested overhead.
    cgroups(&world, &(332 << 20).to_string());
    let spec = PodSpec { overhead: Some(memory(76)), resources: Some(memory(256)), ..in_cgroup("web") };
    world.pods.run(spec).await.unwrap();
}

#[tokio::test]
async fn where_the_operator_says_so_a_pod_without_a_cgroup_is_refused() {
    let world = World::strict().await;
    let error = world.pods.run(pod("web")).await.unwrap_err();
    assert!(error.to_string().contains("cgroup.strict"), "{error}");
    world.assert_nothing_left();
    cgroups(&world, "max");
    world.pods.run(in_cgroup("web")).await.unwrap();
}
