//! Plugins over real sockets: connecting ones and a started one, with a runtime of fake pods.

#![allow(clippy::unwrap_used)]

mod plugin;

use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use proto_nri::nri::Event::*;
use proto_nri::nri::{
    Container, ContainerAdjustment, ContainerUpdate, CreateContainerRequest, CreateContainerResponse, Event,
    KeyValue, LinuxResources, PodSandbox, StopContainerResponse, UpdateContainersRequest,
    ValidateContainerAdjustmentResponse,
};
use proto_nri::{NAME_VARIABLE, SOCKET_VARIABLE};
use runtime_nri::{Known, NriConfig, Occurrence, Plugins, Runtime};
use tempfile::TempDir;
use tokio::net::UnixStream;
use ttrpc::proto::Code;

use self::plugin::{Answers, TestPlugin};

/// A runtime with fake pods. It records the requested updates.
#[derive(Debug, Default)]
struct Paper {
    known: Mutex<Known>,
    updated: Mutex<Vec<ContainerUpdate>>,
}

#[async_trait]
impl Runtime for Paper {
    fn known(&self) -> Known {
        self.known.lock().unwrap().clone()
    }

    async fn update(&self, updates: Vec<ContainerUpdate>) -> Vec<ContainerUpdate> {
        self.updated.lock().unwrap().extend(updates.clone());
        updates.into_iter().filter(|update| update.container_id == "gone").collect()
    }
}

/// Plugins of one test, on a socket of its own.
struct World {
    dir: TempDir,
    paper: Arc<Paper>,
    plugins: Plugins,
}

/// A timeout reached only by a hanging plugin.
const LONG: Duration = Duration::from_secs(60);

/// The same for a test that waits for it. A plugin that answers may be late on a loaded computer.
const SHORT: Duration = Duration::from_secs(3);

impl World {
    async fn new() -> World {
        World::with(LONG, LONG).await
    }

    async fn with(registration_timeout: Duration, request_timeout: Duration) -> World {
        let dir = tempfile::tempdir().unwrap();
        let plugins = Plugins::new(NriConfig {
            runtime_name: "test".into(),
            runtime_version: "v0".into(),
            socket: Some(dir.path().join("nri.sock")),
            plugin_dir: dir.path().join("plugins"),
            plugin_conf_dir: dir.path().join("conf.d"),
            registration_timeout,
            request_timeout,
        });
        let paper = Arc::new(Paper::default());
        plugins.serve(paper.clone()).await.unwrap();
        World { dir, paper, plugins }
    }

    async fn plugin(&self, name: &str, answers: Answers) -> TestPlugin {
        let plugin = TestPlugin::connect(&self.dir.path().join("nri.sock"), name, answers).await;
        plugin.synchronized().await;
        plugin
    }
}

fn pod() -> PodSandbox {
    PodSandbox { id: "p".into(), name: "pod".into(), ..Default::default() }
}

fn container() -> Container {
    Container { id: "c".into(), pod_sandbox_id: "p".into(), env: vec!["A=1".into()], ..Default::default() }
}

fn creation() -> CreateContainerRequest {
    let (pod, container) = (Some(pod()).into(), Some(container()).into());
    CreateContainerRequest { pod, container, ..Default::default() }
}

fn sets(key: &str, value: &str) -> CreateContainerResponse {
    let variable = KeyValue { key: key.into(), value: value.into(), ..Default::default() };
    let adjust = ContainerAdjustment { env: vec![variable], ..Default::default() };
    CreateContainerResponse { adjust: Some(adjust).into(), ..Default::default() }
}

fn refuses(code: Code, text: &str) -> Result<CreateContainerResponse, (Code, String)> {
    Err((code, text.into()))
}

fn runs() -> Occurrence {
    Occurrence::of_pod(RUN_POD_SANDBOX, pod())
}

fn some(events: &[Event]) -> Answers {
    Answers { events: plugin::bits(events), ..Answers::default() }
}

/// Takes these events, and never answers.
fn hangs(events: &[Event]) -> Answers {
    Answers { hangs: true, ..some(events) }
}

