//! `podvisor pull`, `images`, `image inspect`, `image import` and `rmi` before a real daemon and a real
//! registry, and a pod of an imported image.

use std::path::Path;
use std::process::{Output, Stdio};

use serde_json::{Value, json};
use tests_e2e::{Host, spec};
use tests_registry::{Layer, digest_of};
use tokio::process::Command;

async fn run(host: &Host, arguments: &[&str]) -> (Output, String, String) {
    let mut command = Command::new(host.daemon.binary());
    command.arg("--config").arg(host.daemon.config()).args(arguments).stdin(Stdio::null()).kill_on_drop(true);
    // Without the user's own credentials.
    let output = command.env("HOME", host.dir()).env_remove("DOCKER_CONFIG").output().await.unwrap();
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    (output, stdout, stderr)
}

async fn succeeds(host: &Host, arguments: &[&str]) -> String {
    let (output, text, error) = run(host, arguments).await;
    assert!(output.status.success(), "{arguments:?}: {error}");
    text
}

async fn json(host: &Host, arguments: &[&str]) -> Value {
    serde_json::from_str(&succeeds(host, &[arguments, &["-o", "json"]].concat()).await).unwrap()
}

/// Writes an OCI image layout of busybox with one more layer. Its file names its origin.
fn write_layout(directory: &Path) {
    let (mut layers, config) = tests_registry::busybox_image().unwrap();
    layers.push(Layer::builder().file("from", 0o644, b"a layout").build());
    let blobs = directory.join("blobs/sha256");
    std::fs::create_dir_all(&blobs).unwrap();
    let write = |content: &[u8]| {
        let digest = digest_of(content);
        std::fs::write(blobs.join(&digest[7..]), content).unwrap();
        (digest, content.len())
    };
    let diff_ids: Vec<&str> = layers.iter().map(|layer| layer.diff_id.as_str()).collect();
    let document = json!({ "architecture": "amd64", "os": "linux", "config": config, "rootfs": { "diff_ids": diff_ids } });
    let (digest, size) = write(document.to_string().as_bytes());
    let config =
        json!({ "mediaType": "application/vnd.oci.image.config.v1+json", "digest": digest, "size": size });
    let described: Vec<Value> = layers
        .iter()
        .map(|layer| {
            let (digest, size) = write(&layer.bytes);
            json!({ "mediaType": layer.media_type, "digest": digest, "size": size })
        })
        .collect();
    let manifest = json!({ "schemaVersion": 2, "config": config, "layers": described }).to_string();
    let (digest, size) = write(manifest.as_bytes());
    let index = json!({ "schemaVersion": 2, "manifests": [{
        "mediaType": "application/vnd.oci.image.manifest.v1+json", "digest": digest, "size": size,
        "annotations": { "org.opencontainers.image.ref.name": "latest" },
    }] });
    std::fs::write(directory.join("index.json"), index.to_string()).unwrap();
    std::fs::write(directory.join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#).unwrap();
}

#[tokio::test]
async fn people_pull_list_inspect_import_and_remove_images() {
    let Some(host) = Host::start().await else { return };
    let busybox = host.busybox();
    let text = succeeds(&host, &["pull", &busybox]).await;
    for part in [": done\n", &format!("pulled {busybox} (")] {
        assert!(text.contains(part), "{part:?}: {text}");
    }
    // The second time there is nothing to fetch.
    let id = succeeds(&host, &["pull", "-q", &busybox]).await.trim_end().to_owned();
    assert!(id.starts_with("sha256:") && id.len() == 71, "{id}");
    let (output, _, error) = run(&host, &["pull", "-q", &host.image("nothing:1"), &busybox]).await;
    assert_eq!(output.status.code(), Some(125));
    assert!(error.contains("nothing:1"), "{error}");
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim_end(), id, "the other one is pulled");

    let table = succeeds(&host, &["images", "--digests"]).await;
    assert!(table.contains(&busybox) && table.contains(&id[7..19]) && table.contains("sha256:"), "{table}");
    let images = json(&host, &["images"]).await;
    assert_eq!((&images[0]["id"], &images[0]["repoTags"][0]), (&json!(id), &json!(busybox)));
    let inspected = json(&host, &["image", "inspect", &busybox, &id[7..19]]).await;
    assert_eq!((&inspected[0], inspected.as_array().unwrap().len()), (&inspected[1], 2));
    assert_eq!(inspected[0]["id"], id);

    imported_image_runs(&host).await;

    let text = succeeds(&host, &["rmi", &busybox, "local/imported:1"]).await;
    assert_eq!(text.lines().count(), 2, "{text}");
    assert_eq!(json(&host, &["images"]).await, json!([]));
    let (output, _, error) = run(&host, &["rmi", &busybox]).await;
    assert_eq!(output.status.code(), Some(125));
    assert!(error.contains(&format!("image {busybox} is not on this node")), "{error}");
    host.stop().await.unwrap();
}

/// Imports a layout from a directory, and as an archive on the disk, and runs a pod of it.
async fn imported_image_runs(host: &Host) {
    let layout = host.dir().join("layout");
    write_layout(&layout);
    let layout_path = layout.to_str().unwrap();
    let (output, _, error) = run(host, &["image", "import", host.dir().to_str().unwrap()]).await;
    assert_eq!(output.status.code(), Some(125));
    assert!(error.contains("it has no index.json"), "{error}");
    let text = succeeds(host, &["image", "import", layout_path, "--name", "local/imported:1"]).await;
    assert!(text.contains("imported docker.io/local/imported:1 ("), "{text}");

    let archive = host.dir().join("layout.tar.gz");
    let packed = Command::new("tar").arg("-C").arg(&layout).arg("-czf").arg(&archive).arg(".").status().await;
    assert!(packed.unwrap().success());
    let archive = archive.to_str().unwrap();
    let again = succeeds(host, &["image", "import", "-q", archive]).await;
    let image = json(host, &["image", "inspect", "local/imported:1"]).await[0]["id"].clone();
    assert_eq!(again.trim_end(), image.as_str().unwrap(), "one image, however it came");

    let mut client = host.client();
    let pod = client.run_pod(&spec::pod("imported", host.dir())).await.unwrap();
    let image = image.as_str().unwrap();
    let container = client.run(&pod, spec::container("main", image, &["sleep", "3600"])).await.unwrap();
    assert_eq!(client.sh(&container, "cat /from").await.unwrap(), "a layout");
    client.remove_pod(&pod).await.unwrap();

    // An interrupted import leaves nothing, also no files on the daemon's disk.
    let bytes = std::fs::read(archive).unwrap();
    let cut = host.dir().join("cut.tar.gz");
    std::fs::write(&cut, &bytes[..bytes.len() / 2]).unwrap();
    let (output, _, error) = run(host, &["image", "import", cut.to_str().unwrap()]).await;
    assert_eq!(output.status.code(), Some(125));
    assert!(error.contains("the archive"), "{error}");
    let left = std::fs::read_dir(host.dir().join("state/images/tmp")).unwrap().count();
    assert_eq!(left, 0);
}
