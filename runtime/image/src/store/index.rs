//! The index in memory, and its forms on disk. Owns the list of images and of their layers; removes no file.
//!
//! In version 1 an image was one file, and the index had the digests of its compressed blobs. Such images
//! stay unchanged: they are images without layers of their own. Their blobs are not needed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::sync::Arc;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

use crate::config::DeclaredConfig;
use crate::error::ImageError;
use crate::files;
use crate::verity::VerityDigest;

/// Version of the index's form. Unknown versions are refused.
const VERSION: u32 = 2;

/// One image in the index.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Record {
    /// `sha256:` and the config's digest.
    pub(crate) id: String,
    pub(crate) repo_tags: Vec<String>,
    pub(crate) repo_digests: Vec<String>,
    pub(crate) size_bytes: u64,
    /// Bytes of the image's own file: of the metadata, or of a single-file image.
    pub(crate) file_bytes: u64,
    /// The digest of the image's own file, if the file system has fs-verity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) verity: Option<VerityDigest>,
    /// Diff ids of the layers with their contents after the image's own file, each once and in this order.
    pub(crate) layers: Vec<String>,
    /// Shared with all copies of the record: lists are requested very often.
    #[serde(serialize_with = "plain", deserialize_with = "shared_without_nulls")]
    pub(crate) config: Arc<DeclaredConfig>,
}

fn plain<S: Serializer>(config: &Arc<DeclaredConfig>, to: S) -> Result<S::Ok, S::Error> {
    config.as_ref().serialize(to)
}

fn shared_without_nulls<'de, D: Deserializer<'de>>(from: D) -> Result<Arc<DeclaredConfig>, D::Error> {
    without_nulls(from).map(Arc::new)
}

/// A layer's two files.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LayerRecord {
    /// Bytes of contents, a multiple of 4 KiB. The file's length is the next multiple of 2 MiB. Without
    /// contents there is no file.
    pub(crate) content_bytes: u64,
    pub(crate) tree_bytes: u64,
    /// The digest of the contents' file, if the file system has fs-verity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) data_verity: Option<VerityDigest>,
    /// The digest of the tree's file, if the file system has fs-verity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) tree_verity: Option<VerityDigest>,
}

/// Indexes of earlier versions have `null` for an image without a stop signal.
fn without_nulls<'de, D: Deserializer<'de>>(from: D) -> Result<DeclaredConfig, D::Error> {
    let mut fields = Map::deserialize(from)?;
    fields.retain(|_, value: &mut Value| !value.is_null());
    serde_json::from_value(fields.into()).map_err(D::Error::custom)
}

/// All the store's knowledge of its files.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Index {
    /// Images, by id.
    pub(crate) records: BTreeMap<String, Record>,
    /// Images removed while in use, by id. Their files still exist, but nothing lists them.
    pub(crate) removed: BTreeMap<String, Record>,
    /// Layers, by diff id.
    pub(crate) layers: BTreeMap<String, LayerRecord>,
    /// Diff ids of layers that no image has had yet: those of running or failed pulls. On disk they are the
    /// layers without an image.
    pub(crate) unfinished: BTreeSet<String>,
}