#[tokio::test]
async fn a_plugin_that_connects_gets_what_there_is_and_then_what_happens() {
    let world = World::new().await;
    world.paper.known.lock().unwrap().pods.push(pod());
    world.paper.known.lock().unwrap().containers.push(container());
    let plugin = world.plugin("10-a", Answers::default()).await;
    assert_eq!(plugin.known(), (vec!["p".to_owned()], vec!["c".to_owned()]));
    let configuration = plugin.configuration();
    assert_eq!((configuration.runtime_name.as_str(), configuration.request_timeout), ("test", 60_000));
    world.plugins.begin().occurs(runs()).await.unwrap();
    let annotated = Container { annotations: [("k".to_owned(), "v".to_owned())].into(), ..container() };
    world.plugins.notice(Occurrence::of_container(POST_START_CONTAINER, pod(), annotated));
    plugin.has_heard("PostStartContainer").await;
    assert_eq!(plugin.annotations_seen()["k"], "v");
    world.plugins.container_stopped(pod(), container());
    world.plugins.notice_first(Occurrence::of_pod(STOP_POD_SANDBOX, pod())).await;
    assert_eq!(plugin.heard(), ["RunPodSandbox", "PostStartContainer", "StopContainer", "StopPodSandbox"]);
}

#[tokio::test]
async fn plugins_are_asked_in_the_order_of_their_indexes_and_each_sees_what_came_before() {
    let world = World::new().await;
    let late = world.plugin("90-late", Answers { create: Ok(sets("B", "2")), ..Answers::default() }).await;
    let early = world.plugin("10-early", Answers { create: Ok(sets("A", "9")), ..Answers::default() }).await;
    let created = world.plugins.begin().create(creation()).await.unwrap();
    let keys: Vec<_> = created.adjustment.env.iter().map(|entry| entry.key.as_str()).collect();
    assert_eq!(keys, ["A", "B"]);
    assert_eq!((early.env_seen(), late.env_seen()), (vec!["A=1".to_owned()], vec!["A=9".to_owned()]));
}

#[tokio::test]
async fn a_plugin_hears_of_what_it_wants_alone() {
    let world = World::new().await;
    let plugin = world.plugin("10-a", some(&[STOP_POD_SANDBOX])).await;
    world.plugins.begin().occurs(runs()).await.unwrap();
    world.plugins.begin().create(creation()).await.unwrap();
    world.plugins.notice_first(Occurrence::of_pod(STOP_POD_SANDBOX, pod())).await;
    assert_eq!(plugin.heard(), ["StopPodSandbox"]);
}

#[tokio::test]
async fn two_plugins_that_ask_for_different_things_are_an_error_and_stay() {
    let world = World::new().await;
    let _a = world.plugin("10-a", Answers { create: Ok(sets("X", "1")), ..Answers::default() }).await;
    let _b = world.plugin("20-b", Answers { create: Ok(sets("X", "2")), ..Answers::default() }).await;
    for _ in 0..2 {
        let error = world.plugins.begin().create(creation()).await.unwrap_err().to_string();
        assert_eq!(error, "NRI plugins 10-a and 20-b both set Env \"X\" of container c");
    }
}

#[tokio::test]
async fn a_plugin_that_refuses_stops_the_event_and_stays() {
    let world = World::new().await;
    let refusing = Answers { create: refuses(Code::UNKNOWN, "not today"), ..Answers::default() };
    let first = world.plugin("10-a", refusing).await;
    let second = world.plugin("20-b", Answers::default()).await;
    for _ in 0..2 {
        let error = world.plugins.begin().create(creation()).await.unwrap_err().to_string();
        assert_eq!(error, "NRI plugin 10-a refused CreateContainer: not today");
    }
    assert_eq!((first.heard().len(), second.heard().len()), (2, 0));
}

#[tokio::test]
async fn a_plugin_whose_own_work_was_late_refuses_and_stays() {
    let world = World::new().await;
    let refusing = Answers { create: refuses(Code::DEADLINE_EXCEEDED, "no backend"), ..Answers::default() };
    let plugin = world.plugin("10-a", refusing).await;
    for _ in 0..2 {
        let error = world.plugins.begin().create(creation()).await.unwrap_err().to_string();
        assert_eq!(error, "NRI plugin 10-a refused CreateContainer: no backend");
    }
    assert_eq!(plugin.heard().len(), 2);
}

