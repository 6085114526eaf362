//! The stand-ins for the suite's images: their names, layers and configs. An image only has the parts of the
//! original used by the suite's specs. Every image is built on one busybox, so there is a shell for every
//! spec.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::{Value, json};
use tests_registry::{Layer, LayerBuilder, busybox_image_of};
use walkdir::WalkDir;

const NGINX: &str = include_str!("../images/nginx.conf");
const HTTPD: &str = include_str!("../images/httpd.conf");

/// The port of the web server in the suite's host-network specs.
const HOST_NETWORK_PORT: &str = "12003";

/// Users of the image. A spec distinguishes their groups from the request's additional ones.
const PASSWD: &str = "root:x:0:0:root:/root:/bin/sh\ndefault-user:x:1000:1000::/home/default-user:/bin/sh\n";
const GROUP: &str = "root:x:0:\ndefault-user:x:1000:\ngroup-defined-in-image:x:50000:default-user\n";

/// One image under one of its names.
#[derive(Debug)]
pub(crate) struct Image {
    pub(crate) repository: &'static str,
    pub(crate) tag: &'static str,
    pub(crate) layers: Vec<Layer>,
    pub(crate) config: Value,
}

/// All images, from the programs in `files`.
pub(crate) fn all(files: &Path) -> Result<Vec<Image>> {
    let (busybox, shell) = busybox_image_of(&files.join("busybox"))?;
    let on_busybox = |repository, tag, layer: Option<Layer>, changes: Value| {
        let (mut layers, mut config) = (busybox.clone(), shell.clone());
        layers.extend(layer);
        merge(&mut config, changes);
        Image { repository, tag, layers, config }
    };
    let mut images = vec![
        on_busybox("e2e-test-images/busybox", "1.29-2", None, json!({})),
        on_busybox(
            "e2e-test-images/nginx",
            "1.14-2",
            Some(nginx(files, "80")?),
            command(&["nginx", "-g", "daemon off;"]),
        ),
        on_busybox(
            "k8s-staging-cri-tools/hostnet-nginx-amd64",
            "latest",
            Some(nginx(files, HOST_NETWORK_PORT)?),
            command(&["nginx", "-g", "daemon off;"]),
        ),
        on_busybox(
            "e2e-test-images/httpd",
            "2.4.39-4",
            Some(httpd(files)?),
            command(&["httpd", "-D", "FOREGROUND", "-f", "/etc/httpd/httpd.conf"]),
        ),
        on_busybox(
            "e2e-test-images/nonewprivs",
            "1.3",
            Some(program(files, "nnp", 0o4755)?),
            command(&["/nnp"]),
        ),
        on_busybox(
            "pause",
            "3.9",
            Some(program(files, "pause", 0o755)?),
            json!({ "Cmd": null, "Entrypoint": ["/pause"] }),
        ),
        // The other runtime's own: it must differ from each image removed by a spec.
        on_busybox(
            "sandbox",
            "1",
            Some(program(files, "pause", 0o755)?),
            json!({ "Cmd": null, "Entrypoint": ["/pause"], "Labels": { "use": "sandbox" } }),
        ),
        on_busybox(
            "k8s-staging-cri-tools/test-image-predefined-group",
            "latest",
            Some(Layer::builder().file("etc/passwd", 0o644, PASSWD).file("etc/group", 0o644, GROUP).build()),
            json!({ "User": "1000" }),
        ),
    ];
    for (repository, user) in [
        ("k8s-staging-cri-tools/test-image-user-uid", "1002"),
        ("k8s-staging-cri-tools/test-image-user-username", "www-data"),
        ("k8s-staging-cri-tools/test-image-user-uid-group", "1003:1004"),
        ("k8s-staging-cri-tools/test-image-user-username-group", "www-data:1004"),
    ] {
        images.push(on_busybox(repository, "latest", None, json!({ "User": user })));
    }
    // Each with its own file, so no two are one image; but the three tags are.
    for (repository, tag, content) in [
        ("k8s-staging-cri-tools/test-image-latest", "latest", "latest"),
        ("k8s-staging-cri-tools/test-image-tag", "test", "tag"),
        ("k8s-staging-cri-tools/test-image-tag", "all", "all"),
        ("k8s-staging-cri-tools/test-image-1", "latest", "1"),
        ("k8s-staging-cri-tools/test-image-2", "latest", "2"),
        ("k8s-staging-cri-tools/test-image-3", "latest", "3"),
        ("k8s-staging-cri-tools/test-image-tags", "1", "tags"),
        ("k8s-staging-cri-tools/test-image-tags", "2", "tags"),
        ("k8s-staging-cri-tools/test-image-tags", "3", "tags"),
    ] {
        let layer = Layer::builder().file("test-image", 0o644, content).build();
        images.push(on_busybox(repository, tag, Some(layer), json!({})));
    }
    Ok(images)
}

fn command(words: &[&str]) -> Value {
    json!({ "Cmd": words })
}

fn merge(config: &mut Value, changes: Value) {
    if let (Value::Object(config), Value::Object(changes)) = (config, changes) {
        config.extend(changes);
    }
}

fn nginx(files: &Path, port: &str) -> Result<Layer> {
    let layer = tree(Layer::builder(), &files.join("nginx"))?;
    // Debian's build keeps bodies and the like here; it makes the last step of the path only.
    let layer = layer
        .dir("var/lib", 0o755)
        .dir("var/lib/nginx", 0o755)
        .dir("var/log/nginx", 0o755)
        .dir("etc/nginx", 0o755);
    Ok(layer.file("etc/nginx/nginx.conf", 0o644, NGINX.replace("@PORT@", port)).build())
}

fn httpd(files: &Path) -> Result<Layer> {
    let layer = tree(Layer::builder(), &files.join("httpd"))?;
    let layer = layer.dir("etc/httpd", 0o755).file("etc/httpd/httpd.conf", 0o644, HTTPD);
    let layer = layer.dir("var/www", 0o755).dir("var/www/html", 0o755);
    Ok(layer.file("var/www/html/index.html", 0o644, "podvisor\n").build())
}

/// One program at the root.
fn program(files: &Path, name: &str, mode: u32) -> Result<Layer> {
    let path = files.join(name);
    let bytes = fs::read(&path).with_context(|| format!("reading {}", path.display()))?;
    Ok(Layer::builder().file(name, mode, bytes).build())
}

/// A directory's files as they are, owned by root.
fn tree(mut layer: LayerBuilder, root: &Path) -> Result<LayerBuilder> {
    for entry in WalkDir::new(root).min_depth(1).sort_by_file_name() {
        let entry = entry?;
        let path = entry.path().strip_prefix(root)?.to_str().context("a name is not UTF-8")?;
        let mode = entry.metadata()?.permissions().mode() & 0o777;
        layer = if entry.file_type().is_dir() {
            layer.dir(path, mode)
        } else {
            layer.file(path, mode, fs::read(entry.path())?)
        };
    }
    Ok(layer)
}
