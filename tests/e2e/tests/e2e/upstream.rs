//! A node with containerd behind the daemon: pods of the node itself there, all others in VMs.

use proto_cri::v1;
use tests_e2e::client::Client;
use tests_e2e::containerd::Containerd;
use tests_e2e::wait::{until, until_seen};
use tests_e2e::{Host, spec};
use tonic::{Code, Status};

use crate::session::{Session, exec_url};

/// A host with containerd behind its daemon, and `more` in its configuration.
pub(crate) async fn start(more: &str) -> Option<(Host, Containerd)> {
    let mut host = Host::start().await?;
    let containerd = Containerd::start(host.dir(), &host.network, host.registry).await.unwrap();
    let path = host.daemon.config().to_owned();
    let config = std::fs::read_to_string(&path).unwrap();
    let socket = containerd.socket();
    std::fs::write(path, config + &format!("[upstream]\nsocket = {socket:?}\n{more}")).unwrap();
    host.daemon.kill_and_restart().await.unwrap();
    is_up(&mut host.client(), true).await;
    Some((host, containerd))
}

/// Waits until the daemon has noticed containerd's return or end.
pub(crate) async fn is_up(client: &mut Client, up: bool) {
    until_seen(format!("UpstreamReady to be {up}"), async || {
        let status = client.runtime.status(v1::StatusRequest::default()).await.unwrap().into_inner();
        let conditions = status.status.unwrap().conditions;
        let upstream = conditions.into_iter().find(|condition| condition.r#type == "UpstreamReady").unwrap();
        if upstream.status == up { Ok(()) } else { Err(upstream) }
    })
    .await;
}

/// A pod in the node's own network.
pub(crate) fn node_pod(host: &Host) -> v1::PodSandboxConfig {
    let mut config = spec::pod("proxy", host.dir());
    // As the kubelet sends it: the name is the node's.
    config.hostname.clear();
    let context = config.linux.as_mut().unwrap().security_context.as_mut().unwrap();
    context.namespace_options.as_mut().unwrap().network = v1::NamespaceMode::Node.into();
    config
}

fn node_container(image: &str, line: &str) -> v1::ContainerConfig {
    let mut config = spec::shell("proxy", image, line);
    let context = config.linux.as_mut().unwrap().security_context.as_mut().unwrap();
    context.namespace_options.as_mut().unwrap().network = v1::NamespaceMode::Node.into();
    config
}

/// Runs a container as a kubelet does: with the pod's configuration.
pub(crate) async fn run(
    client: &mut Client,
    pod: &str,
    sandbox: &v1::PodSandboxConfig,
    config: v1::ContainerConfig,
) -> Result<String, Status> {
    let request = v1::CreateContainerRequest {
        pod_sandbox_id: pod.into(),
        config: Some(config),
        sandbox_config: Some(sandbox.clone()),
    };
    let container = client.runtime.create_container(request).await?.into_inner().container_id;
    client.start(&container).await?;
    Ok(container)
}

async fn ids(client: &mut Client) -> Vec<String> {
    let mut ids: Vec<_> = client.pods().await.unwrap().into_iter().map(|pod| pod.id).collect();
    ids.sort();
    ids
}

#[tokio::test]
async fn pods_of_the_node_run_in_containerd_beside_those_in_vms() {
    let Some((mut host, mut containerd)) = start("").await else { return };
    let mut client = host.client();
    let image = client.pull(&host.busybox()).await.unwrap();
    let vm = client.run_pod(&spec::pod("vm", host.dir())).await.unwrap();
    let in_vm = client.run(&vm, spec::shell("main", &image, "sleep 100000")).await.unwrap();
    // A pod with the node's network goes to containerd, and so does its image, with its first container.
    let config = node_pod(&host);
    let node = client.run_pod(&config).await.unwrap_or_else(|error| panic!("{error}\n{}", containerd.log()));
    let line = "n=0; while :; do echo line $n; n=$((n+1)); sleep 1; done";
    let on_node = run(&mut client, &node, &config, node_container(&image, line)).await;
    let on_node = on_node.unwrap_or_else(|error| panic!("{error}\n{}", containerd.log()));
    let netns = std::fs::read_link("/proc/self/ns/net").unwrap().display().to_string();
    assert_eq!(client.sh(&on_node, "readlink /proc/self/ns/net").await.unwrap().trim(), netns);
    assert!(client.sh(&in_vm, "uname -r").await.unwrap().contains("podvisor"));
    let url = exec_url(&mut client, &on_node, &["echo", "streamed"], false, false).await;
    let mut session = Session::open(&url, &["stdout", "stderr"]).await;
    session.until("streamed").await;
    let log = std::path::Path::new(&config.log_directory).join("proxy.log");
    let first = "stdout F line 0\n";
    until("the first line in the log", async || std::fs::read_to_string(&log).unwrap().contains(first)).await;

    let mut both = vec![vm.clone(), node.clone()];
    both.sort();
    assert_eq!(ids(&mut client).await, both);
    let stats = client.runtime.list_container_stats(v1::ListContainerStatsRequest::default()).await.unwrap();
    assert_eq!(stats.into_inner().stats.len(), 2);
    let images =
        client.images.list_images(v1::ListImagesRequest::default()).await.unwrap().into_inner().images;
    assert_eq!(images.iter().filter(|listed| listed.id == image).count(), 1, "{images:?}");

    let doctor = host.podvisor(&["doctor"]).output().await.unwrap();
    assert!(doctor.status.success(), "{}", String::from_utf8_lossy(&doctor.stdout));

    host.daemon.kill_and_restart().await.unwrap();
    client = host.client();
    assert_eq!(ids(&mut client).await, both);
    is_up(&mut client, true).await;
    assert_eq!(client.sh(&on_node, "echo still").await.unwrap(), "still\n");

    containerd.kill().await.unwrap();
    is_up(&mut client, false).await;
    assert_eq!(ids(&mut client).await, both, "as last seen");
    assert_eq!(client.sh(&in_vm, "echo still").await.unwrap(), "still\n");
    assert_eq!(client.sh(&on_node, "echo still").await.unwrap_err().code(), Code::Unavailable);
    host.daemon.kill_and_restart().await.unwrap();
    client = host.client();
    assert_eq!(ids(&mut client).await, both, "over a restart, too");

    containerd.restart().await.unwrap();
    is_up(&mut client, true).await;
    assert_eq!(client.sh(&on_node, "echo still").await.unwrap(), "still\n");
    for pod in [&node, &vm] {
        client.stop_pod(pod).await.unwrap();
        client.remove_pod(pod).await.unwrap();
    }
    assert!(ids(&mut client).await.is_empty());
    host.stop().await.unwrap();
}

#[tokio::test]
async fn a_vm_handler_refuses_the_nodes_namespaces_and_names_the_handler_that_has_them() {
    let Some((host, _containerd)) = start("").await else { return };
    let mut client = host.client();
    let refused = client.run_pod_on(&node_pod(&host), "podvisor").await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);
    assert!(
        refused.message().contains("network namespace") && refused.message().contains("\"runc\""),
        "{refused}"
    );
    host.stop().await.unwrap();
}