#[tokio::test]
async fn a_plugin_that_hangs_is_dropped_after_the_time_of_one_answer() {
    let world = World::with(LONG, SHORT).await;
    let hanging = world.plugin("10-hangs", hangs(&[CREATE_CONTAINER])).await;
    let other = world.plugin("20-b", some(&[CREATE_CONTAINER, STOP_POD_SANDBOX])).await;
    world.plugins.begin().create(creation()).await.unwrap();
    hanging.closed().await;
    assert_eq!(other.heard(), ["CreateContainer"]);
    // A stop does not wait for missing plugins, and for a hanging plugin only as long as for one answer.
    let again = world.plugin("10-again", hangs(&[STOP_POD_SANDBOX])).await;
    world.plugins.notice_first(Occurrence::of_pod(STOP_POD_SANDBOX, pod())).await;
    again.closed().await;
    world.plugins.begin().create(creation()).await.unwrap();
    assert_eq!(other.heard(), ["CreateContainer", "StopPodSandbox", "CreateContainer"]);
}

#[tokio::test]
async fn a_plugin_that_dies_in_the_midst_of_an_event_keeps_nobody() {
    let world = World::new().await;
    let plugin = world.plugin("10-dies", hangs(&[CREATE_CONTAINER])).await;
    let asking = tokio::spawn({
        let plugins = world.plugins.clone();
        async move { plugins.begin().create(creation()).await }
    });
    plugin.asked().await;
    drop(plugin);
    assert_eq!(asking.await.unwrap().unwrap().adjustment, ContainerAdjustment::new());
    world.plugins.begin().create(creation()).await.unwrap();
}

#[tokio::test]
async fn a_plugin_that_does_not_register_or_has_a_bad_name_is_closed() {
    let world = World::with(Duration::from_millis(50), LONG).await;
    let silent = TestPlugin::silent(&world.dir.path().join("nri.sock")).await;
    silent.closed().await;
    for name in ["1-a", "xx-a", "10-a/b"] {
        let socket = world.dir.path().join("nri.sock");
        TestPlugin::connect(&socket, name, Answers::default()).await.closed().await;
    }
    assert!(world.plugins.is_alone());
}

#[tokio::test]
async fn a_container_that_is_created_while_a_plugin_joins_is_not_lost() {
    let world = World::new().await;
    // In progress since before the plugin came, and not yet visible.
    let flight = world.plugins.begin();
    let socket = world.dir.path().join("nri.sock");
    let plugin = TestPlugin::connect(&socket, "10-a", Answers::default()).await;
    plugin.configured().await;
    while world.plugins.is_alone() {
        tokio::task::yield_now().await;
    }
    // The plugin is asked about an operation begun now, after it has the existing pods and containers.
    let later = tokio::spawn({
        let plugins = world.plugins.clone();
        async move { plugins.begin().create(creation()).await }
    });
    world.paper.known.lock().unwrap().containers.push(Container { id: "early".into(), ..Default::default() });
    drop(flight);
    later.await.unwrap().unwrap();
    assert_eq!(plugin.known().1, ["early"]);
    assert_eq!(plugin.heard(), ["CreateContainer"]);
}

#[tokio::test]
async fn an_adjustment_is_made_only_where_all_that_validate_accept_it() {
    let world = World::new().await;
    let _adjusts = world.plugin("10-a", Answers { create: Ok(sets("X", "1")), ..Answers::default() }).await;
    let rejecting = ValidateContainerAdjustmentResponse {
        reject: true,
        reason: "X is mine".into(),
        ..Default::default()
    };
    let events = plugin::bits(&[VALIDATE_CONTAINER_ADJUSTMENT]);
    let validator = world.plugin("20-v", Answers { events, validate: rejecting, ..Answers::default() }).await;
    let error = world.plugins.begin().create(creation()).await.unwrap_err().to_string();
    assert_eq!(error, "NRI plugin 20-v rejected the container's adjustment: X is mine");
    let request = validator.validated();
    assert_eq!(request.container.env, ["A=1"], "the container as it was asked for");
    assert_eq!(request.adjust.env[0].key, "X");
    let owner = &request.owners.owners["c"].compound[&(proto_nri::nri::Field::Env as i32)].owners["X"];
    assert_eq!((owner.as_str(), request.plugins.len()), ("10-a", 2));
}

