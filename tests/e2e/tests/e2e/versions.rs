//! Both versions of the API on one socket: the same life of a pod through each, word by word alike.

use proto_cri::{v1, v1alpha2};
use tests_e2e::{Host, spec};
use tonic::Code;

/// Walks a pod through its life with one version's clients. Returns their answers, without ids and times.
macro_rules! life {
    ($name:ident, $version:ident) => {
        async fn $name(host: &Host, pod: &v1::PodSandboxConfig) -> Vec<String> {
            let channel = host.client().channel;
            let mut runtime = $version::runtime_service_client::RuntimeServiceClient::new(channel.clone());
            let mut images = $version::image_service_client::ImageServiceClient::new(channel);
            let mut seen = Vec::new();
            let image = Some(v1::ImageSpec { image: host.busybox(), ..Default::default() });
            let request = v1::PullImageRequest { image: image.clone(), ..Default::default() };
            let id = images.pull_image(request).await.unwrap().into_inner().image_ref;
            let request = v1::ImageStatusRequest { image, verbose: false };
            let found = images.image_status(request).await.unwrap().into_inner().image.unwrap();
            seen.push(format!("{id} {} {:?} {}", found.id, found.repo_tags, found.size));

            let request = v1::RunPodSandboxRequest { config: Some(pod.clone()), ..Default::default() };
            let pod_sandbox_id = runtime.run_pod_sandbox(request).await.unwrap().into_inner().pod_sandbox_id;
            let request =
                v1::PodSandboxStatusRequest { pod_sandbox_id: pod_sandbox_id.clone(), verbose: false };
            let status =
                runtime.pod_sandbox_status(request.clone()).await.unwrap().into_inner().status.unwrap();
            seen.push(format!("{:?} {:?} {:?}", status.metadata, status.state(), status.labels));
            seen.push(format!("{:?}", status.linux));
            assert!(!status.network.unwrap().ip.is_empty());

            let config = spec::shell("main", &id, "echo out; exec sleep 3600");
            let create = v1::CreateContainerRequest {
                pod_sandbox_id: pod_sandbox_id.clone(),
                config: Some(config),
                sandbox_config: Some(pod.clone()),
            };
            let container_id = runtime.create_container(create).await.unwrap().into_inner().container_id;
            let start = v1::StartContainerRequest { container_id: container_id.clone() };
            runtime.start_container(start).await.unwrap();
            let cmd = ["sh", "-c", "echo hello; exit 3"].map(str::to_owned).to_vec();
            let exec = v1::ExecSyncRequest { container_id: container_id.clone(), cmd, timeout: 60 };
            seen.push(format!("{:?}", runtime.exec_sync(exec).await.unwrap().into_inner()));
            let filter = v1::ContainerFilter { id: container_id.clone(), ..Default::default() };
            let list = v1::ListContainersRequest { filter: Some(filter) };
            let listed = runtime.list_containers(list).await.unwrap().into_inner().containers;
            seen.push(format!("{} {:?} {:?}", listed.len(), listed[0].metadata, listed[0].state()));
            let stop = v1::StopContainerRequest { container_id: container_id.clone(), timeout: 0 };
            runtime.stop_container(stop).await.unwrap();
            let ask = v1::ContainerStatusRequest { container_id: container_id.clone(), verbose: false };
            let ended = runtime.container_status(ask.clone()).await.unwrap().into_inner().status.unwrap();
            seen.push(format!("{:?} {} {} {:?}", ended.state(), ended.exit_code, ended.reason, ended.user));
            runtime.remove_container(v1::RemoveContainerRequest { container_id }).await.unwrap();
            seen.push(format!("{:?}", runtime.container_status(ask).await.unwrap_err().code()));
            let stop = v1::StopPodSandboxRequest { pod_sandbox_id: pod_sandbox_id.clone() };
            runtime.stop_pod_sandbox(stop).await.unwrap();
            runtime.remove_pod_sandbox(v1::RemovePodSandboxRequest { pod_sandbox_id }).await.unwrap();
            seen.push(format!("{:?}", runtime.pod_sandbox_status(request).await.unwrap_err().code()));
            let status = runtime.status(v1::StatusRequest::default()).await.unwrap().into_inner();
            seen.push(format!("{:?}", status.status));
            seen
        }
    };
}

life!(new, v1);
life!(old, v1alpha2);

#[tokio::test]
async fn both_versions_walk_a_pod_through_the_same_life() {
    let Some(host) = Host::start().await else { return };
    let pod = v1::PodSandboxConfig {
        labels: [("app".to_owned(), "both".to_owned())].into(),
        ..spec::pod("both", host.dir())
    };
    let seen = new(&host, &pod).await;
    assert_eq!(seen, old(&host, &pod).await);
    assert!(seen.iter().any(|line| line.contains("ContainerExited 137")), "{seen:?}");

    let channel = host.client().channel;
    let mut runtime = v1alpha2::runtime_service_client::RuntimeServiceClient::new(channel.clone());
    let version = runtime.version(v1::VersionRequest::default()).await.unwrap().into_inner();
    assert_eq!(version.runtime_api_version, "v1alpha2");
    // RPCs missing in the old version do not exist under its name.
    let mut newer = tonic::client::Grpc::new(channel);
    newer.ready().await.unwrap();
    let path = tonic::codegen::http::uri::PathAndQuery::from_static(
        "/runtime.v1alpha2.RuntimeService/RuntimeConfig",
    );
    let codec: tonic_prost::ProstCodec<v1::RuntimeConfigRequest, v1::RuntimeConfigResponse> =
        Default::default();
    let request = tonic::Request::new(v1::RuntimeConfigRequest {});
    assert_eq!(newer.unary(request, path, codec).await.unwrap_err().code(), Code::Unimplemented);
    host.stop().await.unwrap();
}
