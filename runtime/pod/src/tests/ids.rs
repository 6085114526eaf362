//! Every call with an id also accepts the beginning of one.

use std::time::Duration;

use runtime_spec::{ExecSpec, Resources};

use super::{World, container, pod};
use crate::{AttachRequest, ContainerState};

/// The calls made in the test below.
const CALLS: [&str; 21] = [
    "pod",
    "pod_with_containers",
    "phases",
    "vm_stats",
    "usage",
    "check_ready",
    "forward",
    "create_container",
    "start_container",
    "container",
    "update_container",
    "limit_container",
    "update_pod",
    "check_running",
    "exec_sync",
    "exec",
    "attach",
    "reopen_log",
    "stop_container",
    "remove_container",
    "stop",
];

/// The last call. It removes the pod.
const REMOVE: &str = "remove";

#[tokio::test]
async fn every_call_takes_the_beginning_of_an_id() {
    let world = World::new().await;
    let pods = &world.pods;
    let pod_id = pods.run(world.logged_pod("web")).await.unwrap();
    let short = &pod_id[..13];
    let made = pods.create_container(short, container("app")).await.unwrap();
    let id = &made[..13];
    let is = |call: &str, outcome: Result<(), crate::PodError>| {
        outcome.unwrap_or_else(|error| panic!("{call}: {}", error.chain()));
    };
    assert_eq!(pods.pod(short).unwrap().id, pod_id);
    assert_eq!(pods.pod_with_containers(short).unwrap().1.len(), 1);
    assert_eq!(pods.container(id).unwrap().id, made);
    is("phases", pods.phases(short).map(drop));
    is("vm_stats", pods.vm_stats(short).await.map(drop));
    is("usage", pods.usage(short).await.map(drop));
    is("check_ready", pods.check_ready(short));
    is("forward", pods.forward(short, 80, tokio::io::empty()).await);
    is("start_container", pods.start_container(id).await);
    let limits = Resources { memory_limit_bytes: 64 << 20, ..Resources::default() };
    is("update_container", pods.update_container(id, limits).await);
    assert_eq!(pods.container(id).unwrap().resources.memory_limit_bytes, 64 << 20);
    is("limit_container", pods.limit_container(id, Resources::default()).await);
    is("update_pod", pods.update_pod(short, Resources::default(), Resources::default()).await);
    is("check_running", pods.check_running(id));
    let echo = || vec!["echo".to_owned(), "x".to_owned()];
    is("exec_sync", pods.exec_sync(id, echo(), None).await.map(drop));
    let spec = ExecSpec { command: echo(), tty: false, stdin: false };
    is("exec", pods.exec(id, spec).await.map(drop));
    let request = AttachRequest { stdin: false, stdout: true, stderr: false };
    is("attach", pods.attach(id, request).await.map(drop));
    is("reopen_log", pods.reopen_log(id).await);
    is("stop_container", pods.stop_container(id, Duration::ZERO).await);
    assert_eq!(pods.container(&made).unwrap().state, ContainerState::Exited);
    is("remove_container", pods.remove_container(id).await);
    assert!(pods.container(&made).is_none());
    is("stop", pods.stop(short).await);
    is(REMOVE, pods.remove(short).await);
    world.assert_nothing_left();
}

#[test]
fn no_call_that_takes_an_id_is_left_out() {
    let sources = [
        include_str!("../pods/mod.rs"),
        include_str!("../pods/figures.rs"),
        include_str!("../pods/streams.rs"),
    ];
    let mut taking = Vec::new();
    for function in sources.iter().flat_map(|source| source.split("    pub ").skip(1)) {
        let head = function.split('{').next().unwrap();
        let Some((_, named)) = head.split_once("fn ") else { continue };
        if ["pod_id: &str", "container_id: &str"].iter().any(|id| head.contains(id)) {
            taking.push(named.split(['(', '<']).next().unwrap());
        }
    }
    let mut tried: Vec<&str> = CALLS.iter().copied().chain([REMOVE]).collect();
    taking.sort_unstable();
    tried.sort_unstable();
    assert_eq!(taking, tried);
}

#[tokio::test]
async fn all_pods_are_removed_with_those_that_start() {
    let world = World::new().await;
    world.with_container().await;
    let starting = world.pods.run(pod("late"));
    tokio::pin!(starting);
    assert!(futures::poll!(&mut starting).is_pending());
    assert_eq!(world.pods.pods().len(), 1, "the second is not listed yet");
    world.pods.remove_all().await.unwrap();
    world.assert_nothing_left();
}