#[tokio::test]
async fn updates_reach_the_runtime_whoever_asks_for_them() {
    let world = World::new().await;
    let update = |id: &str| {
        let mut update = ContainerUpdate { container_id: id.into(), ..Default::default() };
        update.linux.mut_or_insert_default().resources = Some(LinuxResources::new()).into();
        update
    };
    let stopped = StopContainerResponse { update: vec![update("other")], ..Default::default() };
    let plugin = world.plugin("10-a", Answers { stop: stopped, ..Answers::default() }).await;
    let request =
        UpdateContainersRequest { update: vec![update("mine"), update("gone")], ..Default::default() };
    let failed = plugin.update_containers(request).await.unwrap().failed;
    assert_eq!(failed.iter().map(|update| update.container_id.as_str()).collect::<Vec<_>>(), ["gone"]);
    world.plugins.container_stopped(pod(), container());
    while world.paper.updated.lock().unwrap().len() < 3 {
        tokio::task::yield_now().await;
    }
    let ids: Vec<_> =
        world.paper.updated.lock().unwrap().iter().map(|update| update.container_id.clone()).collect();
    assert_eq!(ids, ["mine", "gone", "other"]);
}

#[tokio::test]
async fn a_plugin_of_an_older_version_hears_of_events_as_changes_of_state() {
    let world = World::new().await;
    let plugin = world.plugin("10-old", Answers { is_old: true, ..Answers::default() }).await;
    world.plugins.begin().occurs(runs()).await.unwrap();
    assert_eq!(plugin.heard(), ["StateChange RUN_POD_SANDBOX"]);
}

/// The plugin of the next test, in its own process. It does nothing unless started as such.
#[tokio::test]
async fn a_plugin_that_was_started() {
    if std::env::var(SOCKET_VARIABLE).is_err() {
        return;
    }
    let stream = std::io::stdin().as_fd().try_clone_to_owned().unwrap();
    let stream = std::os::unix::net::UnixStream::from(stream);
    stream.set_nonblocking(true).unwrap();
    let name = std::env::var(NAME_VARIABLE).unwrap();
    let answers = Answers { create: Ok(sets("FROM", &name)), ..Answers::default() };
    let plugin = TestPlugin::started(UnixStream::from_std(stream).unwrap(), answers).await;
    plugin.closed().await;
}

#[tokio::test]
async fn plugins_of_the_directory_are_started_and_have_what_there_is_before_anything_is_served() {
    let dir = tempfile::tempdir().unwrap();
    let plugin_dir = dir.path().join("plugins");
    std::fs::create_dir(&plugin_dir).unwrap();
    let this = std::env::current_exe().unwrap();
    let works = format!("#!/bin/sh\nexec {} --exact a_plugin_that_was_started\n", this.display());
    for (name, script) in [("10-works", works.as_str()), ("20-ends", "#!/bin/sh\nexit 1\n")] {
        let path = plugin_dir.join(name);
        std::fs::write(&path, script).unwrap();
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    let plugins = Plugins::new(NriConfig {
        runtime_name: "test".into(),
        runtime_version: "v0".into(),
        socket: None,
        plugin_dir,
        plugin_conf_dir: dir.path().join("conf.d"),
        registration_timeout: LONG,
        request_timeout: LONG,
    });
    plugins.serve(Arc::new(Paper::default())).await.unwrap();
    let created = plugins.begin().create(creation()).await.unwrap();
    assert_eq!(created.adjustment.env[0].value, "works");
    plugins.close().await;
}

#[tokio::test]
async fn the_end_of_the_daemon_is_the_end_of_connections_and_socket() {
    let world = World::new().await;
    let plugin = world.plugin("10-a", Answers::default()).await;
    world.plugins.close().await;
    plugin.closed().await;
    while world.dir.path().join("nri.sock").exists() {
        tokio::task::yield_now().await;
    }
}
