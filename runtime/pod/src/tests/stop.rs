//! Stopping: containers with grace, pods whole, and all of it as often as one likes.

use std::time::Duration;

use super::{World, container, life, pod};
use crate::{ContainerState, PodErrorKind, PodState};
use runtime_spec::{ContainerSpec, Mount};

#[tokio::test]
async fn a_container_is_asked_first() {
    let world = World::new().await;
    let (_, id) = world.with_container().await;
    world.pods.stop_container(&id, Duration::from_secs(60)).await.unwrap();
    let view = world.pods.container(&id).unwrap();
    assert_eq!((view.state, view.exit_code), (ContainerState::Exited, 143));
    assert_eq!(world.script.count("agent.signal 9 all"), 0);
    world.pods.stop_container(&id, Duration::from_secs(60)).await.unwrap();
    assert_eq!(world.script.count("agent.signal 15"), 1);
}

#[tokio::test]
async fn it_is_asked_with_its_own_signal() {
    let world = World::new().await;
    let pod_id = world.pods.run(pod("web")).await.unwrap();
    let spec = ContainerSpec { stop_signal: Some("SIGQUIT".into()), ..container("app") };
    let id = world.pods.create_container(&pod_id, spec).await.unwrap();
    assert_eq!(world.pods.container(&id).unwrap().stop_signal, 3);
    world.pods.start_container(&id).await.unwrap();
    world.pods.stop_container(&id, Duration::from_secs(60)).await.unwrap();
    assert_eq!(world.pods.container(&id).unwrap().exit_code, 131);
}

