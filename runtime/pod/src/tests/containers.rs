//! Containers are made, run, end and go.

use std::sync::Arc;
use std::time::Duration;

use proto_agent::version;
use runtime_spec::{ContainerSecurity, ContainerSpec, ExitReason, Profile, StartFailure};

use super::{World, container, pod};
use crate::{ContainerState, PodErrorKind, PodState};

#[tokio::test]
async fn an_exit_is_reported_only_after_all_output_is_in_the_log() {
    let world = World::new().await;
    world.script.state().output = b"one\ntwo\n".repeat(10_000);
    world.script.state().late = true;
    let pod_id = world.pods.run(world.logged_pod("web")).await.unwrap();
    let id = world.pods.create_container(&pod_id, container("app")).await.unwrap();
    let created = world.pods.container(&id).unwrap();
    assert_eq!((created.state, created.user.uid), (ContainerState::Created, 7));
    assert_eq!(created.log_path, world.dir.path().join("logs/app.log"));
    world.pods.start_container(&id).await.unwrap();
    assert_eq!(world.pods.container(&id).unwrap().state, ContainerState::Running);
    world.script.vm().agent.end(&id, 0, false);
    let view = world.ended(&id).await;
    assert_eq!((view.exit_code, view.reason), (0, Some(ExitReason::Completed)));
    assert!(view.finished_at_ns >= view.started_at_ns && view.started_at_ns >= view.created_at_ns);
    let log = world.log("app.log");
    assert_eq!(log.lines().count(), 20_000);
    assert!(log.lines().all(|line| line.contains(" stdout F ")));
    assert_eq!(world.script.state().acknowledged[&id], 80_000);
}

#[tokio::test(start_paused = true)]
async fn what_outlives_its_container_and_holds_its_output_is_killed() {
    let world = World::new().await;
    let (_, id) = world.with_container().await;
    world.script.state().lingering = true;
    world.script.vm().agent.end(&id, 0, false);
    assert_eq!(world.ended(&id).await.exit_code, 0);
    assert_eq!(world.script.count("agent.signal 9 all"), 1);
}

#[tokio::test]
async fn exit_codes_have_reasons() {
    let world = World::new().await;
    for (code, oom, reason) in
        [(3, false, ExitReason::Error), (137, true, ExitReason::OomKilled), (0, false, ExitReason::Completed)]
    {
        let pod_id = world.pods.run(pod(&format!("p{code}"))).await.unwrap();
        let id = world.pods.create_container(&pod_id, container("app")).await.unwrap();
        world.pods.start_container(&id).await.unwrap();
        world.script.vm().agent.end(&id, code, oom);
        let view = world.ended(&id).await;
        assert_eq!((view.exit_code, view.reason), (code, Some(reason)));
        world.pods.remove(&pod_id).await.unwrap();
    }
    world.assert_nothing_left();
}

#[tokio::test]
async fn containers_of_one_image_share_its_slot() {
    let world = World::new().await;
    let (pod_id, _) = world.with_container().await;
    world.pods.create_container(&pod_id, container("second")).await.unwrap();
    let other = ContainerSpec { image: "image2".into(), ..container("third") };
    world.pods.create_container(&pod_id, other).await.unwrap();
    let slots = world.script.vm().slots.lock().unwrap().clone();
    assert_eq!(slots.values().filter(|kind| kind.starts_with("image")).count(), 2);
    assert_eq!(world.pods.containers().len(), 3);
}

#[tokio::test]
async fn more_images_than_slots_replace_those_that_nobody_uses() {
    let world = World::new().await;
    let pod_id = world.pods.run(pod("web")).await.unwrap();
    let of = |n: usize| ContainerSpec { image: format!("image{n}"), ..container(&format!("c{n}")) };
    let mut ids = Vec::new();
    for n in 0..16 {
        ids.push(world.pods.create_container(&pod_id, of(n)).await.unwrap());
    }
    let full = world.pods.create_container(&pod_id, of(16)).await.unwrap_err();
    assert!(full.to_string().contains("16 images"), "{full}");
    world.pods.remove_container(&ids[5]).await.unwrap();
    world.pods.create_container(&pod_id, of(16)).await.unwrap();
    assert_eq!(world.script.count("vm.unplug"), 1);
}

