//! Layers shared by images, and images removed while a pod uses them.

use std::path::PathBuf;

use proto_cri::v1;
use tests_e2e::wait::until_seen;
use tests_e2e::{Host, spec};
use tests_registry::Layer;

/// Pushes busybox with a file on top; returns the image's name.
async fn with_file(host: &Host, tag: &str, content: &[u8]) -> String {
    let (mut layers, config) = tests_registry::busybox_image().unwrap();
    layers.push(Layer::builder().file("mine", 0o644, content).build());
    host.registry.push_image("e2e/shared", tag, layers, config).await.unwrap();
    host.image(&format!("e2e/shared:{tag}"))
}

#[tokio::test]
async fn an_image_that_is_removed_while_its_container_runs_works_and_counts_until_the_container_is_gone() {
    let Some(host) = Host::start().await else { return };
    let mut client = host.client();
    let name = with_file(&host, "removed", &vec![b'x'; 5 << 20]).await;
    let image = client.pull(&name).await.unwrap();
    let pod = client.run_pod(&spec::pod("removed", host.dir())).await.unwrap();
    let container = client.run(&pod, spec::container("main", &image, &["sleep", "3600"])).await.unwrap();
    let (before, _) = client.image_usage().await.unwrap();
    let removed = Some(v1::ImageSpec { image: name.clone(), ..Default::default() });
    client.images.remove_image(v1::RemoveImageRequest { image: removed }).await.unwrap();
    let listed =
        client.images.list_images(v1::ListImagesRequest::default()).await.unwrap().into_inner().images;
    assert!(listed.is_empty(), "{listed:?}");
    // Not in the guest's cache yet.
    assert_eq!(
        client.sh(&container, "tr -d x < /mine | wc -c; wc -c < /mine").await.unwrap(),
        "0\n5242880\n"
    );
    let (after, _) = client.image_usage().await.unwrap();
    assert!(after * 100 >= before * 99, "{before} and {after}");
    client.stop(&container, 0).await.unwrap();
    client.remove(&container).await.unwrap();
    until_seen(format!("the image's files to go with their last user, from {before} bytes"), async || {
        let (now, _) = client.image_usage().await.unwrap();
        if now + (5 << 20) <= before { Ok(()) } else { Err(now) }
    })
    .await;
    client.remove_pod(&pod).await.unwrap();
    host.stop().await.unwrap();
}

#[tokio::test]
async fn two_images_of_one_base_share_its_file() {
    let Some(host) = Host::start().await else { return };
    let mut client = host.client();
    let files = |directory: PathBuf| std::fs::read_dir(directory.join("layers")).unwrap().count();
    let mut images = Vec::new();
    let mut counts = Vec::new();
    for tag in ["one", "two"] {
        let name = with_file(&host, tag, tag.as_bytes()).await;
        images.push(client.pull(&name).await.unwrap());
        counts.push(files(client.image_usage().await.unwrap().1));
    }
    // The second one adds the two files of its own layer.
    assert_eq!(counts[1], counts[0] + 2, "{counts:?}");
    let pod = client.run_pod(&spec::pod("shared", host.dir())).await.unwrap();
    for (image, tag) in images.iter().zip(["one", "two"]) {
        let container = client.run(&pod, spec::container(tag, image, &["sleep", "3600"])).await.unwrap();
        assert_eq!(client.sh(&container, "cat /mine; ls /bin/sh").await.unwrap(), format!("{tag}/bin/sh\n"));
    }
    client.remove_pod(&pod).await.unwrap();
    host.stop().await.unwrap();
}
