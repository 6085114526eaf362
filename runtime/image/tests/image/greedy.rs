//! Registries sending a client in circles, and layers far larger than they look. HTTP on loopback, without a
//! real registry.

use std::fs;
use std::io::{Read, repeat};

use crate::node::{Node, content, limits};
use crate::wire::{Reply, Request, Server, reply};
use runtime_image::{ContentError, ImageErrorKind, Limits};
use serde_json::json;
use tests_registry::{Layer, digest_of};

/// More requests than any failing pull needs: some redirects for each try, and a few tries.
const REQUESTS_MAX: usize = 100;

fn redirect(to: &str) -> Reply {
    reply(307, "").with("location", to)
}

/// A manifest and a config of an image with one layer.
fn documents(layer: &Layer) -> (String, String) {
    let config = json!({ "os": "linux", "architecture": "amd64", "rootfs": { "diff_ids": [layer.diff_id] } });
    let config = config.to_string();
    let manifest = json!({
        "schemaVersion": 2,
        "config": { "mediaType": "application/vnd.oci.image.config.v1+json",
            "digest": digest_of(config.as_bytes()), "size": config.len() },
        "layers": [{ "mediaType": layer.media_type, "digest": layer.digest(), "size": layer.bytes.len() }],
    });
    (manifest.to_string(), config)
}

/// Answers with an image's documents and its layer.
fn image(layer: Layer) -> impl Fn(&Request) -> Reply {
    let (manifest, config) = documents(&layer);
    move |request| match request.path.as_str() {
        "/v2/" => reply(200, "{}"),
        "/v2/t/manifests/1" => reply(200, manifest.clone()),
        path if path.ends_with(&digest_of(config.as_bytes())) => reply(200, config.clone()),
        path if path.ends_with(&layer.digest()) => reply(200, layer.bytes.clone()),
        _ => reply(404, ""),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn redirects_in_a_circle_end_and_say_so() {
    for place in ["manifests", "blobs", "token"] {
        let server = Server::start(|address| {
            let (address, image) = (address.to_owned(), image(Layer::builder().build()));
            // A token is asked for with a query.
            move |request: &Request| match request.path.split('?').next().unwrap_or_default() {
                "/one" => redirect("/two"),
                "/two" => redirect("/one"),
                "/v2/" if place == "token" => {
                    reply(401, "").with("www-authenticate", format!("Bearer realm=\"http://{address}/one\""))
                }
                path if path.contains(place) => redirect("/one"),
                _ => image(request),
            }
        })
        .await;
        let node = Node::new();
        let error = node.pull(&format!("{}/t:1", server.address)).await.unwrap_err();
        assert_eq!(error.kind(), ImageErrorKind::Unavailable, "{place}: {error}");
        let asked = server.paths().len();
        assert!(asked < REQUESTS_MAX, "{place}: {asked} requests");
        node.assert_no_leftovers();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn redirects_to_ever_new_places_end_and_say_so() {
    let server = Server::start(|_| {
        |request: &Request| match request.path.as_str() {
            "/v2/" => reply(200, "{}"),
            path => redirect(&format!("{path}x")),
        }
    })
    .await;
    let error = Node::new().pull(&format!("{}/t:1", server.address)).await.unwrap_err();
    assert_eq!(error.kind(), ImageErrorKind::Unavailable, "{error}");
    assert!(server.paths().len() < REQUESTS_MAX);
}

/// The process's peak memory in bytes.
fn memory_max() -> usize {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() << 10
}

#[tokio::test(flavor = "multi_thread")]
async fn a_layer_of_ten_thousand_times_its_size_takes_neither_memory_nor_disk() {
    const ZEROS: u64 = 1 << 30;
    const LIMIT: u64 = 128 << 20;
    // The header of a file of so many zeros, and then the zeros.
    let mut header = tar::Header::new_gnu();
    header.set_path("zeros").unwrap();
    header.set_mode(0o644);
    header.set_size(ZEROS);
    header.set_cksum();
    let whole = header.as_bytes().chain(repeat(0).take(ZEROS));
    let bytes = zstd::encode_all(whole, 1).unwrap();
    assert!(bytes.len() as u64 * 10_000 < ZEROS, "{} bytes", bytes.len());
    let media_type = "application/vnd.oci.image.layer.v1.tar+zstd".to_owned();
    let bomb = Layer { media_type, bytes, diff_id: digest_of(b"never reached") };
    let server = Server::start(|_| image(bomb)).await;
    let node = Node::with_limits(Limits { unpacked_bytes: LIMIT, ..limits() });
    let (disk, memory) = (node.images.usage(), memory_max());
    let (what, wrong) = content(node.pull(&format!("{}/t:1", server.address)).await);
    assert!(what.starts_with("layer 1 "), "{what}");
    assert!(
        matches!(wrong, ContentError::Limit { unit: "uncompressed bytes", limit: LIMIT, .. }),
        "{wrong:?}"
    );
    node.assert_no_leftovers();
    let grown = memory_max() - memory;
    assert!((grown as u64) < LIMIT / 2, "{grown} bytes of memory");
    // The blob is kept at most, for a pull with other bounds.
    let left = node.images.usage().bytes - disk.bytes;
    assert!(left < 1 << 20, "{left} bytes on the disk");
}
