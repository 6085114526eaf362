//! Hostile, broken or truncated archives, and clients that disconnect: each gives a clear error and leaves
//! nothing behind. Needs nothing installed.

use std::io::{self, Write};

use crate::archives::{Files, config, descriptor, import, index, layers, layout, manifest, refusal, refused};
use crate::node::{self, Node};
use bytes::Bytes;
use runtime_image::{ContentError, ImageError, ImageErrorKind, Limits, RegistryConfig};
use serde_json::{Value, json};
use tests_registry::{Compression, Layer, digest_of};
use tokio::sync::mpsc;

#[tokio::test(flavor = "multi_thread")]
async fn paths_that_lead_out_are_refused() {
    for name in ["../escaped", "blobs/../../escaped"] {
        // An archiver refuses to write such a name, so it is put into a header of another one.
        let tar = layout(&layers(), None).with("x", "y").tar();
        let archive = renamed(tar, "x", name);
        let error = refusal(&archive).await;
        assert_eq!(
            error,
            format!(
                "the archive: the archive is broken in entry \"{name}\": its path leads out of the archive"
            )
        );
    }
    let linked = Layer::builder().symlink("layer.tar", "../../etc/shadow").into_tar();
    assert!(refusal(&linked).await.contains("its path leads out of the archive"));
    let linked = Layer::builder().symlink("layer.tar", "/etc/shadow").into_tar();
    assert!(refusal(&linked).await.contains("its path leads out of the archive"));
}

/// The archive with another name in the header of the file `name`.
fn renamed(mut tar: Vec<u8>, name: &str, other: &str) -> Vec<u8> {
    let is_its = |block: &[u8]| {
        block.starts_with(name.as_bytes()) && block[name.len()] == 0 && &block[257..262] == b"ustar"
    };
    let at = tar.chunks(512).position(is_its).unwrap() * 512;
    let mut header = tar::Header::new_gnu();
    header.as_mut_bytes().copy_from_slice(&tar[at..at + 512]);
    header.as_mut_bytes()[..100].fill(0);
    header.as_mut_bytes()[..other.len()].copy_from_slice(other.as_bytes());
    header.set_cksum();
    tar[at..at + 512].copy_from_slice(header.as_bytes());
    tar
}

