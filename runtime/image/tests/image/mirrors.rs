//! Images pulled through the mirrors of `hosts.toml`. Prints a note and passes if no registry is installed.

use std::fs;
use std::path::Path;

use crate::node::{Node, limits, one_file};
use runtime_image::{Credentials, ImageError, Limits, RegistryConfig};
use serde_json::json;
use tempfile::TempDir;
use tests_registry::{Layer, PASSWORD, Registry, USERNAME};

/// A registry unknown to every name server (RFC 6761).
const UPSTREAM: &str = "registry.invalid";

fn node_with_mirrors() -> (Node, TempDir) {
    let certs = tempfile::tempdir().unwrap();
    (Node::with_config(config(certs.path())), certs)
}

fn config(certs: &Path) -> RegistryConfig {
    RegistryConfig { config_dir: Some(certs.to_owned()), limits: limits(), ..RegistryConfig::default() }
}

fn write(certs: &Path, registry: &str, text: &str) {
    fs::create_dir_all(certs.join(registry)).unwrap();
    fs::write(certs.join(registry).join("hosts.toml"), text).unwrap();
}

fn hosts(addresses: &[&str]) -> String {
    addresses.iter().map(|address| format!("[host.\"http://{address}\"]\n")).collect()
}

fn failures(error: ImageError) -> Vec<ImageError> {
    match error {
        ImageError::Hosts { failures, .. } => failures,
        other => panic!("expected each host's failure, got {other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_comes_from_the_first_mirror_that_has_it_under_its_own_name() {
    if !Registry::is_installed() {
        return;
    }
    let (without, with) = (Registry::start().unwrap(), Registry::start().unwrap());
    let digest = with.push_image("a/b", "1", one_file("x"), json!({})).await.unwrap();
    let (node, certs) = node_with_mirrors();
    let name = format!("{UPSTREAM}/a/b:1");

    // The upstream alone, then a mirror written while all this runs.
    let alone = node.pull(&name).await.unwrap_err();
    assert!(matches!(&alone, ImageError::Unreachable { registry, .. } if registry == UPSTREAM), "{alone:?}");
    write(certs.path(), "_default", &hosts(&["127.0.0.1:1", &without.addr, &with.addr]));
    let image = node.pull(&name).await.unwrap();
    assert_eq!(image.repo_tags, std::slice::from_ref(&name));
    assert_eq!(image.repo_digests, [format!("{UPSTREAM}/a/b@{digest}")]);
    assert_eq!(node.pull(&image.repo_digests[0]).await.unwrap().id, image.id);

    // Only the registry's own directory counts.
    write(certs.path(), UPSTREAM, &hosts(&["127.0.0.1:1", &without.addr]));
    let error = node.pull(&name).await.unwrap_err();
    let message = error.to_string();
    let each = failures(error);
    assert!(
        matches!(
            &each[..],
            [ImageError::Unreachable { .. }, ImageError::NotFound { .. }, ImageError::Unreachable { .. }]
        ),
        "{each:?}"
    );
    for named in ["127.0.0.1:1", &without.addr, UPSTREAM, "a/b:1"] {
        assert!(message.contains(named), "{named}: {message}");
    }

    write(certs.path(), UPSTREAM, "[host.\"http://h\"]\nclient = \"gone.pem\"\n");
    let message = node.pull(&name).await.unwrap_err().to_string();
    assert!(message.contains("hosts.toml") && message.contains("gone.pem"), "{message}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mirror_that_only_pulls_is_not_asked_what_a_tag_means() {
    if !Registry::is_installed() {
        return;
    }
    let (mirror, server) = (Registry::start().unwrap(), Registry::start().unwrap());
    let stale = mirror.push_image("x", "1", one_file("stale"), json!({})).await.unwrap();
    let layers = one_file("fresh");
    let layer = layers[0].digest();
    let fresh = server.push_image("x", "1", layers.clone(), json!({})).await.unwrap();
    assert_ne!(stale, fresh);
    mirror.push_image("x", "2", layers, json!({})).await.unwrap();
    // Content with a digest comes from the mirror: the server no longer has it.
    fs::remove_file(server.blob_path(&layer)).unwrap();
    let (node, certs) = node_with_mirrors();
    let text = format!(
        "server = \"http://{}\"\n[host.\"http://{}\"]\ncapabilities = [\"pull\"]\n",
        server.addr, mirror.addr
    );
    write(certs.path(), UPSTREAM, &text);
    let image = node.pull(&format!("{UPSTREAM}/x:1")).await.unwrap();
    assert_eq!(image.repo_digests, [format!("{UPSTREAM}/x@{fresh}")]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_path_after_the_api_stands_before_the_repository() {
    if !Registry::is_installed() {
        return;
    }
    let mirror = Registry::start().unwrap();
    mirror.push_image("cache/hub/x", "1", one_file("x"), json!({})).await.unwrap();
    let (node, certs) = node_with_mirrors();
    let text = format!("[host.\"http://{}/v2/cache/hub\"]\noverride_path = true\n", mirror.addr);
    write(certs.path(), UPSTREAM, &text);
    let image = node.pull(&format!("{UPSTREAM}/x:1")).await.unwrap();
    assert_eq!(image.repo_tags, [format!("{UPSTREAM}/x:1")]);
}

#[tokio::test(flavor = "multi_thread")]
async fn credentials_go_to_the_upstream_and_not_to_its_mirrors() {
    if !Registry::is_installed() {
        return;
    }
    let closed = Registry::start_with_password().unwrap();
    closed.push_image("x", "1", one_file("x"), json!({})).await.unwrap();
    let (node, certs) = node_with_mirrors();
    let credentials = Credentials::Password { username: USERNAME.into(), password: PASSWORD.into() };
    let name = format!("{UPSTREAM}/x:1");

    write(certs.path(), UPSTREAM, &hosts(&[&closed.addr]));
    let error = node.images.pull(&name, Some(credentials.clone())).await.unwrap_err();
    assert!(matches!(failures(error)[0], ImageError::Unauthorized { .. }));
    write(certs.path(), UPSTREAM, &format!("server = \"http://{}\"\n", closed.addr));
    node.images.pull(&name, Some(credentials.clone())).await.unwrap();

    // A mirror identical to the registry.
    write(certs.path(), &closed.addr, &hosts(&["127.0.0.1:1", &closed.addr]));
    node.images.pull(&closed.reference("x", "1"), Some(credentials)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mirror_that_sends_other_bytes_is_left_for_the_next_host() {
    if !Registry::is_installed() {
        return;
    }
    let (bad, good) = (Registry::start().unwrap(), Registry::start().unwrap());
    let noise: Vec<u8> = (0..3_000_000_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    let layers = || vec![Layer::builder().file("noise", 0o644, &noise).build(), one_file("x").remove(0)];
    let (large, small) = (layers()[0].clone(), layers()[1].clone());
    let manifest = bad.push_image("x", "1", layers(), json!({})).await.unwrap();
    good.push_image("x", "1", layers(), json!({})).await.unwrap();
    let (node, certs) = node_with_mirrors();
    write(certs.path(), UPSTREAM, &format!("server = \"http://{}\"\n{}", good.addr, hosts(&[&bad.addr])));

    // A layer broken long before its end, a truncated one, and the manifest itself.
    let mut damaged = large.bytes.clone();
    damaged[1000] ^= 0x10;
    fs::write(bad.blob_path(&large.digest()), &damaged).unwrap();
    fs::write(bad.blob_path(&small.digest()), &small.bytes[..20]).unwrap();
    let image = node.pull(&format!("{UPSTREAM}/x:1")).await.unwrap();
    node.images.remove(&image.id).unwrap();
    fs::write(bad.blob_path(&manifest), "{}").unwrap();
    assert_eq!(node.pull(&format!("{UPSTREAM}/x@{manifest}")).await.unwrap().id, image.id);

    // No host has the right bytes.
    node.images.remove(&image.id).unwrap();
    fs::write(good.blob_path(&large.digest()), &damaged).unwrap();
    let refused = node.pull(&format!("{UPSTREAM}/x@{manifest}")).await.unwrap_err();
    assert!(matches!(refused, ImageError::Content { .. }), "{refused:?}");
    assert!(!node.blob(&large.digest(), ".partial").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_bytes_of_a_mirror_do_not_count_against_the_limit_of_the_image() {
    if !Registry::is_installed() {
        return;
    }
    let (bad, good) = (Registry::start().unwrap(), Registry::start().unwrap());
    let noise: Vec<u8> = (0..3_000_000_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    let layers = || vec![Layer::builder().file("noise", 0o644, &noise).build()];
    let layer = layers()[0].clone();
    bad.push_image("x", "1", layers(), json!({})).await.unwrap();
    good.push_image("x", "1", layers(), json!({})).await.unwrap();
    // The checksum at the end: all the rest has been unpacked by then.
    let mut damaged = layer.bytes.clone();
    let end = damaged.len() - 6;
    damaged[end] ^= 0x10;
    fs::write(bad.blob_path(&layer.digest()), &damaged).unwrap();
    let certs = tempfile::tempdir().unwrap();
    write(certs.path(), UPSTREAM, &format!("server = \"http://{}\"\n{}", good.addr, hosts(&[&bad.addr])));
    let config = config(certs.path());
    let limits = Limits { unpacked_bytes: noise.len() as u64 * 3 / 2, ..config.limits };
    let node = Node::with_config(RegistryConfig { limits, ..config });
    node.pull(&format!("{UPSTREAM}/x:1")).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn new_settings_count_for_the_next_pull() {
    if !Registry::is_installed() {
        return;
    }
    let registry = Registry::start().unwrap();
    registry.push_image("a/b", "1", one_file("x"), json!({})).await.unwrap();
    let (node, certs) = node_with_mirrors();
    let name = format!("{UPSTREAM}/a/b:1");
    let other = tempfile::tempdir().unwrap();
    write(other.path(), UPSTREAM, &hosts(&[&registry.addr]));
    node.pull(&name).await.unwrap_err();
    node.images.set_registries(config(other.path()));
    node.pull(&name).await.unwrap();
    drop(certs);
}
