//! Pods and containers beyond recovery: they stay listed, are dead for good, or are put aside. No other pod
//! waits for them.

use std::time::Duration;

use proto_vmm::Slot;
use runtime_spec::{ContainerSpec, Mount};
use runtime_store::{Batch, Table};
use serde_json::{Value, json};

use super::world::Left;
use super::{World, container, life, pod};
use crate::{ContainerState, PodErrorKind, PodState};

/// Changes a value on disk behind the daemon's back.
fn edit(world: &World, table: Table, id: &str, edit: impl FnOnce(&mut Value)) {
    let store = world.node.records.store();
    let mut value: Value = store.get(table, id).unwrap().unwrap();
    edit(&mut value);
    store.commit(Batch::new().put(table, id, &value).unwrap()).unwrap();
}

#[test]
fn a_running_container_whose_record_cannot_be_used_stays_listed_and_keeps_its_name() {
    let (left, (pod_id, id)) = life(None, async |world: &World| {
        let (pod_id, id) = world.with_container().await;
        // A later daemon may refuse what an earlier one accepted: here neither image nor container has a
        // command.
        edit(world, Table::ContainerRecords, &id, |record| record["image"]["cmd"] = json!([]));
        (pod_id, id)
    });
    life(Some(left), async |world: &World| {
        let view = world.pods.container(&id).unwrap();
        assert_eq!(view.state, ContainerState::Unknown);
        assert!(view.message.contains("cannot be used"), "{}", view.message);
        let taken = world.pods.create_container(&pod_id, container("app")).await.unwrap_err();
        assert_eq!(taken.kind(), PodErrorKind::AlreadyExists);
        assert_eq!(world.script.vm().agent.containers(), 1);
        world.script.vm().agent.end(&id, 5, false);
        assert_eq!(world.ended(&id).await.exit_code, 5);
        world.pods.remove_container(&id).await.unwrap();
        assert_eq!(world.script.vm().agent.containers(), 0);
        world.pods.create_container(&pod_id, container("app")).await.unwrap();
        world.pods.remove(&pod_id).await.unwrap();
        world.assert_nothing_left();
    });
}

#[test]
fn a_container_whose_status_cannot_be_read_is_no_half_made_one_at_the_start_after_the_next() {
    let (left, id) = life(None, async |world: &World| {
        let (_, id) = world.with_container().await;
        edit(world, Table::ContainerStatuses, &id, |status| *status = json!("damaged"));
        id
    });
    let (left, ()) = life(Some(left), async |world: &World| {
        assert_eq!(world.pods.container(&id).unwrap().state, ContainerState::Unknown);
    });
    life(Some(left), async |world: &World| {
        assert_eq!(world.pods.container(&id).unwrap().state, ContainerState::Unknown);
        world.script.vm().agent.end(&id, 5, false);
        assert_eq!(world.ended(&id).await.exit_code, 5);
    });
}

#[test]
fn a_half_made_container_that_cannot_be_removed_is_listed_until_it_can() {
    let (left, (pod_id, id)) = life(None, async |world: &World| {
        let pod_id = world.pods.run(pod("web")).await.unwrap();
        let id = world.pods.create_container(&pod_id, container("app")).await.unwrap();
        edit(world, Table::ContainerStatuses, &id, |status| status["stage"] = json!("creating"));
        (pod_id, id)
    });
    left.1.fail("agent.remove");
    life(Some(left), async |world: &World| {
        let view = world.pods.container(&id).unwrap();
        assert_eq!(view.state, ContainerState::Unknown);
        assert!(view.message.contains("agent.remove"), "{}", view.message);
        world.script.repair();
        world.pods.remove_container(&id).await.unwrap();
        assert_eq!(world.script.vm().agent.containers(), 0);
        world.pods.create_container(&pod_id, container("app")).await.unwrap();
    });
}

