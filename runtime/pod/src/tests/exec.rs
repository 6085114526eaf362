//! Commands in containers.

use std::time::Duration;

use super::{World, container, pod};
use crate::PodErrorKind;

fn command(words: &[&str]) -> Vec<String> {
    words.iter().map(|&word| word.to_owned()).collect()
}

#[tokio::test]
async fn a_commands_output_and_exit_code_come_back() {
    let world = World::new().await;
    let (_, id) = world.with_container().await;
    let output = world.pods.exec_sync(&id, command(&["echo", "hello"]), None).await.unwrap();
    assert_eq!((output.stdout.as_slice(), output.stderr.as_slice()), (b"hello".as_slice(), b"".as_slice()));
    assert_eq!(output.exit_code, 0);
    let output = world.pods.exec_sync(&id, command(&["false"]), Some(Duration::from_secs(60))).await.unwrap();
    assert_eq!(output.exit_code, 1);
}

#[tokio::test]
async fn output_beyond_16_mib_is_dropped_and_the_command_goes_on() {
    let world = World::new().await;
    let (_, id) = world.with_container().await;
    let size = (17 << 20).to_string();
    let output = world.pods.exec_sync(&id, command(&["flood", &size]), None).await.unwrap();
    assert_eq!(output.exit_code, 0);
    assert!((14 << 20..16 << 20).contains(&output.stdout.len()));
    assert!(output.stdout.ends_with(b"cut here, since an answer holds no more than 16 MiB]\n"));
}

#[tokio::test]
async fn a_command_that_takes_too_long_is_killed() {
    let world = World::new().await;
    let (_, id) = world.with_container().await;
    let late = Some(Duration::from_millis(20));
    let error = world.pods.exec_sync(&id, command(&["sleep", "4321"]), late).await.unwrap_err();
    assert_eq!(error.kind(), PodErrorKind::DeadlineExceeded);
    assert_eq!(world.script.count("agent.signal 9"), 1);
}

/// The kubelet counts only this error as a failed probe.
#[tokio::test(start_paused = true)]
async fn a_guest_that_does_not_start_a_command_is_out_of_time_within_seconds() {
    let world = World::new().await;
    let (_, id) = world.with_container().await;
    world.script.hang("agent.exec");
    let begun = tokio::time::Instant::now();
    let error =
        world.pods.exec_sync(&id, command(&["echo"]), Some(Duration::from_secs(1))).await.unwrap_err();
    assert_eq!(error.kind(), PodErrorKind::DeadlineExceeded);
    assert!(error.to_string().contains("was not started within 10 s"), "{error}");
    assert_eq!(begun.elapsed(), Duration::from_secs(10));
}

#[tokio::test(start_paused = true)]
async fn an_agent_gives_a_command_up_before_its_caller_does() {
    let world = World::new().await;
    let (_, id) = world.with_container().await;
    for timeout in [None, Some(1), Some(60)] {
        let timeout = timeout.map(Duration::from_secs);
        world.pods.exec_sync(&id, command(&["true"]), timeout).await.unwrap();
    }
    let within = [None, Some(9), Some(59)].map(|within| within.map(Duration::from_secs));
    assert_eq!(world.script.state().execs_within, within);
    world.script.state().holds_execs = true;
    let held = world.pods.exec_sync(&id, command(&["true"]), Some(Duration::from_secs(1))).await;
    let error = held.unwrap_err();
    assert_eq!(error.kind(), PodErrorKind::DeadlineExceeded);
    assert!(error.to_string().contains("was not started within 10 s"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_command_that_begins_after_its_caller_gave_it_up_is_ended() {
    let world = World::new().await;
    let (_, id) = world.with_container().await;
    // As after an outage of the guest: the agent counts from the call's arrival.
    world.script.state().execs_on_the_way = Duration::from_secs(12);
    let late = world.pods.exec_sync(&id, command(&["sleep", "4321"]), Some(Duration::from_secs(1))).await;
    assert!(late.unwrap_err().to_string().contains("was not started within 10 s"));
    assert_eq!(world.script.count("agent.exec"), 0);
    world.until(|world| world.script.count("agent.signal 9") == 1).await;
    assert_eq!(world.script.count("agent.exec"), 1);
}

#[tokio::test]
async fn a_command_ends_with_the_call_that_waits_for_it() {
    let world = World::new().await;
    let (_, id) = world.with_container().await;
    for (nth, timeout) in [(1, None), (2, Some(Duration::from_secs(3600)))] {
        {
            let running = world.pods.exec_sync(&id, command(&["sleep", "4321"]), timeout);
            tokio::select! {
                outcome = running => panic!("it ended: {outcome:?}"),
                () = world.until(|world| world.script.count("agent.exec_output") == 2 * nth) => {}
            }
        }
        world.until(|world| world.script.count("agent.signal 9") == nth).await;
    }
}

#[tokio::test]
async fn a_command_whose_caller_left_before_it_started_is_ended() {
    let world = World::new().await;
    let (_, id) = world.with_container().await;
    {
        let running = world.pods.exec_sync(&id, command(&["sleep", "4321"]), None);
        tokio::pin!(running);
        assert!(futures::poll!(&mut running).is_pending());
        assert_eq!(world.script.count("agent.exec_output"), 0);
    }
    world.until(|world| world.script.count("agent.signal 9") == 1).await;
}

#[tokio::test]
async fn a_command_needs_a_running_container_and_words() {
    let world = World::new().await;
    let pod_id = world.pods.run(pod("web")).await.unwrap();
    let id = world.pods.create_container(&pod_id, container("app")).await.unwrap();
    let kind = |outcome: Result<crate::ExecOutput, crate::PodError>| outcome.unwrap_err().kind();
    let created = world.pods.exec_sync(&id, command(&["echo", "x"]), None).await;
    assert_eq!(kind(created), PodErrorKind::FailedPrecondition);
    assert_eq!(kind(world.pods.exec_sync(&id, Vec::new(), None).await), PodErrorKind::InvalidArgument);
    assert_eq!(kind(world.pods.exec_sync("none", command(&["x"]), None).await), PodErrorKind::NotFound);
}
