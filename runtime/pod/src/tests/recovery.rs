//! A daemon killed at any moment, and the next one. Each daemon has an executor of its own. Its end stops all
//! tasks, like a kill.

use std::time::Duration;

use super::{World, container, life, pod};
use crate::host::memory_events::MemoryEventsBefore;
use crate::record::{ContainerStage, PodRecord, PodStage, PodStatus};
use crate::{ContainerState, EarlierPods, PodState, clock};
use proto_vmm::Slot;
use runtime_spec::{ContainerSpec, Device, LayerLimits, PodSpec, VmBounds, VmSize};

fn record(name: &str) -> PodRecord {
    let size = VmSize { memory_bytes: 64 << 20, vcpus: 1 };
    let bounds = VmBounds { boot: size, most: size, ..VmBounds::default() };
    let layer_limits = LayerLimits::default();
    PodRecord {
        id: clock::new_id(),
        spec: pod(name),
        handler: "kvm".into(),
        bounds,
        scratch_bytes: 4096,
        layer_limits,
        memory_events_before: MemoryEventsBefore::default(),
        created_at_ns: 1,
    }
}

#[test]
fn settings_that_a_pod_does_not_have_are_shown_and_survive_a_restart() {
    let passed_by = vec!["the nftables table ip nat, left by mesh".to_owned()];
    let (left, id) = life(None, async |world: &World| {
        world.script.state().settings.passed_by = passed_by.clone();
        let id = world.pods.run(pod("web")).await.unwrap();
        assert_eq!(world.pods.pod(&id).unwrap().settings_passed_by, passed_by);
        id
    });
    life(Some(left), async |world: &World| {
        assert_eq!(world.pods.pod(&id).unwrap().settings_passed_by, passed_by);
    });
}

#[test]
fn running_containers_are_found_again_and_their_logs_go_on_where_they_were() {
    let (left, (pod_id, id)) = life(None, async |world: &World| {
        world.script.state().output = b"before\n".to_vec();
        let pod_id = world.pods.run(world.logged_pod("web")).await.unwrap();
        let id = world.pods.create_container(&pod_id, container("app")).await.unwrap();
        world.pods.start_container(&id).await.unwrap();
        world.until(|world| world.script.state().acknowledged.contains_key(&id)).await;
        (pod_id, id)
    });
    let (left, ()) = life(Some(left), async |world: &World| {
        let view = world.pods.pod(&pod_id).unwrap();
        assert_eq!((view.state, view.vmm_pid), (PodState::Ready, Some(5_000_000)));
        assert_eq!(world.pods.container(&id).unwrap().state, ContainerState::Running);
        assert_eq!(world.pods.run(world.logged_pod("web")).await.unwrap(), pod_id);
        world.until(|world| world.script.state().offsets == [0, 7]).await;
        let output = world.pods.exec_sync(&id, vec!["echo".into(), "x".into()], None).await.unwrap();
        assert_eq!(output.stdout, b"x");
        // Its image is known to be plugged.
        world.pods.create_container(&pod_id, container("second")).await.unwrap();
        assert_eq!(world.script.count("vm.plug_image"), 1);
        world.script.vm().agent.end(&id, 5, false);
        assert_eq!(world.ended(&id).await.exit_code, 5);
        assert_eq!(world.log("app.log").lines().count(), 1);
    });
    life(Some(left), async |world: &World| {
        assert_eq!(world.pods.container(&id).unwrap().exit_code, 5);
        world.pods.remove(&pod_id).await.unwrap();
        world.assert_nothing_left();
    });
}

#[test]
fn a_vm_that_is_gone_leaves_a_pod_that_is_not_ready() {
    let (left, (pod_id, id)) = life(None, async |world: &World| world.with_container().await);
    left.1.vm().crash("");
    life(Some(left), async |world: &World| {
        let view = world.pods.pod(&pod_id).unwrap();
        assert_eq!(view.state, PodState::NotReady);
        assert!(view.message.as_deref().unwrap().contains("not found again") && view.lost, "{view:?}");
        let view = world.pods.container(&id).unwrap();
        assert_eq!((view.state, view.exit_code), (ContainerState::Exited, 137));
        assert_eq!(world.script.state().networks.len(), 1);
        world.pods.remove(&pod_id).await.unwrap();
        world.assert_nothing_left();
    });
}

#[test]
fn a_half_done_start_is_undone() {
    let (left, ()) = life(None, async |world: &World| {
        let record = record("web");
        world.node.records.put_new_pod(&record, &PodStatus::starting()).await.unwrap();
        world.script.state().networks.insert(record.id.clone());
        std::fs::create_dir_all(world.node.places.pod_state_dir(&record.id)).unwrap();
        std::fs::write(world.node.places.scratch_path(&record.id), "disk").unwrap();
        std::fs::create_dir_all(world.node.places.pod_run_dir(&record.id)).unwrap();
    });
    life(Some(left), async |world: &World| {
        world.assert_nothing_left();
        world.pods.run(pod("web")).await.unwrap();
    });
}

