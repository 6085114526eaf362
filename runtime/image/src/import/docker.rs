//! The images of an archive of `docker save` (moby `image/spec/v1.2.md`, "Combined Image JSON + Filesystem Changeset Format"): a
//! list of images, each with the paths of its config and of its layers. Such an image has no manifest, and gets one here.

use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::found::Found;
use crate::error::{ContentError, ImageError};
use crate::name::Name;
use crate::spool::Spool;

/// Media types of the manifest that is made here. A layer's first bytes say how it is compressed.
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar";

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Listed {
    config: String,
    /// Null for an image that was saved by its id.
    repo_tags: Option<Vec<String>>,
    layers: Option<Vec<String>>,
}

/// The images of the list.
pub(super) fn images(spool: &Spool, list: &[u8]) -> Result<Vec<Found>, ImageError> {
    let listed: Vec<Listed> = serde_json::from_slice(list)
        .map_err(|error| ImageError::content("manifest.json", ContentError::Json(error.to_string())))?;
    listed.into_iter().map(|image| found(spool, image)).collect()
}

fn found(spool: &Spool, image: Listed) -> Result<Found, ImageError> {
    let descriptor = |media_type: &str, path: &str| -> Result<Value, ImageError> {
        let file = spool.file(path)?;
        Ok(json!({ "mediaType": media_type, "digest": file.digest, "size": file.size }))
    };
    let config = descriptor(CONFIG, &image.config)?;
    let layers = image.layers.unwrap_or_default();
    let layers: Result<Vec<_>, _> = layers.iter().map(|path| descriptor(LAYER, path)).collect();
    let manifest =
        json!({ "schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": layers? }).to_string();
    let digest = format!("sha256:{}", hex::encode(Sha256::digest(&manifest)));
    let tags = image.repo_tags.unwrap_or_default();
    let names: Result<Vec<_>, _> = tags.iter().map(|tag| Name::of_tag(tag)).collect();
    Ok(Found { names: names?, document: Bytes::from(manifest), digest, is_original: false })
}