#[test]
fn a_container_whose_log_cannot_be_opened_runs_on_and_logs_when_it_can() {
    let (left, (pod_id, id)) = life(None, async |world: &World| {
        let pod_id = world.pods.run(world.logged_pod("web")).await.unwrap();
        let id = world.pods.create_container(&pod_id, container("app")).await.unwrap();
        world.pods.start_container(&id).await.unwrap();
        (pod_id, id)
    });
    let logs = left.0.path().join("logs");
    std::fs::remove_dir_all(&logs).unwrap();
    std::fs::write(&logs, "in the way").unwrap();
    life(Some(left), async |world: &World| {
        assert_eq!(world.pods.container(&id).unwrap().state, ContainerState::Running);
        assert_eq!(world.pods.pod(&pod_id).unwrap().state, PodState::Ready);
        std::fs::remove_file(&logs).unwrap();
        world.pods.reopen_log(&id).await.unwrap();
        assert_eq!(world.log("app.log"), "");
    });
}

#[test]
fn a_vm_that_refuses_the_daemon_is_killed_and_not_only_declared_dead() {
    for step in ["vm.attach", "vm.connect"] {
        let (left, (pod_id, id)) = life(None, async |world: &World| world.with_container().await);
        left.1.refuse(step);
        life(Some(left), async |world: &World| {
            assert_eq!(world.script.running().len(), 0, "{step}");
            assert_eq!(world.pods.pod(&pod_id).unwrap().state, PodState::NotReady);
            let view = world.pods.container(&id).unwrap();
            assert_eq!((view.state, view.exit_code), (ContainerState::Exited, 137));
            assert!(view.message.contains(step), "{}", view.message);
            world.pods.remove(&pod_id).await.unwrap();
            world.assert_nothing_left();
        });
    }
}

#[test]
fn containers_of_a_vm_that_can_be_neither_reached_nor_killed_have_not_ended() {
    let (left, (pod_id, id)) = life(None, async |world: &World| world.with_container().await);
    left.1.refuse("vm.attach");
    left.1.fail("vm.kill");
    let (left, ()) = life(Some(left), async |world: &World| {
        let view = world.pods.container(&id).unwrap();
        assert_eq!(view.state, ContainerState::Unknown);
        assert!(view.message.contains("vm.kill"), "{}", view.message);
        assert!(world.pods.pod(&pod_id).unwrap().unclean.is_some());
        world.pods.stop(&pod_id).await.unwrap_err();
    });
    left.1.repair();
    life(Some(left), async |world: &World| {
        // The next daemon goes on with the stop.
        world.until(|world| world.script.running().is_empty()).await;
        world.pods.stop(&pod_id).await.unwrap();
        assert_eq!(world.pods.container(&id).unwrap().state, ContainerState::Exited);
        world.pods.remove(&pod_id).await.unwrap();
        world.assert_nothing_left();
    });
}

#[test]
fn a_vm_that_answers_late_is_found_again() {
    for step in ["vm.attach", "vm.connect"] {
        let (left, (pod_id, id)) = life(None, async |world: &World| world.with_container().await);
        left.1.fail(step);
        recovering(left, async |world: &World| {
            world.until(|world| world.script.count(step) > 2).await;
            assert_eq!(world.pods.container(&id).unwrap().state, ContainerState::Running);
            world.script.repair();
            let command = vec!["echo".to_owned(), "x".to_owned()];
            assert_eq!(world.pods.exec_sync(&id, command, None).await.unwrap().stdout, b"x");
            assert_eq!(world.pods.pod(&pod_id).unwrap().state, PodState::Ready);
        });
    }
}

#[test]
fn a_vm_that_never_answers_is_given_up_with_the_last_reason() {
    let (left, (pod_id, id)) = life(None, async |world: &World| world.with_container().await);
    left.1.fail("vm.attach");
    recovering(left, async |world: &World| {
        world.until(|world| world.script.count("vm.attach") > 0).await;
        tokio::time::pause();
        for _ in 0..7 {
            tokio::time::advance(Duration::from_secs(10)).await;
            tokio::task::yield_now().await;
        }
        tokio::time::resume();
        world.until(|world| world.pods.pod(&pod_id).unwrap().state == PodState::NotReady).await;
        let view = world.pods.container(&id).unwrap();
        assert_eq!((view.state, view.exit_code), (ContainerState::Exited, 137));
        let words = "does not answer within 60 s: vm.attach was scripted to fail";
        assert!(view.message.contains(words), "{}", view.message);
        assert_eq!(world.script.running().len(), 0);
    });
}

