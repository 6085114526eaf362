//! Images to be refused, from a real registry (`docker-registry` on loopback) with damaged storage where
//! needed. Prints a note and passes if it is not installed.

use std::fs;

use crate::node::{Node, content, limits, one_file, with_mount};
use runtime_image::{ContentError, Credentials, ImageError, Limits};
use serde_json::json;
use tests_registry::{Compression, Layer, PASSWORD, Registry, USERNAME, digest_of};

#[tokio::test(flavor = "multi_thread")]
async fn not_there_not_allowed_and_not_reachable_are_different_errors() {
    if !Registry::is_installed() {
        return;
    }
    let (open, closed, node) =
        (Registry::start().unwrap(), Registry::start_with_password().unwrap(), Node::new());
    assert!(matches!(node.pull(&open.reference("t/none", "1")).await, Err(ImageError::NotFound { .. })));
    closed.push_image("t/secret", "1", one_file("secret"), json!({})).await.unwrap();
    let reference = closed.reference("t/secret", "1");
    let login = |username: &str, password: &str| {
        Some(Credentials::Password { username: username.to_owned(), password: password.to_owned() })
    };
    assert!(matches!(node.pull(&reference).await, Err(ImageError::Unauthorized { .. })));
    let wrong = node.images.pull(&reference, login(USERNAME, "wrong")).await;
    assert!(matches!(wrong, Err(ImageError::Unauthorized { .. })), "{wrong:?}");
    node.images.pull(&reference, login(USERNAME, PASSWORD)).await.unwrap();
    let address = closed.addr.clone();
    drop(closed);
    let gone = node.pull(&format!("{address}/t/secret:1")).await;
    assert!(
        matches!(&gone, Err(ImageError::Unreachable { registry, .. }) if *registry == address),
        "{gone:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn damaged_blobs_are_refused_by_name_and_the_pull_recovers() {
    if !Registry::is_installed() {
        return;
    }
    let (registry, node) = (Registry::start().unwrap(), Node::new());
    let noise: Vec<u8> = (0..400_000_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    let layer = Layer::builder().file("noise", 0o644, &noise).build();
    let (digest, length) = (layer.digest(), layer.bytes.len() as u64);
    let half = layer.bytes.len() / 2;
    registry.push_image("t/damage", "1", vec![layer.clone()], json!({})).await.unwrap();
    let (reference, blob) = (registry.reference("t/damage", "1"), registry.blob_path(&digest));

    let mut damaged = layer.bytes.clone();
    damaged[1000] ^= 0x10;
    fs::write(&blob, &damaged).unwrap();
    let (what, wrong) = content(node.pull(&reference).await);
    assert_eq!(what, format!("layer 1 ({digest})"));
    assert_eq!(wrong, ContentError::Digest { expected: digest.clone(), actual: digest_of(&damaged) });
    assert!(!node.blob(&digest, ".partial").exists() && !node.blob(&digest, "").exists());

    fs::write(&blob, &layer.bytes[..half]).unwrap();
    let (_, wrong) = content(node.pull(&reference).await);
    assert_eq!(wrong, ContentError::Truncated { expected: length, actual: half as u64 });
    assert_eq!(node.blob(&digest, ".partial").metadata().unwrap().len(), half as u64);
    node.assert_no_leftovers();

    fs::write(&blob, &layer.bytes).unwrap();
    let image = node.pull(&reference).await.unwrap();
    with_mount(&node, &image, |root| assert!(fs::read(root.join("noise")).unwrap() == noise));
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_images_are_refused_with_what_and_where() {
    if !Registry::is_installed() {
        return;
    }
    let (registry, node) = (Registry::start().unwrap(), Node::new());
    let good = one_file("good").remove(0);
    let reference = |tag: &str| registry.reference("t/bad", tag);

    registry.push_with_config("t/bad", "config", std::slice::from_ref(&good), b"<html>").await.unwrap();
    let (what, wrong) = content(node.pull(&reference("config")).await);
    assert!(what.starts_with("config (sha256:") && matches!(wrong, ContentError::Json(_)), "{what}: {wrong}");

    let config = json!({ "os": "linux", "architecture": "amd64", "rootfs": { "diff_ids": [] } });
    registry
        .push_with_config("t/bad", "count", std::slice::from_ref(&good), config.to_string().as_bytes())
        .await
        .unwrap();
    let (_, wrong) = content(node.pull(&reference("count")).await);
    assert_eq!(wrong, ContentError::LayerCount { layers: 1, diff_ids: 0 });

    let mut odd = good.clone();
    odd.media_type = "application/x-squashfs".to_owned();
    registry.push_image("t/bad", "type", vec![odd], json!({})).await.unwrap();
    let (_, wrong) = content(node.pull(&reference("type")).await);
    assert_eq!(wrong, ContentError::MediaType("application/x-squashfs".into()));

    let mut mislabelled = good.clone();
    mislabelled.diff_id = digest_of(b"something else");
    registry.push_image("t/bad", "diff", vec![mislabelled], json!({})).await.unwrap();
    let (_, wrong) = content(node.pull(&reference("diff")).await);
    assert!(matches!(wrong, ContentError::DiffId { .. }), "{wrong:?}");

    // Each has its own diff id. With the good layer's, it would count as stored as soon as the good one is.
    let mut cut = one_file("cut").remove(0);
    cut.bytes.truncate(cut.bytes.len() / 2);
    registry.push_image("t/bad", "gzip", vec![good.clone(), cut], json!({})).await.unwrap();
    let (what, wrong) = content(node.pull(&reference("gzip")).await);
    assert!(what.starts_with("layer 2 ") && matches!(wrong, ContentError::Decompress(_)), "{what}: {wrong}");
    let mut neither = one_file("neither").remove(0);
    neither.bytes = b"this is not gzip at all".to_vec();
    registry.push_image("t/bad", "neither", vec![neither], json!({})).await.unwrap();
    let (_, wrong) = content(node.pull(&reference("neither")).await);
    assert!(matches!(wrong, ContentError::Archive { .. }), "{wrong:?}");
    node.assert_no_leftovers();
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_archives_are_refused_with_the_entry() {
    if !Registry::is_installed() {
        return;
    }
    let (registry, node) = (Registry::start().unwrap(), Node::new());
    let cut = Layer::builder().file("a/cut", 0o644, vec![1; 5000]).into_tar();
    let sparse = Layer::builder().record("GNU.sparse.major", b"1").file("holes", 0o644, "x").build();
    let link = Layer::builder().hard_link("alias", 0o644, "nowhere").build();
    for (tag, layer, expected) in [
        (
            "cut",
            Layer::from_tar(&cut[..2000], Compression::Gzip),
            "the archive is broken in entry \"a/cut\": it ends 3512 bytes before the entry does",
        ),
        (
            "noise",
            Layer::from_tar(&[b'x'; 2048], Compression::Zstd),
            "the archive is broken at byte 512: the bytes before it are no tar header",
        ),
        ("sparse", sparse, "sparse files of version 1.none are not known"),
        ("link", link, "entry \"alias\": hard link to the missing path \"nowhere\""),
    ] {
        registry.push_image("t/archive", tag, vec![layer], json!({})).await.unwrap();
        let error = node.pull(&registry.reference("t/archive", tag)).await.unwrap_err().to_string();
        assert!(error.starts_with("layer 1 (sha256:") && error.contains(expected), "{error}");
    }
    node.assert_no_leftovers();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_decompression_bomb_meets_the_bound() {
    if !Registry::is_installed() {
        return;
    }
    let node = Node::with_limits(Limits { unpacked_bytes: 1 << 20, ..limits() });
    let registry = Registry::start().unwrap();
    for (tag, compression) in [("gzip", Compression::Gzip), ("zstd", Compression::Zstd)] {
        let bomb = Layer::builder().compression(compression).file("zeros", 0o644, vec![0; 8 << 20]).build();
        assert!(bomb.bytes.len() < 100_000);
        registry.push_image("t/bomb", tag, vec![bomb], json!({})).await.unwrap();
        let (_, wrong) = content(node.pull(&registry.reference("t/bomb", tag)).await);
        assert!(
            matches!(wrong, ContentError::Limit { unit: "uncompressed bytes", limit: 1_048_576, .. }),
            "{wrong:?}"
        );
    }
    let holes =
        Layer::builder().record("GNU.sparse.map", b"0,1").record("GNU.sparse.size", b"9223372036854775807");
    registry
        .push_image("t/bomb", "holes", vec![holes.file("f", 0o644, "x").build()], json!({}))
        .await
        .unwrap();
    let (_, wrong) = content(node.pull(&registry.reference("t/bomb", "holes")).await);
    assert!(matches!(wrong, ContentError::Limit { unit: "uncompressed bytes", .. }), "{wrong:?}");
    node.assert_no_leftovers();
}
