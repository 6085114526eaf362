//! Images from a container's view, and the errors of bad ones.

use proto_cri::v1;
use serde_json::json;
use tests_e2e::traces::Traces;
use tests_e2e::{Host, spec};
use tests_registry::Layer;
use tonic::Code;

/// Pushes a busybox image with this stop signal in its config; returns its name.
pub(crate) async fn with_stop_signal(host: &Host, signal: &str) -> String {
    let (layers, mut config) = tests_registry::busybox_image().unwrap();
    config["StopSignal"] = json!(signal);
    host.registry.push_image("e2e/stop-signal", signal, layers, config).await.unwrap();
    host.image(&format!("e2e/stop-signal:{signal}"))
}

#[tokio::test]
async fn layers_whiteouts_links_and_users_come_out_in_the_container() {
    let Some(host) = Host::start().await else { return };
    let lower = Layer::builder()
        .dir("data", 0o755)
        .file("data/kept", 0o644, b"kept")
        .file("data/gone", 0o644, b"gone")
        .dir("opaque", 0o755)
        .file("opaque/below", 0o644, b"below")
        .file("etc/passwd", 0o644, b"root:x:0:0::/root:/bin/sh\napp:x:1234:1234::/home/app:/bin/sh\n")
        .file("etc/group", 0o644, b"root:x:0:\napp:x:1234:\nextra:x:77:app\n")
        .build();
    let upper = Layer::builder()
        .whiteout("data/gone")
        .opaque("opaque")
        .file("opaque/above", 0o644, b"above")
        .hard_link("data/linked", 0o644, "data/kept")
        .symlink("data/soft", "kept")
        .build();
    let (mut layers, mut config) = tests_registry::busybox_image().unwrap();
    layers.extend([lower, upper]);
    config["User"] = json!("app");
    host.registry.push_image("e2e/layers", "1", layers, config).await.unwrap();

    let mut client = host.client();
    let image = client.pull(&host.image("e2e/layers:1")).await.unwrap();
    let pod = client.run_pod(&spec::pod("layers", host.dir())).await.unwrap();
    let container = client.run(&pod, spec::container("main", &image, &["sleep", "3600"])).await.unwrap();
    assert_eq!(client.sh(&container, "ls /data").await.unwrap(), "kept\nlinked\nsoft\n");
    assert_eq!(client.sh(&container, "ls /opaque").await.unwrap(), "above\n");
    assert_eq!(client.sh(&container, "cat /data/linked /data/soft").await.unwrap(), "keptkept");
    assert_eq!(client.sh(&container, "id -u; id -G").await.unwrap(), "1234\n1234 77\n");
    let user = client.status(&container).await.unwrap().user.unwrap().linux.unwrap();
    assert_eq!((user.uid, user.gid), (1234, 1234));
    client.remove_pod(&pod).await.unwrap();
    host.stop().await.unwrap();
}

#[tokio::test]
async fn a_container_writes_to_its_own_layer_and_not_to_the_image() {
    let Some(host) = Host::start().await else { return };
    let mut client = host.client();
    let image = client.pull(&host.busybox()).await.unwrap();
    let pod = client.run_pod(&spec::pod("writable", host.dir())).await.unwrap();
    let one = client.run(&pod, spec::container("one", &image, &["sleep", "3600"])).await.unwrap();
    let two = client.run(&pod, spec::container("two", &image, &["sleep", "3600"])).await.unwrap();
    client.sh(&one, "echo changed > /etc/passwd; rm /etc/group; echo new > /new").await.unwrap();
    assert_eq!(client.sh(&one, "cat /etc/passwd /new; ls /etc/group").await.unwrap(), "changed\nnew\n");
    assert!(client.sh(&two, "cat /etc/passwd; ls /etc/group; ls /new").await.unwrap().contains("root:"));
    client.remove_pod(&pod).await.unwrap();
    host.stop().await.unwrap();
}

#[tokio::test]
async fn an_image_is_listed_found_by_every_name_and_removed() {
    use proto_cri::v1;
    let Some(host) = Host::start().await else { return };
    let mut client = host.client();
    let id = client.pull(&host.busybox()).await.unwrap();
    let listed =
        client.images.list_images(v1::ListImagesRequest::default()).await.unwrap().into_inner().images;
    assert_eq!(listed.len(), 1);
    assert_eq!((&listed[0].id, &listed[0].repo_tags), (&id, &vec![host.busybox()]));
    assert!(listed[0].size > 0);
    for name in [id.clone(), host.busybox(), listed[0].repo_digests[0].clone()] {
        let image = Some(v1::ImageSpec { image: name.clone(), ..Default::default() });
        let request = v1::ImageStatusRequest { image, verbose: false };
        let found = client.images.image_status(request).await.unwrap().into_inner().image;
        assert_eq!(found.map(|image| image.id), Some(id.clone()), "{name}");
    }
    for _ in 0..2 {
        let image = Some(v1::ImageSpec { image: host.busybox(), ..Default::default() });
        client.images.remove_image(v1::RemoveImageRequest { image }).await.unwrap();
    }
    assert!(
        client
            .images
            .list_images(v1::ListImagesRequest::default())
            .await
            .unwrap()
            .into_inner()
            .images
            .is_empty()
    );
    host.stop().await.unwrap();
}

