//! Archives of images, imported: OCI layouts, and those of `docker save`. Needs nothing installed.

use std::io;

use crate::archives::{
    config, descriptor, holds_both_layers, import, index, layers, layout, manifest, saved,
};
use crate::node::Node;
use bytes::Bytes;
use runtime_image::{LayerState, PullState};
use serde_json::json;
use tests_registry::{Compression, Layer, digest_of};
use tokio::sync::mpsc;

#[tokio::test(flavor = "multi_thread")]
async fn a_layout_becomes_the_image_that_a_pull_would_have_made() {
    let node = Node::new();
    let layers = layers();
    let images = import(&node, &layout(&layers, Some("r.example/a:1")).tar(), None).await.unwrap();
    assert_eq!(images.len(), 1);
    assert_eq!(images[0].id, digest_of(&config(&layers)));
    assert_eq!(images[0].repo_tags, ["r.example/a:1"]);
    assert_eq!(images[0].repo_digests, [format!("r.example/a@{}", digest_of(&manifest(&layers)))]);
    holds_both_layers(&node, &images[0]);
    assert_eq!(node.images.find("r.example/a:1").unwrap(), images[0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_compressed_archive_is_known_by_its_first_bytes() {
    for compression in [Compression::Gzip, Compression::Zstd] {
        let node = Node::new();
        let archive = Layer::from_tar(&layout(&layers(), None).tar(), compression);
        let images = import(&node, &archive.bytes, Some("b:2")).await.unwrap();
        assert_eq!(images[0].repo_tags, ["docker.io/library/b:2"]);
        holds_both_layers(&node, &images[0]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_docker_save_writes_is_imported_with_its_names_and_its_links() {
    let node = Node::new();
    let layers = layers();
    let archive = saved(&layers, Some(&["busybox:1", "r.example/b:2"]));
    let images = import(&node, &archive.bytes, None).await.unwrap();
    assert_eq!(images[0].id, digest_of(&config(&layers)), "the id is docker's");
    assert_eq!(images[0].repo_tags, ["docker.io/library/busybox:1", "r.example/b:2"]);
    assert!(images[0].repo_digests.is_empty(), "no registry has its manifest");
    holds_both_layers(&node, &images[0]);
    // Saved by its id, and named during the import.
    let nameless = saved(&layers, None);
    let images = import(&node, &nameless.bytes, Some("c:3")).await.unwrap();
    assert!(images[0].repo_tags.contains(&"docker.io/library/c:3".to_owned()), "{images:?}");
    assert_eq!(node.images.list().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn images_without_a_name_are_there_by_their_id() {
    let node = Node::new();
    let images = import(&node, &layout(&layers(), Some("latest")).tar(), None).await.unwrap();
    assert!(images[0].repo_tags.is_empty() && images[0].repo_digests.is_empty());
    assert_eq!(node.images.find(&images[0].id).unwrap(), images[0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_archive_of_several_images_has_all_of_them_and_takes_no_name() {
    let (one, two) = (layers(), vec![layers().remove(0)]);
    let descriptors = [
        descriptor(&manifest(&one), Some("r.example/one:1")),
        descriptor(&manifest(&two), Some("r.example/two:1")),
    ];
    let files = layout(&one, None).without("index.json").with("index.json", index(&descriptors));
    let archive = files.blob(config(&two)).blob(manifest(&two)).tar();
    let node = Node::new();
    let error = import(&node, &archive, Some("x")).await.unwrap_err().to_string();
    assert_eq!(error, "one name is no name for 2 images: r.example/one:1, r.example/two:1");
    node.assert_no_leftovers();
    let images = import(&node, &archive, None).await.unwrap();
    let names: Vec<_> = images.iter().flat_map(|image| &image.repo_tags).collect();
    assert_eq!(names, ["r.example/one:1", "r.example/two:1"], "a layer of both is unpacked once");
}

#[tokio::test(flavor = "multi_thread")]
async fn of_variants_for_several_platforms_ours_is_taken_where_the_others_are_left_out() {
    let layers = layers();
    let mut ours = descriptor(&manifest(&layers), Some("r.example/a:1"));
    ours["platform"] = json!({ "os": "linux", "architecture": "amd64" });
    let mut other = descriptor(b"not in the archive", Some("r.example/a:1"));
    other["platform"] = json!({ "os": "linux", "architecture": "arm64" });
    let mut unnamed = descriptor(b"neither", Some("r.example/a:1"));
    unnamed["size"] = json!(1);
    // As one index at the root, and as an index below it.
    let below = json!({
        "schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": [other, ours, unnamed],
    });
    let below = below.to_string().into_bytes();
    let flat = layout(&layers, None).without("index.json").with("index.json", index(&[other, unnamed, ours]));
    let nested = layout(&layers, None).without("index.json").blob(below.clone());
    let nested = nested.with("index.json", index(&[descriptor(&below, Some("r.example/a:1"))]));
    for (files, digests) in [(flat, 0), (nested, 1)] {
        let node = Node::new();
        let images = import(&node, &files.tar(), None).await.unwrap();
        assert_eq!((images[0].repo_tags.len(), images[0].repo_digests.len()), (1, digests));
        holds_both_layers(&node, &images[0]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_import_says_how_far_it_is_and_what_was_there() {
    let node = Node::new();
    let archive = layout(&layers(), Some("a:1")).tar();
    for expected in [LayerState::Done, LayerState::Exists] {
        let (sender, input) = mpsc::channel(1);
        let mut running = node.images.begin_import(input, None).unwrap();
        sender.send(Ok(Bytes::copy_from_slice(&archive))).await.unwrap();
        loop {
            // One view a turn: a second one could swallow the change to wait for.
            let view = running.view();
            if view.received_bytes == archive.len() as u64 {
                break;
            }
            assert!(matches!(view.state, PullState::Waiting | PullState::Receiving));
            running.changed().await;
        }
        drop(sender);
        running.ended().await.unwrap();
        let view = running.view();
        assert_eq!(view.name, "docker.io/library/a:1");
        assert!(view.layers.iter().all(|layer| layer.state == expected), "{view:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn imports_beyond_the_places_wait_and_say_so() {
    let node = Node::new();
    let begin = || {
        let (sender, input) = mpsc::channel::<io::Result<Bytes>>(1);
        (sender, node.images.begin_import(input, None).unwrap())
    };
    let (first, mut one) = begin();
    let (second, mut two) = begin();
    for running in [&mut one, &mut two] {
        while running.view().state != PullState::Receiving {
            running.changed().await;
        }
    }
    let (third, mut three) = begin();
    assert_eq!(three.view().state, PullState::Waiting);
    drop((first, second));
    for running in [&mut one, &mut two] {
        running.ended().await.unwrap_err();
    }
    while three.view().state != PullState::Receiving {
        three.changed().await;
    }
    drop(third);
    three.ended().await.unwrap_err();
    node.assert_no_leftovers();
}
