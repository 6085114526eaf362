//! Plugins of the node (NRI) and pods in VMs: one plugin changes a container, one hangs, one dies, and one
//! requests something impossible for a VM.

#[path = "../../../../runtime/nri/tests/plugin/mod.rs"]
#[allow(dead_code, reason = "another test has use for the rest")]
mod plugin;

use std::fs;

use proto_cri::v1;
use proto_nri::nri::Event::{CREATE_CONTAINER, STOP_POD_SANDBOX};
use proto_nri::nri::{
    ContainerAdjustment, ContainerUpdate, CreateContainerResponse, Hook, KeyValue, Mount, OptionalInt64,
    POSIXRlimit, UpdateContainersRequest,
};
use tests_e2e::{Host, spec};
use tonic::Code;

use self::plugin::{Answers, TestPlugin};

async fn plugin(host: &Host, answers: Answers) -> TestPlugin {
    let plugin = TestPlugin::connect(&host.dir().join("nri.sock"), "10-test", answers).await;
    plugin.synchronized().await;
    plugin
}

fn adjusts(adjust: ContainerAdjustment) -> Answers {
    let response = CreateContainerResponse { adjust: Some(adjust).into(), ..Default::default() };
    Answers { create: Ok(response), ..Answers::default() }
}

fn variable(key: &str, value: &str) -> KeyValue {
    KeyValue { key: key.into(), value: value.into(), ..Default::default() }
}

#[tokio::test]
async fn a_plugin_changes_what_a_container_is_made_of_and_hears_of_its_life() {
    let Some(host) = Host::start().await else { return };
    let mut client = host.client();
    let image = client.pull(&host.busybox()).await.unwrap();
    let shared = host.dir().join("shared");
    fs::create_dir(&shared).unwrap();
    fs::write(shared.join("word"), "from the node").unwrap();
    let limit = |name: &str, soft| POSIXRlimit { type_: name.into(), hard: 77, soft, ..Default::default() };
    let mut adjustment = ContainerAdjustment {
        env: vec![variable("-TAKEN", ""), variable("GIVEN", "by-the-plugin")],
        mounts: vec![Mount {
            destination: "/mnt/shared".into(),
            source: shared.to_str().unwrap().into(),
            type_: "bind".into(),
            options: vec!["rbind".into(), "ro".into()],
            ..Default::default()
        }],
        rlimits: vec![limit("RLIMIT_NOFILE", 55), limit("RLIMIT_CORE", 44)],
        ..Default::default()
    };
    adjustment.annotations.insert("plugin.example.com/seen".into(), "yes".into());
    let plugin = plugin(&host, adjusts(adjustment)).await;

    let pod = client.run_pod(&spec::pod("nri", host.dir())).await.unwrap();
    let mut config = spec::container("app", &image, &["sleep", "4711"]);
    config.envs = vec![v1::KeyValue { key: "TAKEN".into(), value: b"by-the-pod".to_vec() }];
    let container = client.run(&pod, config).await.unwrap();
    let seen = client.sh(&container, "echo \"<$TAKEN> $GIVEN\"; cat /mnt/shared/word").await.unwrap();
    assert_eq!(seen, "<> by-the-plugin\nfrom the node");
    let readonly = client.sh(&container, "touch /mnt/shared/x 2>&1; true").await.unwrap();
    assert!(readonly.contains("Read-only file system"), "{readonly}");
    let limits = client.sh(&container, "cat /proc/1/limits").await.unwrap();
    let line = |name: &str| limits.lines().find(|line| line.starts_with(name)).unwrap().to_owned();
    let values =
        |name: &str| line(name).split_whitespace().rev().skip(1).take(2).collect::<Vec<_>>().join(" ");
    assert_eq!((values("Max open files"), values("Max core file size")), ("77 55".into(), "77 44".into()));
    plugin.has_heard("PostStartContainer").await;
    assert_eq!(plugin.annotations_seen()["plugin.example.com/seen"], "yes");
    let status = client.status(&container).await.unwrap();
    assert!(!status.annotations.contains_key("plugin.example.com/seen"), "{:?}", status.annotations);

    let mut update = ContainerUpdate { container_id: container.clone(), ..Default::default() };
    let resources = update.linux.mut_or_insert_default().resources.mut_or_insert_default();
    let bytes = OptionalInt64 { value: 48 << 20, ..Default::default() };
    resources.memory.mut_or_insert_default().limit = Some(bytes).into();
    let request = UpdateContainersRequest { update: vec![update], ..Default::default() };
    assert_eq!(plugin.update_containers(request).await.unwrap().failed.len(), 0);
    let limit = client.sh(&container, "cat /sys/fs/cgroup/memory.max").await.unwrap();
    assert_eq!(limit.trim(), (48 << 20).to_string());

    client.stop(&container, 0).await.unwrap();
    client.remove(&container).await.unwrap();
    client.stop_pod(&pod).await.unwrap();
    client.remove_pod(&pod).await.unwrap();
    plugin.has_heard("RemovePodSandbox").await;
    let life = [
        "RunPodSandbox",
        "CreateContainer",
        "PostCreateContainer",
        "StartContainer",
        "PostStartContainer",
        "StopContainer",
        "RemoveContainer",
        "StopPodSandbox",
        "RemovePodSandbox",
    ];
    assert_eq!(plugin.heard(), life);
    host.stop().await.unwrap();
}

