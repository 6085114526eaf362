//! The images of cases, in the registry of both runtimes.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use serde_json::{Map, Value, json};
use tests_registry::{Layer, Registry, digest_of};

use crate::case::Image;
use crate::tree;

/// The repository of all images, so each runtime has their common layer once.
const REPOSITORY: &str = "podvisor/parity";

/// The pushed images, by their contents.
#[derive(Debug)]
pub(crate) struct Images {
    registry: &'static Registry,
    base: Layer,
    config: Value,
    pushed: BTreeMap<String, String>,
}

impl Images {
    /// Pushes the images' common layer.
    ///
    /// # Errors
    /// When there is no busybox, or the registry does not take it.
    pub(crate) async fn new(registry: &'static Registry) -> Result<Images> {
        let (layers, config) = tests_registry::busybox_image()?;
        let base = layers.into_iter().next().context("busybox has a layer")?;
        registry.push_blob(REPOSITORY, &base.bytes).await?;
        Ok(Images { registry, base, config, pushed: BTreeMap::new() })
    }

    /// Pushes the image if it is not there yet, and returns its reference.
    ///
    /// # Errors
    /// If an entry of its tree is invalid, or the registry refuses it.
    pub(crate) async fn reference(&mut self, image: &Image) -> Result<String> {
        let key = serde_json::to_string(image)?;
        if let Some(tag) = self.pushed.get(&key) {
            return Ok(self.registry.reference(REPOSITORY, tag));
        }
        let tag = format!("{}", self.pushed.len() + 1);
        self.push(image, &tag).await?;
        self.pushed.insert(key, tag.clone());
        Ok(self.registry.reference(REPOSITORY, &tag))
    }

    async fn push(&self, image: &Image, tag: &str) -> Result<()> {
        let mut layers = if image.scratch { Vec::new() } else { vec![self.base.clone()] };
        if !image.tree.is_empty() || image.scratch {
            let top = tree::layer(&image.tree)?;
            self.registry.push_blob(REPOSITORY, &top.bytes).await?;
            layers.push(top);
        }
        let document = document(image, &self.config, &layers);
        let bytes = serde_json::to_vec(&document)?;
        self.registry.push_blob(REPOSITORY, &bytes).await?;
        let described: Vec<Value> = layers.iter().map(descriptor).collect();
        let mut manifest = json!({
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": {
                "mediaType": "application/vnd.oci.image.config.v1+json",
                "digest": digest_of(&bytes), "size": bytes.len(),
            },
            "layers": described,
        });
        set(&mut manifest, &image.manifest);
        self.registry.push_manifest(REPOSITORY, tag, &manifest).await?;
        Ok(())
    }
}

fn descriptor(layer: &Layer) -> Value {
    json!({ "mediaType": layer.media_type, "digest": layer.digest(), "size": layer.bytes.len() })
}

/// The image's configuration: busybox's with the case's fields in it.
fn document(image: &Image, config: &Value, layers: &[Layer]) -> Value {
    let mut config = config.clone();
    set(&mut config, &image.config);
    let diff_ids: Vec<&str> = layers.iter().map(|layer| layer.diff_id.as_str()).collect();
    let mut document = json!({
        "architecture": "amd64", "os": "linux", "config": config,
        "rootfs": { "type": "layers", "diff_ids": diff_ids },
    });
    set(&mut document, &image.document);
    document
}

/// Puts fields into an object. TOML has no null: the text `<null>` stands for one, and `<none>` takes the
/// field away.
fn set(object: &mut Value, fields: &Map<String, Value>) {
    let Some(object) = object.as_object_mut() else { return };
    for (key, value) in fields {
        if value == "<none>" {
            object.remove(key);
        } else {
            object.insert(key.clone(), with_nulls(value));
        }
    }
}

fn with_nulls(value: &Value) -> Value {
    match value {
        Value::String(text) if text == "<null>" => Value::Null,
        Value::Array(all) => all.iter().map(with_nulls).collect(),
        Value::Object(all) => all.iter().map(|(key, value)| (key.clone(), with_nulls(value))).collect(),
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_set_taken_away_and_nulled() {
        let fields = json!({ "Env": "<none>", "Labels": { "a": "<null>" } });
        let image = Image { config: fields.as_object().unwrap().clone(), ..Image::default() };
        let document = document(&image, &json!({ "Env": ["A=b"], "Cmd": ["sh"] }), &[]);
        assert_eq!(document["config"], json!({ "Cmd": ["sh"], "Labels": { "a": null } }));
    }
}
