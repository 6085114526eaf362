//! Limits change, and the VM follows.

use std::fs;
use std::time::Duration;

use runtime_spec::{ContainerSpec, PodSpec, Resources};

use super::{World, container, life, pod};
use crate::PodErrorKind;

fn memory(mib: i64) -> Resources {
    Resources { memory_limit_bytes: mib << 20, ..Resources::default() }
}

fn limited(name: &str, mib: i64) -> ContainerSpec {
    ContainerSpec { resources: memory(mib), ..container(name) }
}

/// The requests to VM and agent about sizes and limits, in order.
fn asked(world: &World) -> Vec<String> {
    let words = ["vm.resize ", "vm.resized", "agent.resize", "agent.update", "agent.create"];
    let seen = world.script.state().seen.clone();
    seen.into_iter().filter(|step| words.iter().any(|word| step.starts_with(word))).collect()
}

fn mib(world: &World, pod_id: &str) -> u64 {
    world.pods.pod(pod_id).unwrap().ledger.size.memory_bytes >> 20
}

#[tokio::test]
async fn the_vm_grows_before_a_container_that_needs_it_is_made() {
    let world = World::new().await;
    let pod_id = world.pods.run(pod("web")).await.unwrap();
    world.pods.create_container(&pod_id, limited("small", 100)).await.unwrap();
    let id = world.pods.create_container(&pod_id, limited("large", 400)).await.unwrap();
    let grown = ["agent.create", "vm.resize 562", "agent.resize 8 3", "vm.resized", "agent.create"];
    assert_eq!(asked(&world), grown);
    assert_eq!(mib(&world, &pod_id), 562);
    let ledger = world.pods.pod(&pod_id).unwrap().ledger.clone();
    assert_eq!(ledger.containers[&id].memory_bytes, Some(400 << 20));
    // A removed container needs nothing.
    world.pods.remove_container(&id).await.unwrap();
    assert_eq!(mib(&world, &pod_id), 314);
}

fn of_image(name: &str, image: &str) -> ContainerSpec {
    ContainerSpec { image: image.into(), ..container(name) }
}

#[test]
fn the_vm_holds_the_page_structures_of_its_images_until_they_are_unplugged() {
    let (left, (pod_id, id)) = life(None, async |world: &World| {
        let pod_id = world.pods.run(pod("web")).await.unwrap();
        let id = world.pods.create_container(&pod_id, of_image("large", "image-4g")).await.unwrap();
        // 56 MiB for the part above 512 MiB, 2 MiB for the added block.
        assert_eq!(asked(world), ["vm.resize 372", "agent.resize 8 3", "vm.resized", "agent.create"]);
        (pod_id, id)
    });
    life(Some(left), async |world: &World| {
        assert_eq!(mib(world, &pod_id), 372, "the VM says what it has");
        world.pods.remove_container(&id).await.unwrap();
        assert_eq!(mib(world, &pod_id), 372, "the image stays plugged");
        for number in 1..proto_vmm::Slot::pmems().count() {
            let spec = of_image(&format!("small{number}"), &format!("image{number}"));
            world.pods.create_container(&pod_id, spec).await.unwrap();
        }
        let resized = asked(world).into_iter().filter(|step| step.starts_with("vm.resize "));
        assert_eq!(resized.collect::<Vec<_>>(), ["vm.resize 372"; 2], "by each daemon once");
        world.pods.create_container(&pod_id, of_image("last", "image0")).await.unwrap();
        assert_eq!(mib(world, &pod_id), 314);
        assert!(asked(world).contains(&"vm.resize 314".to_owned()), "{:?}", asked(world));
    });
}

#[test]
fn a_size_that_a_killed_daemon_had_only_written_down_is_given_to_the_vm_by_the_next() {
    for step in ["vm.make_vcpus 8", "vm.resize 562", "agent.resize 8 3", "vm.resized"] {
        let (left, (pod_id, asked_before)) = life(None, async |world: &World| {
            let pod_id = world.pods.run(pod("web")).await.unwrap();
            world.script.hang(step);
            let growing = world.pods.update_pod(&pod_id, memory(500), Resources::default());
            assert!(tokio::time::timeout(Duration::from_millis(50), growing).await.is_err(), "{step}");
            (pod_id, asked(world).len())
        });
        left.1.repair();
        life(Some(left), async |world: &World| {
            let given = ["vm.resize 562", "agent.resize 8 3"];
            assert_eq!(asked(world)[asked_before..], given, "{step}");
            assert_eq!(mib(world, &pod_id), 562, "{step}");
        });
    }
}

#[test]
fn a_vm_whose_size_never_changed_is_asked_for_nothing_by_the_next_daemon() {
    let (left, ()) = life(None, async |world: &World| drop(world.with_container().await));
    life(Some(left), async |world: &World| assert_eq!(asked(world), ["agent.create"]));
}