#[test]
fn a_daemon_killed_while_a_pod_starts_leaves_nothing_for_the_next() {
    for step in ["network.setup", "vm.spawn", "vm.boot", "vm.wait_ready", "agent.configure"] {
        let (left, ()) = life(None, async |world: &World| {
            world.script.hang(step);
            let running = world.pods.run(pod("web"));
            let _ = tokio::time::timeout(Duration::from_millis(50), running).await;
        });
        left.1.repair();
        life(Some(left), async |world: &World| world.assert_nothing_left());
    }
}

#[test]
fn an_undo_that_fails_again_is_listed_and_can_be_removed() {
    let (left, id) = life(None, async |world: &World| {
        let record = record("web");
        world.node.records.put_new_pod(&record, &PodStatus::starting()).await.unwrap();
        record.id
    });
    left.1.fail("network.teardown");
    life(Some(left), async |world: &World| {
        let view = world.pods.pod(&id).unwrap();
        assert_eq!(view.state, PodState::NotReady);
        assert!(view.unclean.is_some());
        world.script.repair();
        world.pods.remove(&id).await.unwrap();
        world.assert_nothing_left();
    });
}

#[test]
fn a_new_attempt_is_the_newest_after_the_clock_was_set_back() {
    let ahead = clock::now_ns() + 3_600_000_000_000;
    let (left, ()) = life(None, async |world: &World| {
        let record = PodRecord { created_at_ns: ahead, ..record("web") };
        let status = PodStatus { stage: PodStage::Stopping, ..PodStatus::starting() };
        world.node.records.put_new_pod(&record, &status).await.unwrap();
    });
    life(Some(left), async |world: &World| {
        let next = world.pods.run(PodSpec { attempt: 1, ..pod("web") }).await.unwrap();
        assert_eq!(world.pods.pod(&next).unwrap().created_at_ns, ahead + 1);
        let other = world.pods.run(pod("other")).await.unwrap();
        assert!(world.pods.pod(&other).unwrap().created_at_ns < ahead);
    });
}

#[test]
fn a_half_done_stop_is_finished() {
    let (left, id) = life(None, async |world: &World| {
        let record = record("web");
        let status = PodStatus { stage: PodStage::Stopping, ..PodStatus::starting() };
        world.node.records.put_new_pod(&record, &status).await.unwrap();
        world.script.state().networks.insert(record.id.clone());
        record.id
    });
    life(Some(left), async |world: &World| {
        assert_eq!(world.pods.pod(&id).unwrap().state, PodState::NotReady);
        assert_eq!(world.script.state().networks.len(), 0);
        world.pods.remove(&id).await.unwrap();
        world.assert_nothing_left();
    });
}

#[test]
fn a_stop_that_a_restart_cut_off_goes_on_in_order() {
    let (left, (pod_id, id)) = life(None, async |world: &World| {
        let (pod_id, id) = world.with_container().await;
        world.script.hang("agent.shutdown");
        let stopping = world.pods.stop(&pod_id);
        let _ = tokio::time::timeout(Duration::from_millis(50), stopping).await;
        assert_eq!(world.script.count("agent.shutdown"), 1);
        (pod_id, id)
    });
    left.1.repair();
    life(Some(left), async |world: &World| {
        world.pods.stop(&pod_id).await.unwrap();
        // The guest has written its disks before its VM goes.
        assert_eq!(world.script.count("agent.shutdown"), 2);
        assert_eq!(world.pods.pod(&pod_id).unwrap().state, PodState::NotReady);
        assert_eq!(world.pods.container(&id).unwrap().state, ContainerState::Exited);
        world.pods.remove(&pod_id).await.unwrap();
        world.assert_nothing_left();
    });
}

#[test]
fn a_stop_that_a_restart_cut_off_does_not_wait_long_for_a_hanging_vm() {
    let (left, pod_id) = life(None, async |world: &World| {
        let (pod_id, _) = world.with_container().await;
        world.script.hang("agent.shutdown");
        let stopping = world.pods.stop(&pod_id);
        let _ = tokio::time::timeout(Duration::from_millis(50), stopping).await;
        pod_id
    });
    left.1.repair();
    left.1.hang("vm.connect");
    life(Some(left), async |world: &World| {
        world.pods.stop(&pod_id).await.unwrap();
        assert_eq!(world.script.count("agent.shutdown"), 1);
        world.script.repair();
        world.pods.remove(&pod_id).await.unwrap();
        world.assert_nothing_left();
    });
}