#[test]
fn a_vm_that_stood_still_with_its_node_has_time_left_to_answer() {
    let (left, (pod_id, id)) = life(None, async |world: &World| world.with_container().await);
    left.1.fail("vm.attach");
    recovering(left, async |world: &World| {
        world.until(|world| world.script.count("vm.attach") > 0).await;
        tokio::time::pause();
        tokio::time::advance(Duration::from_secs(200)).await;
        tokio::time::resume();
        world.script.repair();
        let recovered = |world: &World| world.pods.check_ready(&pod_id).is_ok();
        world.until(recovered).await;
        assert_eq!(world.pods.pod(&pod_id).unwrap().state, PodState::Ready);
        assert_eq!(world.pods.container(&id).unwrap().state, ContainerState::Running);
        assert_eq!(world.script.running().len(), 1);
    });
}

/// A daemon's life during its pods' recovery.
pub(super) fn recovering(left: Left, life: impl AsyncFnOnce(&World)) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { life(&World::begin(left.0, left.1).await).await });
}

#[test]
fn a_vmm_of_an_earlier_boot_is_neither_attached_to_nor_killed_by_its_number() {
    let (left, (pod_id, id)) = life(None, async |world: &World| {
        let (pod_id, id) = world.with_container().await;
        // Another pod's VMM has this number and start time since the reboot.
        edit(world, Table::PodStatuses, &pod_id, |status| status["vmm"]["boot"] = json!("0".repeat(32)));
        *world.script.vm().control_socket.lock().unwrap() = "/run/other/control.sock".into();
        (pod_id, id)
    });
    life(Some(left), async |world: &World| {
        assert_eq!(world.pods.pod(&pod_id).unwrap().state, PodState::NotReady);
        assert_eq!(world.pods.container(&id).unwrap().state, ContainerState::Exited);
        world.pods.remove(&pod_id).await.unwrap();
        assert_eq!(world.script.running().len(), 1, "the stranger runs on");
    });
}

#[test]
fn a_value_that_cannot_be_read_keeps_nobody_else_from_being_served() {
    let garbage = |value: &mut Value| *value = json!("garbage");
    let (left, (kept, lost)) = life(None, async |world: &World| {
        let kept = world.pods.run(pod("kept")).await.unwrap();
        let mut containers = Vec::new();
        for name in ["whole", "doubted", "gone"] {
            let id = world.pods.create_container(&kept, container(name)).await.unwrap();
            world.pods.start_container(&id).await.unwrap();
            containers.push(id);
        }
        edit(world, Table::ContainerStatuses, &containers[1], garbage);
        edit(world, Table::ContainerRecords, &containers[2], garbage);
        let mut lost = Vec::new();
        for (name, table) in [("unread", Table::PodStatuses), ("unknown", Table::PodRecords)] {
            let id = world.pods.run(pod(name)).await.unwrap();
            edit(world, table, &id, garbage);
            lost.push(id);
        }
        ((kept, containers), lost)
    });
    let (left, ()) = life(Some(left), async |world: &World| {
        let (kept, containers) = &kept;
        assert_eq!(world.pods.pod(kept).unwrap().state, PodState::Ready);
        assert_eq!(world.pods.container(&containers[0]).unwrap().state, ContainerState::Running);
        let doubted = world.pods.container(&containers[1]).unwrap();
        assert_eq!(doubted.state, ContainerState::Unknown);
        assert!(doubted.message.contains("container_statuses"), "{}", doubted.message);
        // No list has it, so no guest has it.
        assert!(world.pods.container(&containers[2]).is_none());
        world.pods.stop_container(&containers[1], Duration::ZERO).await.unwrap();
        assert_eq!(world.pods.container(&containers[1]).unwrap().exit_code, 137);
        let unread = world.pods.pod(&lost[0]).unwrap();
        assert_eq!(unread.state, PodState::NotReady);
        assert!(unread.message.as_deref().unwrap().contains("pod_statuses"), "{unread:?}");
        assert!(world.pods.pod(&lost[1]).is_none());
        // The VMs of both are gone, and so is all else of the second.
        world
            .until(|world| world.script.running().len() == 1 && world.script.state().networks.len() == 2)
            .await;
        assert_eq!(world.script.vm().agent.containers(), 2);
        world.pods.run(pod("unknown")).await.unwrap();
    });
    life(Some(left), async |world: &World| {
        assert_eq!(world.pods.pods().len(), 3);
        for pod in world.pods.pods() {
            world.pods.remove(&pod.id).await.unwrap();
        }
        world.assert_nothing_left();
    });
}