/// The index just read.
pub(crate) struct Found {
    pub(crate) index: Index,
    /// Digests of blobs named by an index of version 1. `None` for the current version.
    pub(crate) old_blobs: Option<BTreeSet<String>>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct IndexFile {
    version: u32,
    images: Vec<Record>,
    removed: Vec<Record>,
    layers: BTreeMap<String, LayerRecord>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FirstIndexFile {
    #[serde(rename = "version")]
    _version: u32,
    images: Vec<FirstRecord>,
    #[serde(default)]
    removed: BTreeSet<String>,
}

#[derive(Deserialize)]
struct FirstRecord {
    id: String,
    repo_tags: Vec<String>,
    repo_digests: Vec<String>,
    size_bytes: u64,
    blobs: Vec<String>,
    #[serde(deserialize_with = "without_nulls")]
    config: DeclaredConfig,
}

#[derive(Deserialize)]
struct VersionOnly {
    version: u32,
}

impl Index {
    /// Reads the index at `path`. An absent one is empty.
    ///
    /// # Errors
    /// [`ImageError::Disk`], also if the index is damaged or of an unknown version.
    pub(crate) fn read(path: &Path) -> Result<Found, ImageError> {
        let bytes = match fs::read(path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Ok(Found { index: Index::default(), old_blobs: None });
            }
            Err(error) => return Err(ImageError::disk("reading", path)(error)),
        };
        let invalid = |reason: String| {
            ImageError::disk("reading", path)(std::io::Error::new(std::io::ErrorKind::InvalidData, reason))
        };
        let json = |error: serde_json::Error| invalid(error.to_string());
        match serde_json::from_slice::<VersionOnly>(&bytes).map_err(json)?.version {
            1 => Ok(first(serde_json::from_slice(&bytes).map_err(json)?)),
            VERSION => {
                let IndexFile { images, removed, layers, .. } =
                    serde_json::from_slice(&bytes).map_err(json)?;
                let (records, removed) = (by_id(images), by_id(removed));
                let mut index = Index { records, removed, layers, unfinished: BTreeSet::new() };
                let named = index.named_layers();
                let is_unnamed = |diff_id: &&String| !named.contains(diff_id.as_str());
                index.unfinished = index.layers.keys().filter(is_unnamed).cloned().collect();
                Ok(Found { index, old_blobs: None })
            }
            version => Err(invalid(format!("its version is {version}, not 1 to {VERSION}"))),
        }
    }

    /// Writes the index to `path`: all images with their layers, and unfinished layers.
    pub(crate) fn write(&self, path: &Path) -> Result<(), ImageError> {
        let named = self.named_layers();
        let mut layers = self.layers.clone();
        layers.retain(|diff_id, _| named.contains(diff_id.as_str()) || self.unfinished.contains(diff_id));
        let images = self.records.values().cloned().collect();
        let removed = self.removed.values().cloned().collect();
        let index = IndexFile { version: VERSION, images, removed, layers };
        let bytes = serde_json::to_vec_pretty(&index).expect("strings and numbers always serialise");
        files::replace(path, &bytes)
    }

    /// Returns all images with existing files, including removed ones.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Record> {
        self.records.values().chain(self.removed.values())
    }

    /// Returns the diff ids of all layers referenced by an image.
    pub(crate) fn named_layers(&self) -> BTreeSet<&str> {
        self.all().flat_map(|record| &record.layers).map(String::as_str).collect()
    }

    /// Returns the lengths of the image's layer files, in order. `None` if a layer is unknown.
    pub(crate) fn layer_bytes(&self, record: &Record) -> Option<Vec<u64>> {
        let bytes = |diff_id: &String| Some(self.layers.get(diff_id)?.content_bytes);
        record.layers.iter().map(bytes).collect()
    }
}

fn by_id(images: Vec<Record>) -> BTreeMap<String, Record> {
    images.into_iter().map(|record| (record.id.clone(), record)).collect()
}

/// Converts images of version 1 to the current version. Files of version 1 were padded to a multiple of 2
/// MiB.
fn first(file: FirstIndexFile) -> Found {
    let FirstIndexFile { images, removed: mut old_blobs, .. } = file;
    let record = |first: FirstRecord| {
        let FirstRecord { id, repo_tags, repo_digests, size_bytes, blobs, config } = first;
        old_blobs.extend(blobs);
        let file_bytes = size_bytes.saturating_add(runtime_erofs::BLOB_ALIGNMENT - 1)
            / runtime_erofs::BLOB_ALIGNMENT
            * runtime_erofs::BLOB_ALIGNMENT;
        Record {
            id,
            repo_tags,
            repo_digests,
            size_bytes,
            file_bytes,
            verity: None,
            layers: Vec::new(),
            config: Arc::new(config),
        }
    };
    let records = by_id(images.into_iter().map(record).collect());
    Found { index: Index { records, ..Index::default() }, old_blobs: Some(old_blobs) }
}