#[tokio::test]
async fn a_container_that_fails_leaves_the_vm_what_its_plugged_image_needs() {
    let world = World::new().await;
    let pod_id = world.pods.run(pod("web")).await.unwrap();
    world.script.fail("agent.create");
    world.pods.create_container(&pod_id, of_image("large", "image-4g")).await.unwrap_err();
    assert!(!asked(&world).contains(&"vm.resize 314".to_owned()), "{:?}", asked(&world));
    world.script.repair();
    world.pods.create_container(&pod_id, of_image("large", "image-4g")).await.unwrap();
    assert_eq!(asked(&world).iter().filter(|step| step.starts_with("vm.resize ")).count(), 1);
}

#[tokio::test]
async fn a_container_that_can_never_fit_is_refused_with_the_numbers() {
    let world = World::new().await;
    let pod_id = world.pods.run(pod("web")).await.unwrap();
    let error = world.pods.create_container(&pod_id, limited("huge", 5000)).await.unwrap_err();
    assert_eq!(error.kind(), PodErrorKind::InvalidArgument);
    let text = error.to_string();
    assert!(
        text.contains("memory_limit_in_bytes") && text.contains("5134") && text.contains("4096 MiB"),
        "{text}"
    );
    assert!(asked(&world).is_empty());
    let huge = PodSpec { resources: Some(memory(5000)), ..pod("huge") };
    assert_eq!(world.pods.run(huge).await.unwrap_err().kind(), PodErrorKind::InvalidArgument);
}

#[tokio::test]
async fn growth_comes_before_the_limit_and_the_limit_before_less() {
    let world = World::new().await;
    let (pod_id, id) = world.with_container().await;
    world.pods.update_container(&id, memory(1024)).await.unwrap();
    world.pods.update_container(&id, Resources { cpu_shares: 1024, ..memory(100) }).await.unwrap();
    let steps = [
        "agent.create",
        "vm.resize 1096",
        "agent.resize 8 3",
        "vm.resized",
        r#"agent.update {"memory.max": "1073741824"}"#,
        r#"agent.update {"cpu.weight": "100", "memory.max": "104857600"}"#,
        "agent.resize 8 0",
        "vm.resize 314",
    ];
    assert_eq!(asked(&world), steps);
    let limits = world.pods.container(&id).unwrap().resources.clone();
    assert_eq!((limits.cpu_shares, limits.memory_limit_bytes), (1024, 100 << 20));
    assert_eq!(mib(&world, &pod_id), 314);
}

