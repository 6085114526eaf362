//! Disks that do not answer: work without them goes on, and work with them is given up in time.

use std::time::Duration;

use futures::FutureExt;
use runtime_blocking::{Place, Pool};
use runtime_spec::ExecSpec;
use tokio::time::Instant;

use super::{World, container, pod};
use crate::{AttachRequest, ContainerState, PodErrorKind, PodState};

/// Freezes a disk until the places are dropped: each of its threads hangs.
fn freeze(pool: &Pool) -> Vec<Place> {
    // Without a task's budget: it would be exhausted before the places.
    std::iter::from_fn(|| tokio::task::unconstrained(pool.place()).now_or_never()).collect()
}

fn command() -> Vec<String> {
    vec!["echo".into(), "x".into()]
}

/// All calls for reading, for commands and for streams are answered without waiting.
async fn assert_answered(world: &World, pod_id: &str, id: &str) {
    let (pods, begun) = (&world.pods, Instant::now());
    assert!(!pods.pods().is_empty() && !pods.containers().is_empty());
    assert_eq!(pods.pod(pod_id).unwrap().state, PodState::Ready);
    assert_eq!(pods.container(id).unwrap().state, ContainerState::Running);
    assert_eq!(pods.usages([pod_id]).await.len(), 1);
    pods.vm_stats(pod_id).await.unwrap();
    pods.check_ready(pod_id).unwrap();
    assert_eq!(pods.exec_sync(id, command(), None).await.unwrap().stdout, b"x");
    let spec = ExecSpec { command: command(), tty: false, stdin: true };
    let streams = pods.exec(id, spec).await.unwrap();
    assert_eq!(streams.end.wait().await.unwrap(), Some(0));
    let request = AttachRequest { stdout: true, ..AttachRequest::default() };
    pods.attach(id, request).await.unwrap();
    assert!(begun.elapsed() < Duration::from_secs(1), "virtual time: {:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn with_the_states_disk_frozen_only_what_needs_it_waits() {
    let world = World::new().await;
    let (pod_id, id) = world.with_container().await;
    let pools = &world.node.pools;
    let frozen = [freeze(world.node.records.pool()), freeze(&pools.state)];
    // A driver waiting for the disk.
    let (pods, of) = (world.pods.clone(), pod_id.clone());
    let waiting = tokio::spawn(async move { pods.create_container(&of, container("late")).await });
    tokio::task::yield_now().await;
    assert_answered(&world, &pod_id, &id).await;
    world.pods.reopen_log(&id).await.unwrap();
    let error = waiting.await.unwrap().unwrap_err();
    assert_eq!(error.kind(), PodErrorKind::Unavailable);
    assert!(error.chain().contains("the disk of the pods' records"), "{}", error.chain());
    let error = world.pods.run(pod("late")).await.unwrap_err();
    assert!(error.chain().contains("the disk of the pods' records"), "{}", error.chain());
    world.pods.stop_container(&id, Duration::ZERO).await.unwrap();
    assert_eq!(world.pods.container(&id).unwrap().state, ContainerState::Exited);
    drop(frozen);
    let again = world.pods.create_container(&pod_id, container("late")).await.unwrap();
    world.pods.start_container(&again).await.unwrap();
    world.pods.run(pod("new")).await.unwrap();
    for pod in world.pods.pods() {
        world.pods.remove(&pod.id).await.unwrap();
    }
    world.until(|world| world.records().is_empty()).await;
    world.assert_nothing_left();
}

#[tokio::test(start_paused = true)]
async fn a_container_that_ended_is_stopped_while_its_log_hangs_and_its_pod_goes_on() {
    let world = World::new().await;
    world.script.state().output = b"a line\n".to_vec();
    let pod_id = world.pods.run(world.logged_pod("logged")).await.unwrap();
    let app = world.pods.create_container(&pod_id, container("app")).await.unwrap();
    let sidecar = world.pods.create_container(&pod_id, container("sidecar")).await.unwrap();
    let frozen = freeze(&world.node.pools.logs);
    world.pods.start_container(&app).await.unwrap();
    world.pods.start_container(&sidecar).await.unwrap();
    world.pods.stop_container(&app, Duration::from_secs(1)).await.unwrap();
    assert_eq!(world.pods.pod(&pod_id).unwrap().state, PodState::Ready);
    assert_eq!(world.pods.container(&sidecar).unwrap().state, ContainerState::Running);
    assert_eq!(world.pods.container(&app).unwrap().exit_code, 143);
    drop(frozen);
}

#[tokio::test(start_paused = true)]
async fn with_all_paths_of_pods_on_a_server_that_is_gone_other_pods_start() {
    let world = World::new().await;
    let frozen = freeze(&world.node.pools.paths);
    let pod_id = world.pods.run(pod("new")).await.unwrap();
    let id = world.pods.create_container(&pod_id, container("app")).await.unwrap();
    world.pods.start_container(&id).await.unwrap();
    assert_eq!(world.pods.container(&id).unwrap().state, ContainerState::Running);
    drop(frozen);
}

#[tokio::test(start_paused = true)]
async fn pods_that_start_at_once_wait_for_a_slow_disk_together() {
    let world = World::new().await;
    let disk = world.node.records.disk();
    disk.slow_down(Duration::from_millis(300));
    let names: Vec<String> = (0..110).map(|number| format!("pod{number}")).collect();
    let starting = names.iter().map(|name| world.pods.run(pod(name)));
    for started in futures::future::join_all(starting).await {
        started.unwrap();
    }
    assert!(disk.transactions() < 55, "{} transactions for three commits of each pod", disk.transactions());
}

#[tokio::test(start_paused = true)]
async fn a_frozen_disk_delays_one_outcome_and_none_after_it() {
    let world = World::new().await;
    let (pod_id, id) = world.with_container().await;
    let frozen = freeze(world.node.records.pool());
    world.pods.stop_container(&id, Duration::ZERO).await.unwrap();
    let begun = Instant::now();
    world.pods.remove_container(&id).await.unwrap();
    world.pods.stop(&pod_id).await.unwrap();
    assert!(begun.elapsed() < Duration::from_secs(5), "virtual time: {:?}", begun.elapsed());
    world.pods.remove(&pod_id).await.unwrap();
    drop(frozen);
    world.until(|world| world.records().is_empty()).await;
    world.assert_nothing_left();
}

#[tokio::test(start_paused = true)]
async fn with_the_logs_disk_frozen_only_logs_wait() {
    let world = World::new().await;
    let (pod_id, id) = world.with_container().await;
    let logged = world.pods.run(world.logged_pod("logged")).await.unwrap();
    let app = world.pods.create_container(&logged, container("app")).await.unwrap();
    world.pods.start_container(&app).await.unwrap();
    let frozen = freeze(&world.node.pools.logs);
    assert_answered(&world, &pod_id, &id).await;
    assert_answered(&world, &logged, &app).await;
    let error = world.pods.reopen_log(&app).await.unwrap_err();
    assert!(error.to_string().contains("reopening the log: no answer within 30 s"), "{error}");
    let error = world.pods.create_container(&logged, container("late")).await.unwrap_err();
    assert!(error.to_string().contains("late.log: no answer within 30 s"), "{error}");
    // Records and disks of pods are elsewhere.
    let new = world.pods.run(pod("new")).await.unwrap();
    world.pods.remove(&new).await.unwrap();
    drop(frozen);
    world.pods.reopen_log(&app).await.unwrap();
    world.pods.create_container(&logged, container("late")).await.unwrap();
}