#[test]
fn pods_of_a_command_that_is_gone_end_without_a_question_to_their_vms() {
    let (left, ()) = life(None, async |world: &World| drop(world.with_container().await));
    left.1.hang("vm.connect");
    left.1.state().earlier = EarlierPods::End;
    let connected = left.1.count("vm.connect");
    life(Some(left), async |world: &World| {
        assert_eq!(world.script.count("vm.connect"), connected);
        world.pods.remove_all().await.unwrap();
        world.assert_nothing_left();
    });
}

#[test]
fn containers_caught_half_way_are_dropped_or_unknown() {
    let (left, (pod_id, made, started)) = life(None, async |world: &World| {
        let pod_id = world.pods.run(pod("web")).await.unwrap();
        let made = world.pods.create_container(&pod_id, container("made")).await.unwrap();
        let started = world.pods.create_container(&pod_id, container("started")).await.unwrap();
        for (id, stage) in [(&made, ContainerStage::Creating), (&started, ContainerStage::Starting)] {
            let status =
                crate::record::ContainerStatus { stage, ..crate::record::ContainerStatus::creating() };
            world.node.records.put_container_status(id, &status).await.unwrap();
        }
        (pod_id, made, started)
    });
    life(Some(left), async |world: &World| {
        assert!(world.pods.container(&made).is_none());
        assert_eq!(world.script.vm().agent.containers(), 1);
        assert_eq!(world.pods.container(&started).unwrap().state, ContainerState::Unknown);
        world.pods.stop_container(&started, Duration::ZERO).await.unwrap();
        assert_eq!(world.pods.container(&started).unwrap().exit_code, 137);
        world.pods.remove(&pod_id).await.unwrap();
        world.assert_nothing_left();
    });
}

#[test]
fn slots_that_a_killed_create_left_filled_are_emptied_before_their_next_use() {
    let with_disk = |name: &str, host_path: &str| ContainerSpec {
        devices: vec![Device {
            host_path: host_path.into(),
            container_path: "/dev/xvda".into(),
            permissions: "rw".into(),
            ..Device::default()
        }],
        image: format!("image-{name}"),
        ..container(name)
    };
    let (left, pod_id) = life(None, async |world: &World| {
        let pod_id = world.pods.run(pod("web")).await.unwrap();
        // A daemon died before it recorded the container.
        let vm = world.script.vm();
        let mut slots = vm.slots.lock().unwrap();
        slots.insert(Slot::pmems().next().unwrap().number(), "image".into());
        slots.insert(12, "disk".into());
        drop(slots);
        pod_id
    });
    life(Some(left), async |world: &World| {
        // As many images as slots, each with a disk of the host. Only five of these fit at once.
        let images = Slot::pmems().count();
        for number in 0..images {
            let name = format!("c{number}");
            let spec =
                if number < 5 { with_disk(&name, &format!("/dev/{number}")) } else { container(&name) };
            let spec = ContainerSpec { image: format!("image{number}"), ..spec };
            world.pods.create_container(&pod_id, spec).await.unwrap();
        }
        // One image's slot and one disk's.
        assert_eq!(world.script.count("vm.unplug"), 2);
        assert_eq!(world.script.count("vm.plug_image"), images);
        assert_eq!(world.script.count("vm.plug_disk"), 5);
    });
}

#[test]
fn a_container_whose_device_the_vm_lacks_stays_listed() {
    let (left, (_, id)) = life(None, async |world: &World| world.with_container().await);
    left.1.vm().slots.lock().unwrap().clear();
    life(Some(left), async |world: &World| {
        assert_eq!(world.script.count("vm.filled_slots"), 1);
        assert_eq!(world.pods.container(&id).unwrap().state, ContainerState::Running);
    });
}

#[test]
fn what_no_pod_on_record_owns_is_swept() {
    let (left, ()) = life(None, async |world: &World| {
        let lost = clock::new_id();
        world.script.state().networks.insert(lost.clone());
        let strays = [world.node.places.pod_state_dir(&lost), world.node.places.pod_run_dir(&lost)];
        for stray in
            ["state/pods/x", "run/pods/y"].map(|stray| world.dir.path().join(stray)).into_iter().chain(strays)
        {
            std::fs::create_dir_all(stray).unwrap();
        }
        // The state with the pod's directory is gone.
        let lost = clock::new_id();
        std::fs::create_dir_all(world.node.places.pod_run_dir(&lost)).unwrap();
        world.script.state().networks.insert(lost);
    });
    life(Some(left), async |world: &World| {
        world.until(|world| world.script.state().networks.is_empty() && world.directories() == 0).await;
        world.assert_nothing_left();
    });
}
