//! Archives of images, made here, and the way to import them.

use std::io;

use bytes::Bytes;
use runtime_image::{Image, ImageError};
use serde_json::{Value, json};
use tests_registry::{Compression, Layer, digest_of};
use tokio::sync::mpsc;

use crate::node::Node;

/// Bytes of a piece of an archive.
pub(crate) const PIECE_BYTES: usize = 10_000;

/// Files of an archive, in order.
#[derive(Default, Clone)]
pub(crate) struct Files(pub(crate) Vec<(String, Vec<u8>)>);

impl Files {
    pub(crate) fn with(mut self, path: &str, content: impl Into<Vec<u8>>) -> Files {
        self.0.push((path.to_owned(), content.into()));
        self
    }

    /// With a blob under the name of its digest.
    pub(crate) fn blob(self, content: impl Into<Vec<u8>>) -> Files {
        let content = content.into();
        self.with(&format!("blobs/sha256/{}", &digest_of(&content)[7..]), content)
    }

    pub(crate) fn without(mut self, path: &str) -> Files {
        self.0.retain(|(known, _)| known != path);
        self
    }

    pub(crate) fn tar(&self) -> Vec<u8> {
        let files =
            self.0.iter().fold(Layer::builder(), |tar, (path, content)| tar.file(path, 0o644, content));
        files.into_tar()
    }
}

pub(crate) fn config(layers: &[Layer]) -> Vec<u8> {
    let diff_ids: Vec<&str> = layers.iter().map(|layer| layer.diff_id.as_str()).collect();
    let document = json!({
        "architecture": "amd64", "os": "linux", "config": { "Cmd": ["sh"] }, "rootfs": { "diff_ids": diff_ids },
    });
    document.to_string().into_bytes()
}

pub(crate) fn manifest(layers: &[Layer]) -> Vec<u8> {
    let of = |layer: &Layer| json!({ "mediaType": layer.media_type, "digest": layer.digest(), "size": layer.bytes.len() });
    let config = config(layers);
    let document = json!({
        "schemaVersion": 2,
        "config": { "mediaType": "application/vnd.oci.image.config.v1+json", "digest": digest_of(&config), "size": config.len() },
        "layers": layers.iter().map(of).collect::<Vec<_>>(),
    });
    document.to_string().into_bytes()
}

pub(crate) fn descriptor(document: &[u8], name: Option<&str>) -> Value {
    let mut descriptor = json!({
        "mediaType": "application/vnd.oci.image.manifest.v1+json", "digest": digest_of(document), "size": document.len(),
    });
    if let Some(name) = name {
        descriptor["annotations"] = json!({ "org.opencontainers.image.ref.name": name });
    }
    descriptor
}

pub(crate) fn index(descriptors: &[Value]) -> String {
    json!({ "schemaVersion": 2, "manifests": descriptors }).to_string()
}

pub(crate) fn layers() -> Vec<Layer> {
    vec![
        Layer::builder().file("lower", 0o644, vec![7; 50_000]).build(),
        Layer::builder().compression(Compression::Zstd).file("upper", 0o644, "upper").build(),
    ]
}

/// A layout with one image of these layers.
pub(crate) fn layout(layers: &[Layer], name: Option<&str>) -> Files {
    let files = Files::default().with("oci-layout", r#"{"imageLayoutVersion":"1.0.0"}"#);
    let files = files.with("index.json", index(&[descriptor(&manifest(layers), name)]));
    let files = files.blob(config(layers)).blob(manifest(layers));
    layers.iter().fold(files, |files, layer| files.blob(layer.bytes.clone()))
}

/// A `docker save` archive, with a link in place of a repeated layer.
pub(crate) fn saved(layers: &[Layer], tags: Option<&[&str]>) -> Layer {
    let hex = |at: usize| format!("{at:064x}");
    let mut tar = Layer::builder();
    for (at, layer) in layers.iter().enumerate() {
        let path = format!("{}/layer.tar", hex(at));
        let plain = decompressed(layer);
        tar = tar.dir(&hex(at), 0o755).file(&path, 0o644, plain);
        tar = tar.symlink(&format!("{}/linked.tar", hex(at)), &format!("../{path}"));
    }
    let paths: Vec<String> = (0..layers.len()).map(|at| format!("{}/linked.tar", hex(at))).collect();
    let list = json!([{ "Config": "config.json", "RepoTags": tags, "Layers": paths }]).to_string();
    let tar = tar.file("config.json", 0o644, config(layers)).file("manifest.json", 0o644, list);
    Layer::from_tar(&tar.into_tar(), Compression::None)
}

pub(crate) fn decompressed(layer: &Layer) -> Vec<u8> {
    let mut plain = Vec::new();
    match layer.media_type.rsplit('+').next() {
        Some("gzip") => io::copy(&mut flate2::read::GzDecoder::new(&layer.bytes[..]), &mut plain).unwrap(),
        Some("zstd") => io::copy(&mut zstd::Decoder::new(&layer.bytes[..]).unwrap(), &mut plain).unwrap(),
        _ => io::copy(&mut &layer.bytes[..], &mut plain).unwrap(),
    };
    assert_eq!(digest_of(&plain), layer.diff_id);
    plain
}

/// Imports an archive arriving in pieces.
pub(crate) async fn import(
    node: &Node,
    archive: &[u8],
    name: Option<&str>,
) -> Result<Vec<Image>, ImageError> {
    let (sender, input) = mpsc::channel(2);
    let mut running = node.images.begin_import(input, name)?;
    let pieces: Vec<_> = archive.chunks(PIECE_BYTES).map(Bytes::copy_from_slice).collect();
    tokio::spawn(async move {
        for piece in pieces {
            if sender.send(Ok(piece)).await.is_err() {
                return;
            }
        }
    });
    running.ended().await
}

pub(crate) async fn refused(archive: &[u8]) -> ImageError {
    let node = Node::new();
    let error = import(&node, archive, None).await.unwrap_err();
    node.assert_no_leftovers();
    error
}

pub(crate) async fn refusal(archive: &[u8]) -> String {
    refused(archive).await.to_string()
}

pub(crate) fn holds_both_layers(node: &Node, image: &Image) {
    assert_eq!(image.config.run.cmd, ["sh"]);
    let parts = node.images.open_image(&image.id).unwrap().parts;
    assert!(parts.iter().all(|part| part.length % (2 << 20) == 0));
    assert!(image.size_bytes > 50_000);
    assert_eq!(node.count("tmp"), 0, "the archive's files are gone");
    assert_eq!(node.count("blobs/sha256"), 0);
}