#[tokio::test]
async fn what_is_not_there_is_not_found() {
    let world = World::new().await;
    let pod_id = world.pods.run(pod("web")).await.unwrap();
    let kind = |error: crate::PodError| error.kind();
    assert_eq!(
        kind(world.pods.create_container("none", container("a")).await.unwrap_err()),
        PodErrorKind::NotFound
    );
    let unknown = ContainerSpec { image: "nothing".into(), ..container("a") };
    assert_eq!(
        kind(world.pods.create_container(&pod_id, unknown).await.unwrap_err()),
        PodErrorKind::NotFound
    );
    assert_eq!(kind(world.pods.start_container("none").await.unwrap_err()), PodErrorKind::NotFound);
    assert_eq!(kind(world.pods.reopen_log("none").await.unwrap_err()), PodErrorKind::NotFound);
    world.pods.stop_container("none", Duration::ZERO).await.unwrap();
    world.pods.remove_container("none").await.unwrap();
}

#[tokio::test]
async fn a_container_that_cannot_be_made_leaves_nothing_and_its_name_is_free() {
    for step in ["images.open", "vm.plug_image", "agent.create"] {
        let world = World::new().await;
        let pod_id = world.pods.run(pod("web")).await.unwrap();
        world.script.fail(step);
        let error = world.pods.create_container(&pod_id, container("app")).await.unwrap_err();
        assert!(error.chain().contains(step), "{step}: {}", error.chain());
        assert_eq!(world.pods.containers().len(), 0);
        assert_eq!(world.script.vm().agent.containers(), 0);
        let table = runtime_store::Table::ContainerRecords;
        assert_eq!(world.node.records.store().list::<serde_json::Value>(table).unwrap().values.len(), 0);
        world.script.repair();
        world.pods.create_container(&pod_id, container("app")).await.unwrap();
        let taken = world.pods.create_container(&pod_id, container("app")).await.unwrap_err();
        assert_eq!(taken.kind(), PodErrorKind::AlreadyExists);
    }
}

#[tokio::test]
async fn a_slot_that_was_filled_unheard_is_emptied_before_its_next_use() {
    let world = World::new().await;
    let pod_id = world.pods.run(pod("web")).await.unwrap();
    world.script.state().unheard = true;
    world.pods.create_container(&pod_id, container("app")).await.unwrap_err();
    world.script.state().unheard = false;
    for number in 0..16 {
        let spec = ContainerSpec { image: format!("image{number}"), ..container(&format!("c{number}")) };
        world.pods.create_container(&pod_id, spec).await.unwrap();
    }
    assert_eq!(world.script.count("vm.unplug"), 1);
}

#[tokio::test]
async fn a_program_that_cannot_be_started_is_a_start_error() {
    for step in ["agent.start", "agent.output"] {
        let world = World::new().await;
        let pod_id = world.pods.run(pod("web")).await.unwrap();
        let id = world.pods.create_container(&pod_id, container("app")).await.unwrap();
        world.script.fail(step);
        let error = world.pods.start_container(&id).await.unwrap_err();
        assert!(error.chain().contains(step), "{}", error.chain());
        let view = world.pods.container(&id).unwrap();
        assert_eq!((view.state, view.exit_code), (ContainerState::Exited, 128));
        assert_eq!(view.reason, Some(ExitReason::StartError));
        assert!(view.message.contains(step), "{}", view.message);
        let again = world.pods.start_container(&id).await.unwrap_err();
        assert_eq!(again.kind(), PodErrorKind::FailedPrecondition);
    }
}

