//! Images by the names of missing registries, through mirrors set by the operator while the daemon runs.

use proto_cri::v1;
use serde_json::json;
use tests_e2e::Host;

fn named(image: &str) -> Option<v1::ImageSpec> {
    Some(v1::ImageSpec { image: image.to_owned(), ..Default::default() })
}

#[tokio::test]
async fn an_image_of_two_mirrored_registries_is_one_and_goes_as_one() {
    let Some(host) = Host::start().await else { return };
    let mut client = host.client();
    let names = ["one.invalid/podvisor/busybox:latest", "two.invalid/podvisor/busybox:latest"];
    assert!(client.pull(names[0]).await.is_err());
    let mirrors = host.dir().join("certs.d/_default");
    std::fs::create_dir_all(&mirrors).unwrap();
    let text = format!("[host.\"http://127.0.0.1:1\"]\n[host.\"http://{}\"]\n", host.registry.addr);
    std::fs::write(mirrors.join("hosts.toml"), text).unwrap();

    let id = client.pull(names[0]).await.unwrap();
    assert_eq!(client.pull(names[1]).await.unwrap(), id);
    let request = v1::ImageStatusRequest { image: named(&id), verbose: false };
    let image = client.images.image_status(request).await.unwrap().into_inner().image.unwrap();
    assert_eq!(image.repo_tags, names);
    assert_eq!(image.repo_digests.len(), 2);

    // Later callers find it removed. That is their aim, too.
    let removals = (0..5).map(|n| {
        let (mut client, name) = (host.client(), names[n % 2]);
        tokio::spawn(async move {
            client.images.remove_image(v1::RemoveImageRequest { image: named(name) }).await
        })
    });
    for removal in removals.collect::<Vec<_>>() {
        removal.await.unwrap().unwrap();
    }
    for name in [names[0], names[1], &id] {
        let request = v1::ImageStatusRequest { image: named(name), verbose: false };
        assert_eq!(client.images.image_status(request).await.unwrap().into_inner().image, None, "{name}");
    }

    let error = client.pull("one.invalid/podvisor/nothing:1").await.unwrap_err();
    for each in ["127.0.0.1:1", &host.registry.addr, "one.invalid"] {
        assert!(error.message().contains(each), "{each}: {error}");
    }
    host.stop().await.unwrap();
}

#[tokio::test]
async fn an_images_user_is_reported_as_number_or_as_name() {
    let Some(host) = Host::start().await else { return };
    let mut client = host.client();
    let cases = [
        ("1002", Some(1002), ""),
        ("www-data", None, "www-data"),
        ("1003:1004", Some(1003), ""),
        ("www-data:1004", None, "www-data"),
    ];
    for (number, (user, uid, username)) in cases.into_iter().enumerate() {
        let (layers, mut config) = tests_registry::busybox_image().unwrap();
        config["User"] = json!(user);
        let name = format!("e2e/user:{number}");
        host.registry.push_image("e2e/user", &number.to_string(), layers, config).await.unwrap();
        let id = client.pull(&host.image(&name)).await.unwrap();
        let request = v1::ImageStatusRequest { image: named(&id), verbose: false };
        let image = client.images.image_status(request).await.unwrap().into_inner().image.unwrap();
        assert_eq!((image.uid.map(|uid| uid.value), image.username.as_str()), (uid, username), "{user}");
    }
    host.stop().await.unwrap();
}
