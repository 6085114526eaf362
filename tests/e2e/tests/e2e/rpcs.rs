//! RPCs that are not about one pod, ids that are not there, and RPCs that this version does not have.

use proto_cri::v1;
use tests_e2e::Host;
use tonic::Code;

#[tokio::test]
async fn version_status_and_image_file_system_answer_what_a_kubelet_needs() {
    let Some(host) = Host::start().await else { return };
    let mut client = host.client();
    let version = client.runtime.version(v1::VersionRequest::default()).await.unwrap().into_inner();
    assert_eq!((version.runtime_name.as_str(), version.runtime_api_version.as_str()), ("podvisor", "v1"));
    let status = client.runtime.status(v1::StatusRequest { verbose: true }).await.unwrap().into_inner();
    let conditions = status.status.unwrap().conditions;
    for name in ["RuntimeReady", "NetworkReady"] {
        let condition = conditions.iter().find(|condition| condition.r#type == name).unwrap();
        assert!(condition.status, "{condition:?}");
    }
    let names: Vec<_> = status.runtime_handlers.iter().map(|handler| handler.name.as_str()).collect();
    assert_eq!(names, ["", "podvisor"]);
    let usage = client.images.image_fs_info(v1::ImageFsInfoRequest::default()).await.unwrap().into_inner();
    let mountpoint = &usage.image_filesystems[0].fs_id.as_ref().unwrap().mountpoint;
    assert!(std::path::Path::new(mountpoint).is_dir(), "{mountpoint}");
    host.stop().await.unwrap();
}

#[tokio::test]
async fn the_network_is_not_ready_without_a_configuration_and_says_why() {
    let Some(host) = Host::start().await else { return };
    std::fs::remove_file(host.network.conf_dir.join("10-test.conflist")).unwrap();
    let status = host.client().runtime.status(v1::StatusRequest::default()).await.unwrap().into_inner();
    let conditions = status.status.unwrap().conditions;
    let network = conditions.iter().find(|condition| condition.r#type == "NetworkReady").unwrap();
    assert!(
        !network.status && network.message.contains(host.network.conf_dir.to_str().unwrap()),
        "{network:?}"
    );
    host.stop().await.unwrap();
}

#[tokio::test]
async fn ids_that_are_not_there_are_not_found_or_already_done() {
    let Some(host) = Host::start().await else { return };
    let mut client = host.client();
    assert_eq!(client.pod_status("none").await.unwrap_err().code(), Code::NotFound);
    assert_eq!(client.status("none").await.unwrap_err().code(), Code::NotFound);
    assert_eq!(client.start("none").await.unwrap_err().code(), Code::NotFound);
    assert_eq!(client.exec("none", &["true"], 1).await.unwrap_err().code(), Code::NotFound);
    client.stop("none", 0).await.unwrap();
    client.remove("none").await.unwrap();
    client.stop_pod("none").await.unwrap();
    client.remove_pod("none").await.unwrap();
    host.stop().await.unwrap();
}

#[tokio::test]
async fn an_rpc_that_is_not_there_is_unimplemented_by_name() {
    let Some(host) = Host::start().await else { return };
    let mut client = host.client();
    let error =
        client.runtime.checkpoint_container(v1::CheckpointContainerRequest::default()).await.unwrap_err();
    assert_eq!(error.code(), Code::Unimplemented);
    assert!(error.message().contains("CheckpointContainer"), "{error}");
    host.stop().await.unwrap();
}