#[tokio::test]
async fn a_program_that_is_not_there_or_may_not_run_cannot_run() {
    let failures = [(StartFailure::ExecutableNotFound, 127), (StartFailure::ExecutableNotRunnable, 126)];
    for (failure, exit_code) in failures {
        let world = World::new().await;
        let pod_id = world.pods.run(pod("web")).await.unwrap();
        let id = world.pods.create_container(&pod_id, container("app")).await.unwrap();
        world.script.state().unrunnable = Some(failure);
        let error = world.pods.start_container(&id).await.unwrap_err();
        assert_eq!(error.kind(), PodErrorKind::InvalidArgument);
        assert_eq!(error.start_failure(), Some(failure));
        let view = world.pods.container(&id).unwrap();
        assert_eq!((view.state, view.exit_code), (ContainerState::Exited, exit_code));
        assert_eq!(view.reason, Some(ExitReason::ContainerCannotRun));
        assert!(view.message.contains("refused"), "{}", view.message);
        assert!(view.finished_at_ns >= view.created_at_ns);
    }
}

#[tokio::test]
async fn the_log_of_a_container_that_has_ended_does_not_go_on() {
    let world = World::new().await;
    let pod_id = world.pods.run(world.logged_pod("web")).await.unwrap();
    let id = world.pods.create_container(&pod_id, container("app")).await.unwrap();
    world.pods.start_container(&id).await.unwrap();
    world.script.vm().agent.end(&id, 0, false);
    world.ended(&id).await;
    let path = world.dir.path().join("logs/app.log");
    std::fs::remove_file(&path).unwrap();
    let error = world.pods.reopen_log(&id).await.unwrap_err();
    assert_eq!(error.kind(), PodErrorKind::FailedPrecondition);
    assert!(!path.exists());
}

#[tokio::test]
async fn a_container_without_a_log_has_the_path_of_a_file_of_its_pod_that_is_not_there() {
    let world = World::new().await;
    let pod_id = world.pods.run(pod("web")).await.unwrap();
    let unlogged = ContainerSpec { log_path: None, ..container("app") };
    for spec in [container("nowhere"), unlogged] {
        let id = world.pods.create_container(&pod_id, spec).await.unwrap();
        let path = &world.pods.container(&id).unwrap().log_path;
        assert!(path.is_absolute() && path.starts_with(world.dir.path().join("state/pods").join(&pod_id)));
        assert!(!path.exists());
    }
}

#[tokio::test]
async fn an_end_comes_after_its_start_whatever_the_guests_clock_says() {
    for reported_ns in [1, i64::MAX] {
        let world = World::new().await;
        let (_, id) = world.with_container().await;
        world.script.state().exited_at_ns = reported_ns;
        world.script.vm().agent.end(&id, 0, false);
        let view = world.ended(&id).await;
        assert!(view.created_at_ns <= view.started_at_ns && view.started_at_ns <= view.finished_at_ns);
        assert!(view.finished_at_ns <= crate::clock::now_ns());
    }
}

#[tokio::test]
async fn a_name_is_free_again_when_its_container_is_removed() {
    let world = World::new().await;
    let (pod_id, first) = world.with_container().await;
    world.pods.remove_container(&first).await.unwrap();
    let second = world.pods.create_container(&pod_id, container("app")).await.unwrap();
    assert_ne!(first, second);
}

#[tokio::test]
async fn a_dying_vm_takes_its_containers_along_and_keeps_its_network_until_the_stop() {
    let world = World::new().await;
    let (pod_id, id) = world.with_container().await;
    let idle = world.pods.create_container(&pod_id, container("idle")).await.unwrap();
    world.script.vm().crash("oops\n");
    for id in [&id, &idle] {
        let view = world.ended(id).await;
        assert_eq!((view.exit_code, view.reason), (137, Some(ExitReason::Error)));
        assert!(view.message.contains("the guest kernel panicked: no more"), "{}", view.message);
    }
    let view = world.pods.pod(&pod_id).unwrap();
    assert_eq!((view.state, view.vmm_pid), (PodState::NotReady, None));
    assert!(view.message.as_deref().unwrap().contains("oops"), "{view:?}");
    assert_eq!(world.script.state().networks.len(), 1);
    let error = world.pods.create_container(&pod_id, container("late")).await.unwrap_err();
    assert_eq!(error.kind(), PodErrorKind::FailedPrecondition);
    world.pods.stop(&pod_id).await.unwrap();
    assert_eq!(world.script.state().networks.len(), 0);
    world.pods.remove(&pod_id).await.unwrap();
    world.assert_nothing_left();
}