#[tokio::test]
async fn a_refused_limit_leaves_all_as_it_was() {
    let world = World::new().await;
    let (pod_id, id) = world.with_container().await;
    world.pods.update_container(&id, memory(64)).await.unwrap();
    world.script.fail(r#"agent.update {"memory.max": "1073741824"}"#);
    world.pods.update_container(&id, memory(1024)).await.unwrap_err();
    assert_eq!(world.pods.container(&id).unwrap().resources.memory_limit_bytes, 64 << 20);
    assert_eq!(asked(&world).last().unwrap(), "vm.resize 314");
    assert_eq!(mib(&world, &pod_id), 314);
    let odd = Resources { cpu_quota: 5, ..Resources::default() };
    let error = world.pods.update_container(&id, odd).await.unwrap_err();
    assert!(error.to_string().contains("resources.cpu_quota"), "{error}");
    assert_eq!(world.pods.container(&id).unwrap().resources.cpu_quota, 0);
}

#[tokio::test(start_paused = true)]
async fn a_guest_that_does_not_take_its_memory_is_an_error_and_the_offer_is_withdrawn() {
    let world = World::new().await;
    let (_, id) = world.with_container().await;
    world.script.hang("vm.resized");
    let error = world.pods.update_container(&id, memory(1024)).await.unwrap_err();
    assert!(error.to_string().contains("782 MiB"), "{error}");
    assert_eq!(asked(&world).last().unwrap(), "vm.resize 314");
    assert_eq!(world.pods.container(&id).unwrap().resources, Resources::default());
}

#[tokio::test]
async fn limits_of_created_containers_change_and_those_of_ended_ones_do_not() {
    let world = World::new().await;
    let pod_id = world.pods.run(pod("web")).await.unwrap();
    let id = world.pods.create_container(&pod_id, container("app")).await.unwrap();
    world.pods.update_container(&id, memory(64)).await.unwrap();
    assert_eq!(world.pods.container(&id).unwrap().resources.memory_limit_bytes, 64 << 20);
    world.pods.start_container(&id).await.unwrap();
    world.script.vm().agent.end(&id, 0, false);
    world.ended(&id).await;
    let refused = world.pods.update_container(&id, memory(65)).await.unwrap_err();
    assert_eq!(refused.kind(), PodErrorKind::FailedPrecondition);
    let unknown = world.pods.update_container("none", memory(65)).await.unwrap_err();
    assert_eq!(unknown.kind(), PodErrorKind::NotFound);
}

#[tokio::test]
async fn vcpus_run_where_all_containers_together_may() {
    let world = World::new().await;
    let pod_id = world.pods.run(pod("web")).await.unwrap();
    let bound = |cpus: &str| Resources { cpuset_cpus: cpus.into(), ..Resources::default() };
    let spec = |name: &str, cpus: &str| ContainerSpec { resources: bound(cpus), ..container(name) };
    let first = world.pods.create_container(&pod_id, spec("first", "2-3")).await.unwrap();
    let second = world.pods.create_container(&pod_id, spec("second", "5")).await.unwrap();
    world.pods.update_container(&first, bound("1")).await.unwrap();
    assert_eq!(world.pods.container(&first).unwrap().resources.cpuset_cpus, "1");
    let free = world.pods.create_container(&pod_id, container("free")).await.unwrap();
    world.pods.remove_container(&free).await.unwrap();
    world.pods.remove_container(&second).await.unwrap();
    world.script.fail("vm.pin [9]");
    let refused = world.pods.update_container(&first, bound("9")).await.unwrap_err();
    assert!(refused.to_string().contains("cpuset_cpus"), "{refused}");
    assert_eq!(world.pods.container(&first).unwrap().resources.cpuset_cpus, "1");
    let seen = world.script.state().seen.clone();
    let pins: Vec<_> = seen.iter().filter_map(|step| step.strip_prefix("vm.pin ")).collect();
    assert_eq!(pins, ["[2, 3]", "[2, 3, 5]", "[1, 5]", "[]", "[1, 5]", "[1]", "[9]"]);
}

/// What the node's kernel may swap of the pod's VM.
fn swap_max(world: &World, pod_id: &str) -> String {
    let pod = world.node.places.cgroup_root.join(format!("podvisor/podvisor-{pod_id}"));
    fs::read_to_string(pod.join("memory.swap.max")).unwrap()
}

fn swapping(name: &str, bytes: &str) -> ContainerSpec {
    let unified = [("memory.swap.max".to_owned(), bytes.to_owned())].into();
    ContainerSpec { resources: Resources { unified, ..Resources::default() }, ..container(name) }
}

/// A pod on a node with cgroups whose kernel accounts swap.
async fn pod_with_swap(world: &World) -> String {
    let root = &world.node.places.cgroup_root;
    fs::create_dir_all(root).unwrap();
    fs::write(root.join("cgroup.controllers"), "memory").unwrap();
    let pod_id = world.pods.run(pod("web")).await.unwrap();
    fs::write(root.join(format!("podvisor/podvisor-{pod_id}/memory.swap.max")), "max").unwrap();
    pod_id
}

#[tokio::test]
async fn the_node_swaps_no_more_of_a_vm_than_its_containers_may_together() {
    let world = World::new().await;
    let pod_id = pod_with_swap(&world).await;
    assert_eq!(swap_max(&world, &pod_id), "max");
    world.pods.create_container(&pod_id, swapping("first", "0")).await.unwrap();
    assert_eq!(swap_max(&world, &pod_id), "0");
    let second = world.pods.create_container(&pod_id, swapping("second", "1048576")).await.unwrap();
    assert_eq!(swap_max(&world, &pod_id), "1048576");
    let more = swapping("second", "2097152").resources;
    world.pods.update_container(&second, more).await.unwrap();
    assert_eq!(swap_max(&world, &pod_id), "2097152");
    let free = world.pods.create_container(&pod_id, container("free")).await.unwrap();
    assert_eq!(swap_max(&world, &pod_id), "max");
    world.pods.remove_container(&free).await.unwrap();
    assert_eq!(swap_max(&world, &pod_id), "2097152");
    world.pods.remove_container(&second).await.unwrap();
    assert_eq!(swap_max(&world, &pod_id), "0");
}

#[test]
fn a_pod_between_two_containers_keeps_its_bound_of_swap_and_the_next_daemon_sets_it_again() {
    let (left, pod_id) = life(None, async |world: &World| {
        let pod_id = pod_with_swap(world).await;
        let first = world.pods.create_container(&pod_id, swapping("first", "0")).await.unwrap();
        world.pods.remove_container(&first).await.unwrap();
        assert_eq!(swap_max(world, &pod_id), "0");
        world.pods.create_container(&pod_id, swapping("second", "4096")).await.unwrap();
        let pod = world.node.places.cgroup_root.join(format!("podvisor/podvisor-{pod_id}"));
        fs::write(pod.join("memory.swap.max"), "max").unwrap();
        pod_id
    });
    life(Some(left), async |world: &World| assert_eq!(swap_max(world, &pod_id), "4096"));
}

#[tokio::test]
async fn a_vm_has_no_more_vcpus_than_all_containers_together_have_cpus() {
    let world = World::new().await;
    let pod_id = world.pods.run(pod("web")).await.unwrap();
    let bound = |cpus: &str| Resources { cpuset_cpus: cpus.into(), cpu_quota: -1, ..Resources::default() };
    let spec = |name: &str, cpus: &str| ContainerSpec { resources: bound(cpus), ..container(name) };
    let vcpus = || world.pods.pod(&pod_id).unwrap().ledger.size.vcpus;
    assert_eq!(vcpus(), 8);
    world.pods.create_container(&pod_id, spec("first", "2-3")).await.unwrap();
    assert_eq!(vcpus(), 2);
    let second = world.pods.create_container(&pod_id, spec("second", "5")).await.unwrap();
    world.pods.update_container(&second, bound("3")).await.unwrap();
    world.script.fail("agent.create");
    world.pods.create_container(&pod_id, container("free")).await.unwrap_err();
    assert_eq!(vcpus(), 2);
    let steps = [
        "agent.resize 2 0",
        "agent.create",
        "agent.resize 3 0",
        "agent.create",
        "agent.resize 2 0",
        "agent.resize 8 0",
        "agent.create",
        "agent.resize 2 0",
    ];
    assert_eq!(asked(&world), steps);
}

#[tokio::test]
async fn a_pods_update_grows_and_shrinks_its_vm_within_its_bounds() {
    let world = World::new().await;
    let spec = PodSpec { resources: Some(Resources { cpu_quota: 100_000, ..memory(100) }), ..pod("web") };
    let pod_id = world.pods.run(spec).await.unwrap();
    let configured = world.script.state().configured.clone().unwrap();
    assert_eq!((configured.vcpus, mib(&world, &pod_id)), (1, 156));
    let more = Resources { cpu_quota: 250_000, ..memory(200) };
    let overhead = memory(32);
    world.pods.update_pod(&pod_id, more, overhead).await.unwrap();
    let ledger = world.pods.pod(&pod_id).unwrap().ledger.clone();
    assert_eq!((ledger.size.memory_bytes >> 20, ledger.size.vcpus), (238, 3));
    let error = world.pods.update_pod(&pod_id, memory(4090), Resources::default()).await.unwrap_err();
    assert!(error.to_string().contains("4190 MiB") && error.to_string().contains("4096 MiB"), "{error}");
    assert_eq!(mib(&world, &pod_id), 238);
    world.pods.update_pod(&pod_id, memory(50), Resources::default()).await.unwrap();
    let steps = ["vm.resize 238", "agent.resize 3 3", "vm.resized", "agent.resize 3 0", "vm.resize 156"];
    assert_eq!(asked(&world), steps);
    // Before the agent is asked to bring them up.
    let seen = world.script.state().seen.clone();
    let at = |step: &str| seen.iter().position(|seen| seen == step);
    assert!(at("vm.make_vcpus 3").is_some() && at("vm.make_vcpus 3") < at("agent.resize 3 3"), "{seen:?}");
    world.pods.stop(&pod_id).await.unwrap();
    let stopped = world.pods.update_pod(&pod_id, memory(60), Resources::default()).await.unwrap_err();
    assert_eq!(stopped.kind(), PodErrorKind::FailedPrecondition);
}

#[tokio::test]
async fn what_changed_is_known_to_the_next_daemon() {
    let world = World::new().await;
    let (pod_id, id) = world.with_container().await;
    world.pods.update_container(&id, memory(1024)).await.unwrap();
    world
        .pods
        .update_pod(&pod_id, Resources { cpu_quota: 200_000, ..Resources::default() }, memory(64))
        .await
        .unwrap();
    let status: crate::record::ContainerStatus =
        world.node.records.store().get(runtime_store::Table::ContainerStatuses, &id).unwrap().unwrap();
    assert_eq!(status.resources.unwrap().memory_limit_bytes, 1024 << 20);
    let status: crate::record::PodStatus =
        world.node.records.store().get(runtime_store::Table::PodStatuses, &pod_id).unwrap().unwrap();
    assert_eq!(status.capacity.resources.unwrap().cpu_quota, 200_000);
    assert_eq!(
        (status.capacity.overhead.unwrap().memory_limit_bytes, status.capacity.size.unwrap().memory_bytes),
        (64 << 20, 1108 << 20)
    );
}
