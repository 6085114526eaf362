//! The images of a `docker save` archive (moby `image/spec/v1.2.md`, "Combined Image JSON + Filesystem
//! Changeset Format"): a list of images, each with the paths of its config and layers. Such an image has no
//! manifest, so one is created here.

use bytes::Bytes;
use serde_json::{Value, json};

use super::found::Found;
use crate::digest;
use crate::error::{ContentError, ImageError};
use crate::json::Json;
use crate::name::Name;
use crate::spool::Spool;

/// Media types of the created manifest. A layer's compression is detected from its first bytes.
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar";

/// An image of the list.
#[derive(Debug)]
struct Listed {
    config: String,
    /// Empty for an image saved by its id.
    repo_tags: Vec<String>,
    layers: Vec<String>,
}

/// The images of the list.
pub(super) fn images(spool: &Spool, list: &[u8]) -> Result<Vec<Found>, ImageError> {
    let listed =
        read(list).map_err(|wrong| ImageError::content("manifest.json", ContentError::Json(wrong)))?;
    listed.iter().map(|image| found(spool, image)).collect()
}

fn read(list: &[u8]) -> Result<Vec<Listed>, String> {
    let image = |item: Json<'_>| {
        let fields = item.fields()?;
        let (config, repo_tags) = (fields.text("Config")?, fields.texts("RepoTags")?);
        Ok(Listed { config, repo_tags, layers: fields.texts("Layers")? })
    };
    Json::parse(list)?.items()?.into_iter().map(image).collect()
}

fn found(spool: &Spool, image: &Listed) -> Result<Found, ImageError> {
    let descriptor = |media_type: &str, path: &str| -> Result<Value, ImageError> {
        let file = spool.file(path)?;
        Ok(json!({ "mediaType": media_type, "digest": file.digest, "size": file.size }))
    };
    let config = descriptor(CONFIG, &image.config)?;
    let layers: Result<Vec<_>, _> = image.layers.iter().map(|path| descriptor(LAYER, path)).collect();
    let manifest =
        json!({ "schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": layers? }).to_string();
    let digest = digest::sha256(&manifest);
    let names: Result<Vec<_>, _> = image.repo_tags.iter().map(|tag| Name::of_tag(tag)).collect();
    Ok(Found { names: names?, document: Bytes::from(manifest), digest, is_original: false })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_read_as_docker_reads_it() {
        let list = br#"[{"Config":"c.json","repotags":["a:1",null],"LAYERS":null,"Parent":7},{"Config":"d","Layers":["l"]}]"#;
        let read = read(list).unwrap();
        assert_eq!((read[0].repo_tags.len(), read[0].layers.len()), (2, 0));
        assert_eq!((read[1].config.as_str(), read[1].layers.join(" ")), ("d", "l".to_owned()));
        assert_eq!(
            super::read(b"[{\"Layers\":{}}]").unwrap_err(),
            "Layers: an object where a list is wanted"
        );
        assert!(super::read(b"{}").is_err());
    }
}
