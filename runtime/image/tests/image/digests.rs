//! Images whose parts are named by other digests than sha256: sha512 and sha384, as containerd takes them.

use runtime_image::{ContentError, Image};
use serde_json::{Value, json};
use sha2::{Digest, Sha384, Sha512};
use tests_registry::{Layer, digest_of};

use crate::archives::{Files, decompressed, holds_both_layers, import, index, layers};
use crate::node::{Node, content};
use crate::wire::{Request, Server, reply};

/// Hashes bytes into a digest.
type Hash = fn(&[u8]) -> String;

const HASHES: [Hash; 3] = [sha384, sha512, digest_of];

fn sha512(bytes: &[u8]) -> String {
    format!("sha512:{}", hex::encode(Sha512::digest(bytes)))
}

fn sha384(bytes: &[u8]) -> String {
    format!("sha384:{}", hex::encode(Sha384::digest(bytes)))
}

/// An image of two layers, all of whose parts have digests by one hash.
struct Parts {
    hash: Hash,
    layers: Vec<Layer>,
    config: Vec<u8>,
    manifest: Vec<u8>,
}

impl Parts {
    fn new(hash: Hash) -> Parts {
        let layers = layers();
        let diff_ids: Vec<String> = layers.iter().map(|layer| hash(&decompressed(layer))).collect();
        let config =
            json!({ "architecture": "amd64", "os": "linux", "config": { "Cmd": ["sh"] }, "rootfs": { "diff_ids": diff_ids } }).to_string();
        let descriptor = |media_type: &str, bytes: &[u8]| json!({ "mediaType": media_type, "digest": hash(bytes), "size": bytes.len() });
        let described: Vec<Value> =
            layers.iter().map(|layer| descriptor(&layer.media_type, &layer.bytes)).collect();
        let manifest = json!({
            "schemaVersion": 2,
            "config": descriptor("application/vnd.oci.image.config.v1+json", config.as_bytes()),
            "layers": described,
        });
        Parts { hash, layers, config: config.into_bytes(), manifest: manifest.to_string().into_bytes() }
    }

    fn blobs(&self) -> Vec<Vec<u8>> {
        self.layers.iter().map(|layer| layer.bytes.clone()).chain([self.config.clone()]).collect()
    }

    fn layout(&self) -> Files {
        let descriptor = json!({
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "digest": (self.hash)(&self.manifest), "size": self.manifest.len(),
            "annotations": { "org.opencontainers.image.ref.name": "r.example/a:1" },
        });
        let files = Files::default()
            .with("oci-layout", r#"{"imageLayoutVersion":"1.0.0"}"#)
            .with("index.json", index(&[descriptor]));
        let path = |bytes: &[u8]| format!("blobs/{}", (self.hash)(bytes).replace(':', "/"));
        let blobs = self.blobs().into_iter().chain([self.manifest.clone()]);
        blobs.fold(files, |files, blob| files.with(&path(&blob), blob))
    }

    /// A registry of this image. `spoil` changes the bytes of a layer.
    async fn serve(&self, spoil: bool) -> Server {
        let (hash, manifest, mut blobs) = (self.hash, self.manifest.clone(), self.blobs());
        let named: Vec<String> = blobs.iter().map(|blob| hash(blob)).collect();
        if spoil {
            *blobs[0].last_mut().unwrap() ^= 1;
        }
        Server::start(move |_| {
            move |request: &Request| {
                let last = request.path.rsplit('/').next().unwrap_or_default();
                if last == "1" || last == hash(&manifest) {
                    return reply(200, manifest.clone());
                }
                match named.iter().position(|digest| digest == last) {
                    Some(at) => reply(200, blobs[at].clone()),
                    None => reply(404, "{}"),
                }
            }
        })
        .await
    }
}

fn is_whole(node: &Node, parts: &Parts, image: &Image) {
    assert_eq!(image.id, (parts.hash)(&parts.config));
    holds_both_layers(node, image);
    let hex = image.id.split_once(':').unwrap().1;
    for name in [image.id.as_str(), hex, &hex[..12], &image.id[..20]] {
        assert_eq!(node.images.find(name).as_ref(), Some(image), "{name}");
    }
    assert_eq!(node.count("blobs/sha256"), 0, "blobs go once they are layers");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_of_any_digest_is_pulled_by_tag_and_by_digest() {
    for hash in HASHES {
        let (parts, node) = (Parts::new(hash), Node::new());
        let server = parts.serve(false).await;
        let by_digest = format!("{}/t@{}", server.address, hash(&parts.manifest));
        let image = node.pull(&by_digest).await.unwrap();
        assert_eq!(image.repo_digests, [by_digest]);
        is_whole(&node, &parts, &image);
        // A registry's answer for a tag has no digest of its own: sha256 names it, as everywhere.
        let image = node.pull(&format!("{}/t:1", server.address)).await.unwrap();
        assert!(image.repo_digests.contains(&format!("{}/t@{}", server.address, digest_of(&parts.manifest))));
        assert_eq!(node.images.list().len(), 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_of_any_digest_is_imported_and_there_after_a_restart() {
    for hash in HASHES {
        let (parts, node) = (Parts::new(hash), Node::new());
        let images = import(&node, &parts.layout().tar(), None).await.unwrap();
        is_whole(&node, &parts, &images[0]);
        let Node { images: open, directory } = node;
        drop(open);
        let open =
            runtime_image::Images::open(directory.path(), runtime_image::RegistryConfig::default()).unwrap();
        assert_eq!(open.list(), images);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_bytes_are_found_by_any_digest() {
    for hash in HASHES {
        let parts = Parts::new(hash);
        let server = parts.serve(true).await;
        let refused = Node::new().pull(&format!("{}/t:1", server.address)).await;
        let (what, wrong) = content(refused);
        assert!(what.starts_with("layer 1"), "{what}");
        let is_found = matches!(&wrong, ContentError::Digest { expected, actual }
            if *expected == hash(&parts.layers[0].bytes) && expected[..7] == actual[..7] && expected != actual);
        assert!(is_found, "{wrong:?}");
        // In an archive, the path names the digest.
        let mut spoiled = parts.layout();
        spoiled.0.iter_mut().rev().take(1).for_each(|(_, bytes)| bytes.push(b' '));
        let (what, _) =
            content(import(&Node::new(), &spoiled.tar(), None).await.map(|mut images| images.remove(0)));
        assert!(what.contains(&hash(&parts.manifest)), "{what}");
    }
}