#[tokio::test]
async fn one_that_does_not_listen_is_killed_after_its_grace() {
    let world = World::new().await;
    world.script.state().stubborn = true;
    let (_, id) = world.with_container().await;
    world.pods.stop_container(&id, Duration::from_millis(20)).await.unwrap();
    assert_eq!(world.pods.container(&id).unwrap().exit_code, 137);
    assert_eq!((world.script.count("agent.signal 15"), world.script.count("agent.signal 9 all")), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn one_that_waits_for_a_file_lock_is_taken_from_its_wait_when_it_is_killed() {
    let world = World::new().await;
    world.script.state().stubborn = true;
    world.script.state().waits_for_a_lock = true;
    let (pod_id, id) = world.with_container().await;
    world.pods.stop_container(&id, Duration::from_secs(1)).await.unwrap();
    assert_eq!(world.pods.container(&id).unwrap().exit_code, 137);
    assert!(world.script.count("vm.interrupt_lock_waits [4711]") >= 1);
    assert_eq!(world.pods.pod(&pod_id).unwrap().state, PodState::Ready);
}

#[tokio::test(start_paused = true)]
async fn one_that_begins_to_wait_as_it_is_killed_is_found_by_a_later_kill() {
    let world = World::new().await;
    world.script.state().waits_for_a_lock = true;
    let (pod_id, id) = world.with_container().await;
    world.script.fail("vm.interrupt_lock_waits [4711]");
    let (pods, stopped) = (world.pods.clone(), id.clone());
    let stopping = tokio::spawn(async move { pods.stop_container(&stopped, Duration::ZERO).await });
    world.until(|world| world.script.count("vm.interrupt_lock_waits [4711]") >= 3).await;
    world.script.repair();
    stopping.await.unwrap().unwrap();
    assert_eq!(world.pods.container(&id).unwrap().exit_code, 137);
    assert_eq!(world.pods.pod(&pod_id).unwrap().state, PodState::Ready);
}

#[tokio::test(start_paused = true)]
async fn a_guest_that_stands_still_keeps_the_grace_of_its_containers() {
    for (step_hangs, asked) in [(true, 1), (false, 20)] {
        let world = World::new().await;
        let (_, id) = world.with_container().await;
        match step_hangs {
            true => world.script.hang("agent.signal 15"),
            false => world.script.fail("agent.signal 15"),
        }
        let (pods, stopped) = (world.pods.clone(), id.clone());
        let stopping =
            tokio::spawn(async move { pods.stop_container(&stopped, Duration::from_secs(300)).await });
        tokio::time::sleep(Duration::from_secs(30)).await;
        assert_eq!(world.script.count("agent.signal 9 all"), 0, "its grace goes on");
        let count = world.script.count("agent.signal 15");
        assert!(if step_hangs { count == asked } else { count >= asked }, "{count}");
        world.script.repair();
        if step_hangs {
            // The guest has had the request all the time.
            world.script.vm().agent.end(&id, 143, false);
        }
        stopping.await.unwrap().unwrap();
        assert_eq!(world.pods.container(&id).unwrap().exit_code, 143);
        assert_eq!(world.script.count("agent.signal 9 all"), 0);
    }
}

#[tokio::test]
async fn no_grace_means_a_kill_at_once() {
    let world = World::new().await;
    let (_, id) = world.with_container().await;
    world.pods.stop_container(&id, Duration::ZERO).await.unwrap();
    assert_eq!(world.script.count("agent.signal 15"), 0);
    assert_eq!(world.pods.container(&id).unwrap().exit_code, 137);
}

#[tokio::test]
async fn a_stop_during_a_start_answers_when_the_container_is_stopped() {
    let world = World::new().await;
    let pod_id = world.pods.run(pod("web")).await.unwrap();
    let id = world.pods.create_container(&pod_id, container("app")).await.unwrap();
    world.script.hang("agent.start");
    let (pods, starting) = (world.pods.clone(), id.clone());
    let start = tokio::spawn(async move { pods.start_container(&starting).await });
    world.until(|world| world.script.count("agent.start") == 1).await;
    let (pods, stopping) = (world.pods.clone(), id.clone());
    let stop = tokio::spawn(async move { pods.stop_container(&stopping, Duration::from_secs(60)).await });
    tokio::task::yield_now().await;
    world.script.repair();
    start.await.unwrap().unwrap();
    stop.await.unwrap().unwrap();
    assert_eq!(world.pods.container(&id).unwrap().state, ContainerState::Exited);
}

#[tokio::test]
async fn a_stop_of_a_container_that_was_never_started_leaves_it_to_be_started() {
    let world = World::new().await;
    let pod_id = world.pods.run(pod("web")).await.unwrap();
    let id = world.pods.create_container(&pod_id, container("app")).await.unwrap();
    world.pods.stop_container(&id, Duration::from_secs(60)).await.unwrap();
    assert_eq!(world.pods.container(&id).unwrap().state, ContainerState::Created);
    world.pods.start_container(&id).await.unwrap();
    assert_eq!(world.pods.container(&id).unwrap().state, ContainerState::Running);
}

#[tokio::test]
async fn a_long_grace_holds_nobody_up_and_an_impatient_stop_overtakes_it() {
    let world = World::new().await;
    world.script.state().stubborn = true;
    let (pod_id, id) = world.with_container().await;
    let (pods, patient) = (world.pods.clone(), id.clone());
    let waiting = tokio::spawn(async move { pods.stop_container(&patient, Duration::from_secs(3600)).await });
    world.until(|world| world.script.count("agent.signal 15") == 1).await;
    let other = world.pods.create_container(&pod_id, container("other")).await.unwrap();
    world.pods.start_container(&other).await.unwrap();
    world.pods.stop_container(&id, Duration::ZERO).await.unwrap();
    waiting.await.unwrap().unwrap();
    assert_eq!(world.pods.container(&other).unwrap().state, ContainerState::Running);
}

#[tokio::test(start_paused = true)]
async fn a_second_stop_has_its_own_grace_and_does_not_repeat_the_signal() {
    let world = World::new().await;
    world.script.state().stubborn = true;
    let (_, id) = world.with_container().await;
    let (pods, patient) = (world.pods.clone(), id.clone());
    let waiting = tokio::spawn(async move { pods.stop_container(&patient, Duration::from_secs(3600)).await });
    world.until(|world| world.script.count("agent.signal 15") == 1).await;
    world.pods.stop_container(&id, Duration::from_secs(5)).await.unwrap();
    waiting.await.unwrap().unwrap();
    assert_eq!((world.script.count("agent.signal 15"), world.script.count("agent.signal 9 all")), (1, 1));
}

#[test]
fn a_stop_after_a_restart_of_the_daemon_does_not_repeat_the_signal() {
    let (left, id) = life(None, async |world: &World| {
        world.script.state().stubborn = true;
        let (_, id) = world.with_container().await;
        let (pods, patient) = (world.pods.clone(), id.clone());
        tokio::spawn(async move { pods.stop_container(&patient, Duration::from_secs(3600)).await });
        world.until(|world| world.status(&id)["stop_signal_sent"] == true).await;
        id
    });
    life(Some(left), async |world: &World| {
        world.pods.stop_container(&id, Duration::from_millis(20)).await.unwrap();
        assert_eq!((world.script.count("agent.signal 15"), world.script.count("agent.signal 9 all")), (1, 1));
    });
}

#[tokio::test(start_paused = true)]
async fn a_guest_that_does_not_kill_a_container_is_given_up_with_all_its_containers() {
    for (hangs, fails, said) in [
        (Some("agent.signal 9 all"), None, "its agent did not kill container"),
        (None, Some("agent.signal 9 all"), "could not be killed"),
    ] {
        let world = World::new().await;
        let (pod_id, id) = world.with_container().await;
        let mut others = Vec::new();
        for name in ["running", "idle"] {
            others.push(world.pods.create_container(&pod_id, container(name)).await.unwrap());
        }
        world.pods.start_container(&others[0]).await.unwrap();
        world.script.fail("agent.signal 15");
        hangs.into_iter().for_each(|step| world.script.hang(step));
        fails.into_iter().for_each(|step| world.script.fail(step));
        world.pods.stop_container(&id, Duration::from_secs(1)).await.unwrap();
        assert_eq!(world.script.running().len(), 0);
        for id in others.iter().chain([&id]) {
            let view = world.ended(id).await;
            assert_eq!(view.exit_code, 137);
            assert!(view.message.contains("given up") && view.message.contains(said), "{}", view.message);
        }
        let view = world.pods.pod(&pod_id).unwrap();
        assert_eq!(view.state, PodState::NotReady);
        assert!(view.message.as_deref().unwrap().contains(said), "{view:?}");
        world.script.repair();
        world.pods.remove(&pod_id).await.unwrap();
        world.assert_nothing_left();
    }
}

#[tokio::test(start_paused = true)]
async fn a_killed_container_is_waited_for_while_its_vm_writes_and_given_up_once_it_does_not() {
    for (flushing, written_bytes_each, lives, least, most) in
        [(5, 2 << 20, true, 120, 150), (5, 1000, false, 30, 31), (u32::MAX, 2 << 20, false, 600, 660)]
    {
        let world = World::new().await;
        let (pod_id, id) = world.with_container().await;
        {
            let mut state = world.script.state();
            (state.flushing, state.written_bytes_each) = (flushing, written_bytes_each);
        }
        let begun = tokio::time::Instant::now();
        world.pods.stop_container(&id, Duration::ZERO).await.unwrap();
        let seconds = begun.elapsed().as_secs();
        assert!((least..=most).contains(&seconds), "{flushing} {written_bytes_each}: {seconds}");
        let view = world.ended(&id).await;
        assert_eq!(view.message.contains("did not end within"), !lives, "{}", view.message);
        assert_eq!(world.script.running().len(), usize::from(lives));
        world.script.state().flushing = 0;
        world.pods.remove(&pod_id).await.unwrap();
        world.assert_nothing_left();
    }
}

#[tokio::test(start_paused = true)]
async fn a_stopped_pod_keeps_its_vm_while_this_writes_what_killed_containers_left() {
    for (written_bytes_each, message, least, most) in
        [(2 << 20, "", 30, 60), (1000, "the pod was stopped", 10, 11)]
    {
        let world = World::new().await;
        let (pod_id, id) = world.with_container().await;
        {
            let mut state = world.script.state();
            (state.flushing, state.written_bytes_each) = (5, written_bytes_each);
        }
        let begun = tokio::time::Instant::now();
        world.pods.stop(&pod_id).await.unwrap();
        let seconds = begun.elapsed().as_secs();
        assert!((least..=most).contains(&seconds), "{written_bytes_each}: {seconds}");
        assert_eq!(world.ended(&id).await.message, message);
        world.pods.remove(&pod_id).await.unwrap();
        world.assert_nothing_left();
    }
}

#[tokio::test(start_paused = true)]
async fn a_container_that_its_vmm_holds_is_not_said_to_have_ended() {
    let world = World::new().await;
    let (_, id) = world.with_container().await;
    world.script.hang("agent.signal 9 all");
    world.script.hang("vm.shutdown");
    let error = world.pods.stop_container(&id, Duration::ZERO).await.unwrap_err();
    assert!(error.to_string().contains("does not end after SIGKILL"), "{error}");
    assert_eq!(world.pods.container(&id).unwrap().state, ContainerState::Running);
    world.script.repair();
    world.pods.stop_container(&id, Duration::ZERO).await.unwrap();
    assert_eq!(world.pods.container(&id).unwrap().state, ContainerState::Exited);
}

#[tokio::test(start_paused = true)]
async fn a_guest_whose_agent_cannot_be_asked_any_more_is_given_up() {
    let world = World::new().await;
    let (pod_id, id) = world.with_container().await;
    world.script.fail("agent.wait");
    let second = world.pods.create_container(&pod_id, container("second")).await.unwrap();
    world.pods.start_container(&second).await.unwrap();
    for id in [&id, &second] {
        let view = world.ended(id).await;
        assert!(view.message.contains("its agent cannot be asked"), "{}", view.message);
    }
    assert_eq!(world.script.running().len(), 0);
}

#[tokio::test(start_paused = true)]
async fn an_agent_whose_connection_broke_is_asked_again_over_the_same_link() {
    let world = World::new().await;
    let pod_id = world.pods.run(pod("web")).await.unwrap();
    let id = world.pods.create_container(&pod_id, container("app")).await.unwrap();
    world.script.fail("agent.wait");
    world.pods.start_container(&id).await.unwrap();
    world.until(|world| world.script.count("agent.wait") > 2).await;
    world.script.repair();
    world.script.vm().agent.end(&id, 5, false);
    assert_eq!(world.ended(&id).await.exit_code, 5);
    assert_eq!(world.script.count("vm.connect"), 0, "the link makes its connection anew");
}

#[tokio::test(start_paused = true)]
async fn steps_that_hang_are_given_up_and_tried_again_by_the_next_stop() {
    for step in ["network.teardown", "vm.shutdown"] {
        let world = World::new().await;
        let (pod_id, _) = world.with_container().await;
        world.script.hang(step);
        world.pods.stop(&pod_id).await.unwrap_err();
        assert!(world.pods.pod(&pod_id).unwrap().unclean.is_some(), "{step}");
        world.script.repair();
        world.pods.remove(&pod_id).await.unwrap();
        world.assert_nothing_left();
    }
}

#[tokio::test(start_paused = true)]
async fn host_paths_that_hang_keep_one_creation_and_not_the_pod() {
    let world = World::new().await;
    let pod_id = world.pods.run(pod("web")).await.unwrap();
    world.script.hang("shares.bind");
    world.script.hang("shares.unbind");
    let mount = Mount { host_path: "/nfs".into(), container_path: "/data".into(), ..Mount::default() };
    let spec = ContainerSpec { mounts: vec![mount], ..container("app") };
    let error = world.pods.create_container(&pod_id, spec).await.unwrap_err();
    assert_eq!(error.kind(), PodErrorKind::DeadlineExceeded);
    assert!(error.to_string().contains("mounts: no answer"), "{error}");
    world.pods.create_container(&pod_id, container("other")).await.unwrap();
    world.pods.remove(&pod_id).await.unwrap();
}

#[tokio::test]
async fn stopping_a_pod_takes_everything_but_its_record() {
    let world = World::new().await;
    world.script.state().stubborn = true;
    let (pod_id, id) = world.with_container().await;
    let idle = world.pods.create_container(&pod_id, container("idle")).await.unwrap();
    world.pods.stop(&pod_id).await.unwrap();
    world.pods.stop(&pod_id).await.unwrap();
    let view = world.pods.pod(&pod_id).unwrap();
    assert_eq!((view.state, view.ips.len(), view.vmm_pid), (PodState::NotReady, 0, None));
    assert_eq!(world.pods.container(&id).unwrap().exit_code, 137);
    assert_eq!(world.pods.container(&idle).unwrap().state, ContainerState::Exited);
    assert_eq!(world.script.running().len(), 0);
    assert_eq!(world.script.state().networks.len(), 0);
    assert!(!world.node.places.scratch_path(&pod_id).exists());
    assert!(!world.node.places.pod_run_dir(&pod_id).exists());
    assert_eq!(world.script.count("agent.shutdown"), 1);
    world.pods.stop_container(&id, Duration::from_secs(60)).await.unwrap();
    let error = world.pods.start_container(&idle).await.unwrap_err();
    assert_eq!(error.kind(), PodErrorKind::FailedPrecondition);
    let taken = world.pods.run(pod("web")).await.unwrap_err();
    assert_eq!(taken.kind(), PodErrorKind::AlreadyExists);
    world.pods.remove(&pod_id).await.unwrap();
    world.pods.remove(&pod_id).await.unwrap();
    world.assert_nothing_left();
    world.pods.run(pod("web")).await.unwrap();
}

#[tokio::test]
async fn removing_a_running_pod_stops_it_first() {
    let world = World::new().await;
    let (pod_id, _) = world.with_container().await;
    let (first, second) = tokio::join!(world.pods.remove(&pod_id), world.pods.remove(&pod_id));
    first.unwrap();
    second.unwrap();
    world.assert_nothing_left();
}

#[tokio::test]
async fn what_never_was_is_stopped_and_removed() {
    let world = World::new().await;
    world.pods.stop("none").await.unwrap();
    world.pods.remove("none").await.unwrap();
}

#[tokio::test]
async fn a_stop_that_cannot_finish_says_what_is_left_and_is_tried_again() {
    for (step, left) in [("network.teardown", "network"), ("vm.shutdown", "ending the VM")] {
        let world = World::new().await;
        let (pod_id, _) = world.with_container().await;
        world.script.fail(step);
        let error = world.pods.stop(&pod_id).await.unwrap_err();
        assert!(error.to_string().contains(left), "{error}");
        let view = world.pods.pod(&pod_id).unwrap();
        assert_eq!(view.state, PodState::NotReady);
        assert!(view.unclean.as_deref().unwrap().contains(left), "{view:?}");
        world.script.repair();
        world.pods.stop(&pod_id).await.unwrap();
        assert_eq!(world.pods.pod(&pod_id).unwrap().unclean, None);
        world.pods.remove(&pod_id).await.unwrap();
        world.assert_nothing_left();
    }
}

#[tokio::test(start_paused = true)]
async fn a_guest_that_ignores_its_shutdown_is_pulled_the_plug() {
    let world = World::new().await;
    let (pod_id, _) = world.with_container().await;
    world.script.hang("agent.shutdown");
    world.pods.stop(&pod_id).await.unwrap();
    assert_eq!(world.script.running().len(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_guest_that_answers_nothing_does_not_hold_the_stop() {
    let world = World::new().await;
    let (pod_id, id) = world.with_container().await;
    world.script.hang("agent.signal 9 all");
    world.script.hang("agent.shutdown");
    world.pods.stop(&pod_id).await.unwrap();
    assert_eq!(world.script.running().len(), 0);
    assert_eq!(world.pods.container(&id).unwrap().exit_code, 137);
}