#[tokio::test]
async fn a_call_that_hangs_ends_with_the_vm() {
    let world = World::new().await;
    let pod_id = world.pods.run(pod("web")).await.unwrap();
    world.script.hang("agent.create");
    let pods = world.pods.clone();
    let of = pod_id.clone();
    let creating = tokio::spawn(async move { pods.create_container(&of, container("app")).await });
    world.until(|world| world.script.count("agent.create") == 1).await;
    world.script.vm().crash("");
    let error = creating.await.unwrap().unwrap_err();
    assert_eq!(error.kind(), PodErrorKind::Unavailable);
    assert!(error.to_string().contains("the guest kernel panicked"), "{error}");
}

#[tokio::test]
async fn a_rotated_log_goes_on_in_a_new_file() {
    let world = World::new().await;
    world.script.state().output = b"line\n".to_vec();
    let pod_id = world.pods.run(world.logged_pod("web")).await.unwrap();
    let id = world.pods.create_container(&pod_id, container("app")).await.unwrap();
    let path = world.dir.path().join("logs/app.log");
    std::fs::rename(&path, world.dir.path().join("logs/old.log")).unwrap();
    world.pods.reopen_log(&id).await.unwrap();
    assert!(path.exists());
    world.pods.start_container(&id).await.unwrap();
    world.script.vm().agent.end(&id, 0, false);
    world.ended(&id).await;
    assert!(world.log("app.log").ends_with(" stdout F line\n"));
    assert_eq!(world.log("old.log"), "");
}

#[tokio::test]
async fn a_running_container_is_killed_when_it_is_removed() {
    let world = World::new().await;
    let (_, id) = world.with_container().await;
    world.pods.remove_container(&id).await.unwrap();
    world.pods.remove_container(&id).await.unwrap();
    assert!(world.pods.container(&id).is_none());
    assert_eq!(world.script.vm().agent.containers(), 0);
}

#[tokio::test]
async fn a_vms_costs_are_reported() {
    let world = World::new().await;
    let pod_id = world.pods.run(pod("web")).await.unwrap();
    let report = world.pods.vm_stats(&pod_id).await.unwrap();
    assert_eq!((report.vmm_pid, report.stats.guest_entered_ns), (5_000_000, 2));
    assert_eq!(report.guest.unwrap().available, 60);
    world.script.fail("agent.stats");
    assert!(world.pods.vm_stats(&pod_id).await.unwrap().guest.is_none());
}

#[tokio::test]
async fn filters_are_compiled_on_the_node_for_agents_that_take_them() {
    let world = World::new().await;
    let confined = || ContainerSpec {
        security: ContainerSecurity { seccomp: Some(Profile::RuntimeDefault), ..Default::default() },
        ..container("app")
    };
    let sent = async |name: &str, protocol| {
        world.script.state().protocol = Some(protocol);
        let pod_id = world.pods.run(pod(name)).await.unwrap();
        world.pods.create_container(&pod_id, confined()).await.unwrap();
        let (plan, _) = world.script.state().created.clone().unwrap();
        (plan.syscall_filter.clone(), plan.syscall_rules().is_some())
    };
    let (first, rules) = sent("web", version::SYSCALL_FILTERS).await;
    assert!(!rules, "the agent would compile them again");
    let (second, _) = sent("web-2", version::SYSCALL_FILTERS).await;
    assert!(Arc::ptr_eq(&first.unwrap(), &second.unwrap()), "compiled once");
    assert_eq!(sent("web-3", version::SYSCALL_FILTERS - 1).await, (None, true));
}
