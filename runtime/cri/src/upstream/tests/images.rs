//! Images of two stores.

use prost::Message;
use proto_cri::v1;
use tonic::{Code, Status};

use super::world::{IMAGE, World, image, pods};

#[tokio::test]
async fn an_image_is_pulled_into_the_store_of_its_pod() {
    let world = World::start().await;
    for fake in [&world.ours, &world.theirs] {
        fake.answers("PullImage", &v1::PullImageResponse { image_ref: "1".into() });
    }
    world.theirs.answers("ListPodSandbox", &pods(&["c1"]));
    for (pod, of_ours, of_theirs) in [("vm", 1, 0), ("c1", 1, 1), ("nobody's", 2, 1)] {
        let metadata = v1::PodSandboxMetadata { name: pod.into(), ..Default::default() };
        let config = v1::PodSandboxConfig { metadata: Some(metadata), ..Default::default() };
        let pull = v1::PullImageRequest { sandbox_config: Some(config), ..Default::default() };
        world.call::<v1::PullImageResponse>(&format!("{IMAGE}PullImage"), &pull).await.unwrap();
        let asked = (world.ours.asked("PullImage").len(), world.theirs.asked("PullImage").len());
        assert_eq!(asked, (of_ours, of_theirs), "{pod}");
    }
}

#[tokio::test]
async fn an_image_of_the_other_store_is_fetched_without_credentials_and_absent_where_those_are_needed() {
    let world = World::start().await;
    world.theirs.answers("CreateContainer", &v1::CreateContainerResponse { container_id: "c".into() });
    world.ours.answers(
        "ImageStatus",
        &v1::ImageStatusResponse { image: Some(image("ours")), ..Default::default() },
    );
    let spec = |name: &str| Some(v1::ImageSpec { image: name.into(), ..Default::default() });
    let config = v1::ContainerConfig { image: spec("ours"), ..Default::default() };
    let create = v1::CreateContainerRequest {
        pod_sandbox_id: "c1".into(),
        config: Some(config),
        ..Default::default()
    };
    let created = async || world.runtime::<v1::CreateContainerResponse>("CreateContainer", &create).await;
    let present = async || {
        let status = v1::ImageStatusRequest { image: spec("ours"), verbose: false };
        let status: v1::ImageStatusResponse =
            world.call(&format!("{IMAGE}ImageStatus"), &status).await.unwrap();
        status.image.is_some()
    };
    assert!(present().await);
    world.theirs.refuses("PullImage", Status::unknown("401"));
    let refused = created().await.unwrap_err();
    assert!(refused.code() == Code::NotFound && refused.message().contains("401"), "{refused}");
    let pull = v1::PullImageRequest::decode(world.theirs.asked("PullImage")[0].clone()).unwrap();
    assert_eq!((pull.image.unwrap().image.as_str(), pull.auth), ("r/ours@sha256:1", None));
    assert!(!present().await, "the kubelet pulls with the pod's own credentials");
    assert!(present().await, "pods of the other runtime have it all the same");
    created().await.unwrap_err();
    assert!(world.theirs.asked("CreateContainer").is_empty());
    // A registry that cannot be reached needs no credentials.
    assert!(!present().await);
    world.theirs.refuses("PullImage", Status::unavailable("no route to host"));
    let refused = created().await.unwrap_err();
    assert!(refused.code() == Code::Unavailable && refused.message().contains("no route"), "{refused}");
    assert!(present().await);
    // Like the kubelet then: for the pod of the upstream.
    world.theirs.answers("ListPodSandbox", &pods(&["c1"]));
    world.theirs.answers("PullImage", &v1::PullImageResponse { image_ref: "ours".into() });
    let metadata = v1::PodSandboxMetadata { name: "c1".into(), ..Default::default() };
    let sandbox_config = Some(v1::PodSandboxConfig { metadata: Some(metadata), ..Default::default() });
    let pull = v1::PullImageRequest { image: spec("ours"), sandbox_config, ..Default::default() };
    world.call::<v1::PullImageResponse>(&format!("{IMAGE}PullImage"), &pull).await.unwrap();
    assert!(present().await);
    assert_eq!(created().await.unwrap().container_id, "c");
}

#[tokio::test]
async fn an_image_that_a_container_mounts_comes_to_the_store_of_its_pod() {
    let world = World::start().await;
    world.theirs.answers("CreateContainer", &v1::CreateContainerResponse { container_id: "c".into() });
    world.theirs.answers("PullImage", &v1::PullImageResponse { image_ref: "ours".into() });
    let there = v1::ImageStatusResponse { image: Some(image("ours")), ..Default::default() };
    world.ours.answers("ImageStatus", &there);
    let of_image = v1::Mount {
        container_path: "/data".into(),
        image: Some(v1::ImageSpec { image: "ours".into(), ..Default::default() }),
        ..Default::default()
    };
    let mounts = vec![v1::Mount { container_path: "/plain".into(), ..Default::default() }, of_image];
    let config = v1::ContainerConfig { mounts, ..Default::default() };
    let create = v1::CreateContainerRequest {
        pod_sandbox_id: "c1".into(),
        config: Some(config),
        ..Default::default()
    };
    world.runtime::<v1::CreateContainerResponse>("CreateContainer", &create).await.unwrap();
    let pull = v1::PullImageRequest::decode(world.theirs.asked("PullImage")[0].clone()).unwrap();
    assert_eq!(pull.image.unwrap().image, "r/ours@sha256:1");
}

#[tokio::test]
async fn an_image_is_removed_from_both_stores_or_the_call_fails() {
    let mut world = World::start().await;
    for fake in [&world.ours, &world.theirs] {
        fake.answers("RemoveImage", &());
    }
    world.theirs.answers("ListImages", &v1::ListImagesResponse { images: vec![image("theirs")] });
    let list: v1::ListImagesResponse = world.call(&format!("{IMAGE}ListImages"), &()).await.unwrap();
    assert_eq!(list.images.len(), 1);
    let remove = async |world: &World, name: &str| {
        let image = Some(v1::ImageSpec { image: name.into(), ..Default::default() });
        world.call::<()>(&format!("{IMAGE}RemoveImage"), &v1::RemoveImageRequest { image }).await
    };
    remove(&world, "ours").await.unwrap();
    assert_eq!((world.ours.asked("RemoveImage").len(), world.theirs.asked("RemoveImage").len()), (1, 1));
    world.kill();
    world.pods().await;
    world.is_up(false).await;
    remove(&world, "ours").await.unwrap();
    assert_eq!(remove(&world, "theirs").await.unwrap_err().code(), Code::Unavailable);
}
