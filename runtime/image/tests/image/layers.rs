//! Layers shared by images, from a real registry. Prints a note and passes if none is installed.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;

use crate::node::{self, Node, with_mount};
use runtime_image::{ImageErrorKind, Images, RegistryConfig};
use serde_json::json;
use tests_registry::{Compression, Layer, Registry};

fn small(number: usize) -> Layer {
    Layer::builder().file("small", 0o644, format!("image {number}")).build()
}

fn base() -> Layer {
    Layer::builder().compression(Compression::Zstd).file("base", 0o644, vec![7; 300_000]).build()
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_images_of_one_base_fetch_and_convert_the_base_once() {
    if !Registry::is_installed() {
        return;
    }
    let (registry, node, base) = (Registry::start().unwrap(), Node::new(), base());
    for number in 0..10 {
        let layers = vec![base.clone(), small(number)];
        registry.push_image("t/ten", &number.to_string(), layers, json!({})).await.unwrap();
    }
    let mut images = vec![node.pull(&registry.reference("t/ten", "0")).await.unwrap()];
    // It cannot be fetched any more.
    fs::remove_file(registry.blob_path(&base.digest())).unwrap();
    let before = fs::metadata(node.data(&base)).unwrap();
    for number in 1..10 {
        images.push(node.pull(&registry.reference("t/ten", &number.to_string())).await.unwrap());
    }
    let after = fs::metadata(node.data(&base)).unwrap();
    assert_eq!((after.ino(), after.mtime_nsec()), (before.ino(), before.mtime_nsec()));
    assert_eq!([node.count("images"), node.count("layers"), node.count("blobs/sha256")], [10, 2 * 11, 0]);
    with_mount(&node, &images[7], |root| {
        assert_eq!(fs::read(root.join("base")).unwrap(), vec![7; 300_000]);
        assert_eq!(fs::read(root.join("small")).unwrap(), b"image 7");
    });
    // The base goes with its last image.
    for image in &images {
        assert!(node.data(&base).exists());
        node.images.remove(&image.id).unwrap();
    }
    assert_eq!([node.count("images"), node.count("layers")], [0, 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_layer_whose_tree_is_damaged_is_fetched_again_and_its_contents_stay() {
    if !Registry::is_installed() {
        return;
    }
    let (registry, node, base) = (Registry::start().unwrap(), Node::new(), base());
    for number in 0..3 {
        let layers = vec![base.clone(), small(number)];
        registry.push_image("t/tree", &number.to_string(), layers, json!({})).await.unwrap();
    }
    node.pull(&registry.reference("t/tree", "0")).await.unwrap();
    let (data, tree) = (node.data(&base), node.data(&base).with_extension("tree"));
    let (whole, inode) = (fs::read(&tree).unwrap(), fs::metadata(&data).unwrap().ino());
    let mut damaged = whole.clone();
    damaged[20] ^= 1;
    fs::write(&tree, &damaged).unwrap();
    node.pull(&registry.reference("t/tree", "1")).await.unwrap();
    assert!(fs::read(&tree).unwrap() == whole);
    assert_eq!(fs::metadata(&data).unwrap().ino(), inode);

    fs::write(&tree, &damaged[..30]).unwrap();
    fs::remove_file(registry.blob_path(&base.digest())).unwrap();
    let error = node.pull(&registry.reference("t/tree", "2")).await.unwrap_err();
    assert!(error.to_string().contains(&base.digest()), "{error}");
    assert!(node.images.find(&registry.reference("t/tree", "0")).is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_layer_whose_contents_are_damaged_is_named_until_no_image_has_it() {
    if !Registry::is_installed() {
        return;
    }
    let (registry, node, base) = (Registry::start().unwrap(), Node::new(), base());
    for number in 0..2 {
        let layers = vec![base.clone(), small(number)];
        registry.push_image("t/data", &number.to_string(), layers, json!({})).await.unwrap();
    }
    let references = [0, 1].map(|number| registry.reference("t/data", &number.to_string()));
    let damages: [fn(&Path); 2] = [
        |data| fs::remove_file(data).unwrap(),
        |data| {
            // A sealed file cannot be changed, but replaced.
            fs::remove_file(data).unwrap();
            fs::write(data, "short").unwrap();
        },
    ];
    for damage in damages {
        node.pull(&references[0]).await.unwrap();
        damage(&node.data(&base));
        // Also the image that is here.
        for reference in &references {
            let error = node.pull(reference).await.unwrap_err();
            assert_eq!(error.kind(), ImageErrorKind::Node, "{error}");
            assert!(error.to_string().contains(node.data(&base).to_str().unwrap()), "{error}");
        }
        node.images.remove(&references[0]).unwrap();
        node.pull(&references[1]).await.unwrap();
        node.images.remove(&references[1]).unwrap();
        assert_eq!([node.count("images"), node.count("layers")], [0, 0]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_layer_that_an_image_has_twice_is_there_once() {
    if !Registry::is_installed() {
        return;
    }
    let (registry, node, base) = (Registry::start().unwrap(), Node::new(), base());
    let hidden = Layer::builder().whiteout("base").build();
    let layers = vec![base.clone(), hidden.clone(), base.clone(), hidden, base];
    registry.push_image("t/twice", "1", layers, json!({})).await.unwrap();
    let image = node.pull(&registry.reference("t/twice", "1")).await.unwrap();
    // The metadata and one layer with contents.
    assert_eq!(image.range_bytes, 4 << 20);
    with_mount(&node, &image, |root| {
        assert_eq!(fs::read(root.join("base")).unwrap(), vec![7; 300_000]);
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_of_seventy_layers_is_one_file_system() {
    if !Registry::is_installed() {
        return;
    }
    let (registry, node) = (Registry::start().unwrap(), Node::new());
    let layer = |number: usize| {
        let builder = Layer::builder().file(&format!("d/{number}"), 0o644, format!("{number}"));
        // Each layer changes the one before.
        builder.file("last", 0o644, format!("{number}")).build()
    };
    registry.push_image("t/seventy", "1", (0..70).map(layer).collect(), json!({})).await.unwrap();
    let image = node.pull(&registry.reference("t/seventy", "1")).await.unwrap();
    assert_eq!(image.range_bytes, 71 * (2 << 20));
    with_mount(&node, &image, |root| {
        for number in 0..70 {
            assert_eq!(fs::read_to_string(root.join(format!("d/{number}"))).unwrap(), number.to_string());
        }
        assert_eq!(fs::read_to_string(root.join("last")).unwrap(), "69");
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn every_byte_on_the_disk_is_counted_as_du_counts_it() {
    if !Registry::is_installed() {
        return;
    }
    let (registry, node) = (Registry::start().unwrap(), Node::new());
    for number in 0..2 {
        let layers = vec![base(), small(number)];
        registry.push_image("t/usage", &number.to_string(), layers, json!({})).await.unwrap();
        node.pull(&registry.reference("t/usage", &number.to_string())).await.unwrap();
    }
    let du = Command::new("du").args(["-s", "-B1"]).arg(node.directory.path()).output().unwrap();
    let text = String::from_utf8(du.stdout).unwrap();
    let bytes: u64 = text.split_whitespace().next().unwrap().parse().unwrap();
    let counted = node.images.usage().bytes;
    assert!(counted.abs_diff(bytes) * 100 <= bytes, "{counted} and {bytes}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_in_use_stays_when_it_is_removed_and_over_a_restart() {
    if !Registry::is_installed() {
        return;
    }
    let (registry, node) = (Registry::start().unwrap(), Node::new());
    registry.push_image("t/used", "1", vec![base(), small(1)], json!({})).await.unwrap();
    let reference = registry.reference("t/used", "1");
    let image = node.pull(&reference).await.unwrap();
    let opened = node.images.open_image(&image.id).unwrap();
    let before = node.images.usage().bytes;
    node.images.remove(&reference).unwrap();
    assert!(node.images.list().is_empty() && node.images.find(&image.id).is_none());
    assert!(node.images.usage().bytes * 100 >= before * 99);
    // As if the daemon is killed and starts again.
    std::mem::forget(opened.lease);
    let images = Images::open(
        node.directory.path(),
        RegistryConfig { limits: node::limits(), ..RegistryConfig::default() },
    );
    let images = images.unwrap();
    let lease = images.lease_again(&image.id).unwrap();
    images.users_are_known().unwrap();
    assert_eq!((node.count("images"), node.count("layers")), (1, 4));
    // Pulling again finds the existing image: its layers are not fetched.
    fs::remove_file(registry.blob_path(&base().digest())).unwrap();
    let again = images.pull(&reference, None).await.unwrap();
    assert_eq!(again, image);
    images.remove(&reference).unwrap();
    drop(lease);
    while node.count("images") + node.count("layers") > 0 {
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
}