#[test]
fn nobody_waits_for_the_recovery_of_another_pod() {
    let (left, (slow, quick)) = life(None, async |world: &World| {
        let slow = world.with_container().await;
        let pod_id = world.pods.run(pod("quick")).await.unwrap();
        let id = world.pods.create_container(&pod_id, container("app")).await.unwrap();
        world.pods.start_container(&id).await.unwrap();
        (slow, (pod_id, id))
    });
    left.1.hang("vm.attach 5000000");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let world = World::begin(left.0, left.1).await;
        // Both are listed as they were.
        for (pod_id, id) in [&slow, &quick] {
            assert_eq!(world.pods.pod(pod_id).unwrap().state, PodState::Ready);
            assert_eq!(world.pods.container(id).unwrap().state, ContainerState::Running);
        }
        let command = || vec!["echo".to_owned(), "x".to_owned()];
        assert_eq!(world.pods.exec_sync(&quick.1, command(), None).await.unwrap().stdout, b"x");
        let recovering = world.pods.recovering();
        assert_eq!(recovering.iter().map(|pod| pod.id.as_str()).collect::<Vec<_>>(), [slow.0.as_str()]);
        world.pods.stop(&quick.0).await.unwrap();
        // Calls about the other pod wait for it, and are served then.
        let (pods, id, again) = (world.pods.clone(), slow.1.clone(), world.pods.clone());
        let exec = tokio::spawn(async move { pods.exec_sync(&id, command(), None).await });
        let joined = tokio::spawn(async move { again.run(pod("web")).await });
        world.until(|world| world.script.count("vm.attach 5000000") == 1).await;
        assert!(!exec.is_finished() && !joined.is_finished());
        // A call for its usage waits only for a moment, and a list leaves it out.
        let unknown = world.pods.usage(&slow.0).await.unwrap_err();
        assert!(unknown.kind() == PodErrorKind::Unavailable, "{}", unknown.chain());
        assert!(world.pods.usages([slow.0.as_str()]).await.is_empty());
        world.script.repair();
        assert_eq!(exec.await.unwrap().unwrap().stdout, b"x");
        assert_eq!(joined.await.unwrap().unwrap(), slow.0);
    });
}

#[test]
fn a_daemon_killed_while_it_creates_a_container_leaves_its_slots_and_its_name_free() {
    for step in ["vm.plug_image", "shares.bind", "agent.create"] {
        let mounted = || {
            let mount =
                Mount { host_path: "/srv".into(), container_path: "/data".into(), ..Mount::default() };
            ContainerSpec { mounts: vec![mount], ..container("app") }
        };
        let (left, pod_id) = life(None, async |world: &World| {
            let pod_id = world.pods.run(pod("web")).await.unwrap();
            world.script.hang(step);
            let (pods, of) = (world.pods.clone(), pod_id.clone());
            tokio::spawn(async move { pods.create_container(&of, mounted()).await });
            world.until(|world| world.script.count(step) == 1).await;
            pod_id
        });
        left.1.repair();
        life(Some(left), async |world: &World| {
            assert_eq!(world.pods.containers().len(), 0, "{step}");
            assert_eq!(world.script.vm().agent.containers(), 0, "{step}");
            assert!(world.script.state().binds.is_empty(), "{step}");
            world.pods.create_container(&pod_id, mounted()).await.unwrap();
            // As many images as there are slots.
            for number in 1..Slot::pmems().count() {
                let spec = container(&format!("c{number}"));
                let spec = ContainerSpec { image: format!("image-{number}"), ..spec };
                world.pods.create_container(&pod_id, spec).await.unwrap();
            }
            world.pods.remove(&pod_id).await.unwrap();
            world.assert_nothing_left();
        });
    }
}
