//! Answers with silent bad effects in a kubelet: each test is named by the protected property. The client's
//! own rules are checked for every answer of every test, in `tests/e2e/src/checked.rs`.

use proto_cri::v1;
use tests_e2e::{Host, spec};
use tonic::Code;

#[tokio::test]
async fn no_status_makes_the_kubelet_remove_files_pods_or_images() {
    let Some(host) = Host::start().await else { return };
    let mut client = host.client();
    let pulled = client.pull(&host.busybox()).await.unwrap();
    let unlogged = v1::PodSandboxConfig { log_directory: String::new(), ..spec::pod("traps", host.dir()) };
    let pod = client.run_pod(&unlogged).await.unwrap();

    // The kubelet's clean-up removes `log_path + "*"`: an empty one is its own working directory.
    let nowhere = spec::container("nowhere", &pulled, &["true"]);
    let unnamed =
        v1::ContainerConfig { log_path: String::new(), ..spec::container("unnamed", &pulled, &["true"]) };
    for config in [nowhere, unnamed] {
        let container = client.run(&pod, config).await.unwrap();
        let status = client.wait(&container).await.unwrap();
        assert!(status.log_path.starts_with('/') && status.log_path.contains(&container), "{status:?}");
        assert!(!std::path::Path::new(&status.log_path).exists());
    }

    // A pod without its network mode in the status, or without an address, is recreated forever.
    let status = client.pod_status(&pod).await.unwrap();
    let options = status.linux.unwrap().namespaces.unwrap().options.unwrap();
    assert_eq!((options.network(), options.pid()), (v1::NamespaceMode::Pod, v1::NamespaceMode::Container));
    assert!(status.network.unwrap().ip.parse::<std::net::IpAddr>().is_ok());

    // An image with different ids in different answers is collected while in use.
    let image = Some(v1::ImageSpec { image: host.busybox(), ..Default::default() });
    let found = client
        .images
        .image_status(v1::ImageStatusRequest { image, verbose: true })
        .await
        .unwrap()
        .into_inner();
    let image = found.image.unwrap();
    assert_eq!(image.id, pulled);
    assert!(serde_json::from_str::<serde_json::Value>(&found.info["info"]).is_ok());
    let listed = client.images.list_images(v1::ListImagesRequest::default()).await.unwrap().into_inner();
    assert_eq!(listed.images[0].id, pulled);
    let listed =
        client.runtime.list_containers(v1::ListContainersRequest::default()).await.unwrap().into_inner();
    for container in listed.containers {
        assert_eq!((&container.image_id, &container.image_ref), (&pulled, &pulled));
        let request = v1::ContainerStatusRequest { container_id: container.id, verbose: true };
        let answer = client.runtime.container_status(request).await.unwrap().into_inner();
        let status = answer.status.unwrap();
        assert_eq!((&status.image_id, &status.image_ref), (&pulled, &image.repo_digests[0]));
        assert!(serde_json::from_str::<serde_json::Value>(&answer.info["info"]).is_ok());
    }
    client.remove_pod(&pod).await.unwrap();
    host.stop().await.unwrap();
}

#[tokio::test]
async fn the_node_reports_what_the_kubelet_would_otherwise_guess() {
    let Some(host) = Host::start().await else { return };
    let mut client = host.client();
    // Its image collector looks up the disk of this directory; without one, evictions stop.
    let usage = client.images.image_fs_info(v1::ImageFsInfoRequest {}).await.unwrap().into_inner();
    let mountpoint = usage.image_filesystems[0].fs_id.clone().unwrap().mountpoint;
    assert!(std::path::Path::new(&mountpoint).is_dir(), "{mountpoint}");
    // An answer without a driver says systemd.
    let config = client.runtime.runtime_config(v1::RuntimeConfigRequest {}).await.unwrap().into_inner();
    assert_eq!(config.linux.unwrap().cgroup_driver(), v1::CgroupDriver::Cgroupfs);
    // Removed objects are NotFound: any other code fails the pod's status.
    assert_eq!(client.pod_status("gone").await.unwrap_err().code(), Code::NotFound);
    assert_eq!(client.status("gone").await.unwrap_err().code(), Code::NotFound);
    // If a claimed feature is missing, a pod runs differently from its request.
    let status = client.runtime.status(v1::StatusRequest { verbose: true }).await.unwrap().into_inner();
    assert!(!status.features.unwrap().user_namespaces_host_network);
    let names: Vec<_> = status.runtime_handlers.iter().map(|handler| handler.name.as_str()).collect();
    assert_eq!(names, ["", "podvisor"]);
    let info: serde_json::Value = serde_json::from_str(&status.info["config"]).unwrap();
    assert_eq!(info["cgroup_driver"], "cgroupfs");
    host.stop().await.unwrap();
}

#[tokio::test]
async fn a_nodes_pod_range_is_taken_and_a_wrong_one_is_refused_by_its_field() {
    let Some(host) = Host::start().await else { return };
    let mut client = host.client();
    let request = |range: &str| v1::UpdateRuntimeConfigRequest {
        runtime_config: Some(v1::RuntimeConfig {
            network_config: Some(v1::NetworkConfig { pod_cidr: range.into() }),
        }),
    };
    client.runtime.update_runtime_config(request("10.9.0.0/24")).await.unwrap();
    let error = client.runtime.update_runtime_config(request("10.9.0.0/99")).await.unwrap_err();
    assert_eq!(error.code(), Code::InvalidArgument);
    assert!(error.message().contains("network_config.pod_cidr"), "{error}");
    let status = client.runtime.status(v1::StatusRequest { verbose: true }).await.unwrap().into_inner();
    let info: serde_json::Value = serde_json::from_str(&status.info["config"]).unwrap();
    assert_eq!(info["pod_ranges"][0], "10.9.0.0/24");
    host.stop().await.unwrap();
}