#[tokio::test]
async fn a_plugin_that_hangs_or_dies_keeps_no_pod() {
    let Some(host) = Host::start().await else { return };
    let mut client = host.client();
    let image = client.pull(&host.busybox()).await.unwrap();
    let pod = client.run_pod(&spec::pod("nri", host.dir())).await.unwrap();
    let hangs = |event| Answers { hangs: true, events: plugin::bits(&[event]), ..Answers::default() };

    let hanging = plugin(&host, hangs(CREATE_CONTAINER)).await;
    let container = spec::container("app", &image, &["sleep", "4711"]);
    client.run(&pod, container).await.unwrap();
    hanging.closed().await;

    let dying = plugin(&host, hangs(CREATE_CONTAINER)).await;
    let creating = tokio::spawn({
        let (mut client, pod) = (client.clone(), pod.clone());
        let container = spec::container("other", &image, &["sleep", "4711"]);
        async move { client.create(&pod, container).await }
    });
    dying.asked().await;
    drop(dying);
    creating.await.unwrap().unwrap();

    let hanging = plugin(&host, hangs(STOP_POD_SANDBOX)).await;
    client.stop_pod(&pod).await.unwrap();
    hanging.closed().await;
    client.remove_pod(&pod).await.unwrap();
    host.stop().await.unwrap();
}

#[tokio::test]
async fn what_a_vm_cannot_have_is_refused_by_name_and_leaves_nothing() {
    let Some(host) = Host::start().await else { return };
    let mut client = host.client();
    let image = client.pull(&host.busybox()).await.unwrap();
    let pod = client.run_pod(&spec::pod("nri", host.dir())).await.unwrap();
    let mut adjustment = ContainerAdjustment::new();
    adjustment
        .hooks
        .mut_or_insert_default()
        .poststart
        .push(Hook { path: "/bin/true".into(), ..Default::default() });
    let asking = plugin(&host, adjusts(adjustment)).await;
    let container = || spec::container("app", &image, &["sleep", "4711"]);
    let refused = client.create(&pod, container()).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition);
    let message = refused.message();
    assert!(message.starts_with("NRI adjustment of container app: hooks: a container in a VM"), "{message}");
    asking.has_heard("RemoveContainer").await;
    drop(asking);
    client.run(&pod, container()).await.unwrap();
    client.remove_pod(&pod).await.unwrap();
    host.stop().await.unwrap();
}