#[tokio::test(flavor = "multi_thread")]
async fn links_that_lead_in_circles_and_nowhere_are_refused() {
    let list = json!([{ "Config": "config.json", "RepoTags": null, "Layers": ["a"] }]).to_string();
    let circle = Layer::builder().symlink("a", "b").symlink("b", "a");
    for tar in [circle, Layer::builder().symlink("a", "nowhere")] {
        let tar = tar.file("config.json", 0o644, "{}").file("manifest.json", 0o644, &list).into_tar();
        assert_eq!(refusal(&tar).await, "the archive has no file \"a\"");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sizes_that_lie_are_refused() {
    // Of a layer, in the manifest.
    let layers = layers();
    for (size, expected) in [(1_u64, "it is longer than the 1 bytes"), (1 << 20, "it ends after")] {
        let mut document: Value = serde_json::from_slice(&manifest(&layers)).unwrap();
        document["layers"][0]["size"] = json!(size);
        let document = document.to_string().into_bytes();
        let files = layout(&layers, None).without("index.json").blob(document.clone());
        let archive = files.with("index.json", index(&[descriptor(&document, None)])).tar();
        let error = refusal(&archive).await;
        assert!(error.starts_with("layer 1") && error.contains(expected), "{error}");
    }
    // Of the manifest, in the index.
    let mut wrong = descriptor(&manifest(&layers), None);
    wrong["size"] = json!(1);
    let archive = layout(&layers, None).without("index.json").with("index.json", index(&[wrong])).tar();
    assert!(refusal(&archive).await.contains("it is longer than the 1 bytes"));
    // Of a file, in the archive: more than there is, more than a layer may have, more than there is room for.
    let tar = layout(&layers, None).tar();
    assert!(refusal(&tar[..tar.len() / 2]).await.contains("the archive is broken"), "cut short");
    let mut header = tar::Header::new_gnu();
    header.set_path("huge").unwrap();
    header.set_size(1 << 60);
    header.set_cksum();
    let error = refusal(header.as_bytes()).await;
    assert!(
        error.contains("the archive's file \"huge\"") && error.contains("more than the limit"),
        "{error}"
    );
    let limits = Limits { layer_bytes: u64::MAX, ..node::limits() };
    let node = Node::with_config(RegistryConfig { limits, ..RegistryConfig::default() });
    let error = import(&node, header.as_bytes(), None).await.unwrap_err();
    assert_eq!(error.kind(), ImageErrorKind::Full, "{error}");
    node.assert_no_leftovers();
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_digests_are_refused() {
    let layers = layers();
    let path = format!("blobs/sha256/{}", &layers[0].digest()[7..]);
    let archive = layout(&layers, None).without(&path).with(&path, "something else").tar();
    let error = refused(&archive).await;
    let ImageError::Content { what, error: ContentError::Digest { expected, .. } } = &error else {
        panic!("{error}")
    };
    assert_eq!((what, expected), (&format!("the archive's blob {expected}"), &layers[0].digest()));
    // A layer with other contents than in the config.
    let mut wrong = layers.clone();
    wrong[0].diff_id = digest_of(b"other");
    let files = layout(&layers, None).blob(config(&wrong)).blob(manifest(&wrong)).without("index.json");
    let archive = files.with("index.json", index(&[descriptor(&manifest(&wrong), None)])).tar();
    assert!(refusal(&archive).await.contains("not the diff id"));
}

#[tokio::test(flavor = "multi_thread")]
async fn one_wrong_layer_ends_the_work_on_the_others() {
    // The second layer is being unpacked when the first one's end is reached.
    let zeros = |mib: usize| {
        Layer::builder().compression(Compression::Zstd).file("f", 0o644, vec![0; mib << 20]).build()
    };
    let mut layers = [zeros(16), zeros(256)];
    layers[0].diff_id = digest_of(b"other");
    assert!(refusal(&layout(&layers, None).tar()).await.contains("not the diff id"));
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_parts_are_named() {
    let layers = layers();
    let whole = layout(&layers, None);
    let path = |digest: &str| format!("blobs/sha256/{}", &digest[7..]);
    let (config, manifest) = (digest_of(&config(&layers)), digest_of(&manifest(&layers)));
    for (digest, expected) in [
        (layers[1].digest(), format!("the archive has no layer 2 ({})", layers[1].digest())),
        (config.clone(), format!("the archive has no config ({config})")),
        (manifest.clone(), format!("the archive has no manifest {manifest}")),
    ] {
        assert_eq!(refusal(&whole.clone().without(&path(&digest)).tar()).await, expected);
    }
    let list = json!([{ "Config": "config.json", "RepoTags": null, "Layers": ["x/layer.tar"] }]).to_string();
    let saved = Files::default().with("manifest.json", list).with("config.json", "{}");
    assert_eq!(refusal(&saved.tar()).await, "the archive has no file \"x/layer.tar\"");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_archive_of_images_is_refused() {
    for nothing in [&b""[..], &Files::default().with("README", "text").tar()] {
        assert!(refusal(nothing).await.starts_with("the archive is neither an OCI image layout"));
    }
    assert!(refusal(&[b'x'; 4096]).await.contains("the archive is broken"));
    let error = refusal(&[0x1f, 0x8b, 8, 0, 9, 9, 9, 9, 9, 9, 9]).await;
    assert!(error.contains("deflate"), "{error}");
    let empty = Files::default().with("index.json", index(&[]));
    assert_eq!(refusal(&empty.tar()).await, "the archive has no image");
    for (file, text) in [("index.json", "<html>"), ("manifest.json", "7"), ("index.json", "{}")] {
        let error = refusal(&Files::default().with(file, text).tar()).await;
        assert!(error.starts_with(&format!("{file}: it cannot be parsed")), "{error}");
    }
    let later =
        layout(&layers(), None).without("oci-layout").with("oci-layout", r#"{"imageLayoutVersion":"2.0.0"}"#);
    assert!(refusal(&later.tar()).await.contains("\"2.0.0\" is not known"));
    let device = Layer::builder().char_device("null", 0o666, 1, 3).into_tar();
    assert!(refusal(&device).await.contains("neither devices nor pipes"));
    let name = import(&Node::new(), b"", Some("Not A Name")).await.unwrap_err();
    assert_eq!(name.kind(), ImageErrorKind::Name);
    let digest = import(&Node::new(), b"", Some(&format!("a@{}", digest_of(b"")))).await.unwrap_err();
    assert_eq!(digest.kind(), ImageErrorKind::Name);
}

/// Sends pieces until they are no longer accepted, and returns the number of accepted ones.
async fn flood(node: &Node, first: Vec<u8>, piece: Vec<u8>) -> (usize, ImageError) {
    let (sender, input) = mpsc::channel(1);
    let mut running = node.images.begin_import(input, None).unwrap();
    let (mut taken, piece) = (0, Bytes::from(piece));
    let mut next = Bytes::from(first);
    while sender.send(Ok(next)).await.is_ok() {
        taken += 1;
        next = piece.clone();
    }
    (taken, running.ended().await.unwrap_err())
}

#[tokio::test(flavor = "multi_thread")]
async fn input_without_an_end_ends() {
    let node = Node::new();
    // Behind the archive.
    let (taken, error) = flood(&node, layout(&layers(), None).tar(), vec![0; 64 << 10]).await;
    assert!(taken < 100 && error.to_string().contains("bytes behind its end"), "{taken}: {error}");
    // Entries without number.
    let mut header = tar::Header::new_gnu();
    header.set_path("empty").unwrap();
    header.set_size(0);
    header.set_cksum();
    let (_, error) = flood(&node, Vec::new(), header.as_bytes().repeat(128)).await;
    assert!(error.to_string().contains("archive entries"), "{error}");
    // A name without end.
    let tar = Layer::builder().file(&"a/".repeat(400), 0o644, "x").into_tar();
    assert!(refusal(&tar).await.contains("bytes of a path"));
    node.assert_no_leftovers();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bomb_ends_at_the_limit_of_one_file() {
    let limits = Limits { layer_bytes: 1 << 20, ..node::limits() };
    let node = Node::with_config(RegistryConfig { limits, ..RegistryConfig::default() });
    let tar = Files::default().with("bomb", vec![0; 2 << 20]).tar();
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    gzip.write_all(&tar).unwrap();
    let error = import(&node, &gzip.finish().unwrap(), None).await.unwrap_err().to_string();
    assert_eq!(error, "the archive's file \"bomb\": 2097152 bytes are more than the limit of 1048576");
    node.assert_no_leftovers();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_breaks_off_leaves_nothing() {
    let node = Node::new();
    let archive = layout(&layers(), None).tar();
    let (sender, input) = mpsc::channel(1);
    let mut running = node.images.begin_import(input, None).unwrap();
    // All of it, but not its end.
    sender.send(Ok(archive.clone().into())).await.unwrap();
    sender.send(Err(io::Error::other("the client went away"))).await.unwrap();
    let error = running.ended().await.unwrap_err();
    assert_eq!(
        error.to_string(),
        format!("the transfer of the archive broke off after {} bytes", archive.len())
    );
    assert_eq!(error.kind(), ImageErrorKind::Unavailable);
    node.assert_no_leftovers();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_archive_that_a_killed_daemon_was_taking_is_gone_at_the_next_start() {
    let node = Node::new();
    let (sender, input) = mpsc::channel(1);
    let mut running = node.images.begin_import(input, None).unwrap();
    let archive = layout(&layers(), None).tar();
    sender.send(Ok(archive[..archive.len() / 2].to_vec().into())).await.unwrap();
    while node.count("tmp") == 0 {
        running.changed().await;
    }
    // As a kill leaves the directory: nothing of the first daemon runs its end.
    let copy = tempfile::tempdir().unwrap();
    let status =
        std::process::Command::new("cp").arg("-a").arg(node.directory.path()).arg(copy.path()).status();
    assert!(status.unwrap().success());
    let left = copy.path().join(node.directory.path().file_name().unwrap());
    assert_eq!(std::fs::read_dir(left.join("tmp")).unwrap().count(), 1);
    let next = runtime_image::Images::open(&left, RegistryConfig::default()).unwrap();
    assert_eq!(std::fs::read_dir(left.join("tmp")).unwrap().count(), 0);
    assert!(next.list().is_empty());
    drop(sender);
    running.ended().await.unwrap_err();
}