#[tokio::test]
async fn a_tag_that_is_not_in_the_registry_is_an_error_with_its_name() {
    let Some(host) = Host::start().await else { return };
    let name = host.image("e2e/nothing:9");
    let error = host.client().pull(&name).await.unwrap_err();
    assert_eq!(error.code(), Code::NotFound);
    assert!(error.message().contains("e2e/nothing"), "{error}");
    // The kubelet recognizes an unresponsive registry by the beginning of the message, and by this code.
    let error = host.client().pull("127.0.0.1:1/e2e/nothing:9").await.unwrap_err();
    assert_eq!(error.code(), Code::Unknown);
    assert!(error.message().starts_with("RegistryUnavailable: "), "{error}");
    host.stop().await.unwrap();
}

/// Pushes a busybox image with declared volumes: with content, empty, absent, behind a link, and one to be
/// mounted over.
async fn with_volumes(host: &Host) -> String {
    let layer = Layer::builder()
        .dir("srv", 0o755)
        .owner(33, 33)
        .dir("srv/data", 0o2750)
        .file("srv/data/kept", 0o640, b"from the image")
        .dir("srv/empty", 0o1777)
        .owner(0, 0)
        .dir("srv/mounted", 0o755)
        .file("srv/mounted/image", 0o644, b"")
        .dir("srv/a,upperdir=b:c", 0o700)
        .file("srv/a,upperdir=b:c/odd", 0o644, b"odd")
        .symlink("linked", "srv/../srv/real")
        .dir("srv/real", 0o755)
        .file("srv/real/linked", 0o644, b"")
        .build();
    let (mut layers, mut config) = tests_registry::busybox_image().unwrap();
    layers.push(layer);
    config["Volumes"] = json!({
        "/srv/data": {}, "/srv/empty/": {}, "new/below": {}, "/srv/mounted": {}, "/srv/a,upperdir=b:c": {},
        "/linked": {},
    });
    host.registry.push_image("e2e/volumes", "1", layers, config).await.unwrap();
    host.image("e2e/volumes:1")
}

#[tokio::test]
async fn volumes_that_an_image_declares_are_the_containers_own_with_the_images_content() {
    let Some(host) = Host::start().await else { return };
    let before = Traces::take(host.dir()).unwrap();
    let mut client = host.client();
    let image = client.pull(&with_volumes(&host).await).await.unwrap();
    let mounted = tempfile::tempdir().unwrap();
    std::fs::write(mounted.path().join("host"), "").unwrap();
    let config = |name: &str| {
        let mut config = spec::container(name, &image, &["sleep", "3600"]);
        config.linux.as_mut().unwrap().security_context.as_mut().unwrap().readonly_rootfs = true;
        config.mounts = vec![v1::Mount {
            host_path: mounted.path().display().to_string(),
            container_path: "/srv/mounted".into(),
            ..Default::default()
        }];
        config
    };
    let pod = client.run_pod(&spec::pod("volumes", host.dir())).await.unwrap();
    let one = client.run(&pod, config("one")).await.unwrap();
    let stat = "stat -c '%u:%g %a' /srv/data /srv/data/kept /srv/empty /new/below";
    assert_eq!(client.sh(&one, stat).await.unwrap(), "33:33 2750\n33:33 640\n33:33 1777\n0:0 755\n");
    assert_eq!(
        client.sh(&one, "cat /srv/data/kept '/srv/a,upperdir=b:c/odd'").await.unwrap(),
        "from the imageodd"
    );
    assert_eq!(
        client.sh(&one, "ls /srv/mounted /linked/").await.unwrap(),
        "/linked/:\nlinked\n\n/srv/mounted:\nhost\n"
    );
    // The root is read-only, and the volumes are not.
    let write = "touch /srv/x 2>&1; for at in data empty real 'a,upperdir=b:c'; do touch \"/srv/$at/new\"; done; \
                 touch /new/below/new; rm /srv/data/kept; ls /srv/data /new/below";
    let written = client.sh(&one, write).await.unwrap();
    assert_eq!(written, "touch: /srv/x: Read-only file system\n/new/below:\nnew\n\n/srv/data:\nnew\n");
    let two = client.run(&pod, config("two")).await.unwrap();
    assert_eq!(
        client.sh(&two, "ls /srv/data /new/below").await.unwrap(),
        "/new/below:\n\n/srv/data:\nkept\n"
    );
    client.remove(&one).await.unwrap();
    let again = client.run(&pod, config("one")).await.unwrap();
    assert_eq!(client.sh(&again, "ls /srv/data").await.unwrap(), "kept\n");
    client.remove_pod(&pod).await.unwrap();
    assert_eq!(host.left_since(&before).await, Vec::<String>::new());
    host.stop().await.unwrap();
}
