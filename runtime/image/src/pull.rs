//! The steps of one pull. Owns their order; each step is done by the module that it is named for.
//!
//! ```text
//! hosts ► manifest (► manifest for linux/amd64) ► config ► [image there? ► names added, done]
//!       ► layers, a few at a time: network ► hash ► disk and ► decompress ► hash ► archive ► entries, data
//!       ► stacked in order ► image file ► renamed into place ► index written
//! ```
//! A pull that fails at any step leaves blobs, whole or partial, and nothing else.

use std::path::Path;
use std::sync::Arc;

use futures::{StreamExt, TryStreamExt};
use runtime_fail_points::{Point, pass};
use runtime_spans::{always, span, step};
use sha2::{Digest, Sha256};
use tokio_util::task::AbortOnDropHandle;

use crate::blob::{self, BlobReader};
use crate::blocking::{DroppedAside, blocking, blocking_on_layer};
use crate::build::Stack;
use crate::config::{self, Parsed};
use crate::error::{ContentError, ImageError};
use crate::layer::{self, Budget, ExpectedLayer, Unpacked};
use crate::limits::Limits;
use crate::manifest::{self, Descriptor, Document, Manifest};
use crate::name::{Name, digest_hex};
use crate::registry::{Credentials, Registry, RegistryConfig};
use crate::store::{Record, Store};

/// Layers in transfer at once, per pull.
const LAYERS_AT_ONCE: usize = 3;

pub(crate) struct Pull {
    pub(crate) store: Arc<Store>,
    pub(crate) registry: Arc<Registry>,
    pub(crate) name: Name,
    pub(crate) limits: Limits,
}

/// Finds the hosts that serve a name.
pub(crate) async fn registry(
    name: Name,
    credentials: Option<Credentials>,
    config: RegistryConfig,
) -> Result<Arc<Registry>, ImageError> {
    blocking("reading the hosts of a registry", move || {
        Registry::open(&name, credentials.as_ref(), &config).map(Arc::new)
    })
    .await
}

impl Pull {
    pub(crate) async fn run(self) -> Result<Record, ImageError> {
        let (manifest, digest) = step(span!("get the manifest"), self.manifest()).await?;
        let blobs: Vec<String> = std::iter::once(&manifest.config)
            .chain(&manifest.layers)
            .map(|descriptor| descriptor.digest.clone())
            .collect();
        let _pins = self.store.pin(blobs.clone());
        let parsed = step(span!("get the config"), self.config(&manifest.config)).await?;
        let (layers, diff_ids) = (manifest.layers.len(), parsed.diff_ids.len());
        if layers != diff_ids {
            let what = format!("manifest {}", self.name.whole());
            return Err(ImageError::content(what, ContentError::LayerCount { layers, diff_ids }));
        }
        let id = manifest.config.digest.clone();
        let _lock = always(span!("wait for the image"), self.store.image_locks.lock(&id)).await;
        let mut record = Record {
            id: id.clone(),
            repo_tags: self.name.repo_tag().into_iter().collect(),
            repo_digests: vec![self.name.repo_digest(&digest)],
            size_bytes: 0,
            blobs,
            config: parsed.config,
        };
        if let Some(known) = self.store.get(&id) {
            record.size_bytes = known.size_bytes;
            match self.add(record.clone()).await {
                // The image was removed after `get`.
                Err(ImageError::Unknown(_)) => {}
                other => return other,
            }
        }
        record.size_bytes = self.build(&id, &manifest.layers, parsed.diff_ids).await?;
        self.add(record).await
    }

    async fn add(&self, record: Record) -> Result<Record, ImageError> {
        let store = Arc::clone(&self.store);
        step(span!("write the index"), blocking("writing the index", move || store.add(record))).await
    }

    /// Gets the manifest for linux/amd64, and the digest of the document that the name itself means, which may be an
    /// index.
    async fn manifest(&self) -> Result<(Manifest, String), ImageError> {
        let what = format!("manifest {}", self.name.whole());
        let bytes = self.registry.manifest(&self.name, None).await?;
        let digest = digest_of(&what, &bytes, self.name.reference.digest())?;
        let inner = match manifest::parse(&what, &bytes, &self.limits)? {
            Document::Image(manifest) => return Ok((manifest, digest)),
            Document::Index(inner) => inner,
        };
        let what = format!("manifest {inner}");
        let bytes = self.registry.manifest(&self.name, Some(&inner)).await?;
        digest_of(&what, &bytes, Some(&inner))?;
        match manifest::parse(&what, &bytes, &self.limits)? {
            Document::Image(manifest) => Ok((manifest, digest)),
            Document::Index(_) => {
                Err(ImageError::content(what, ContentError::Json("an index within an index".to_owned())))
            }
        }
    }

    async fn config(&self, descriptor: &Descriptor) -> Result<Parsed, ImageError> {
        let lock = self.store.blob_locks.lock(&descriptor.digest).await;
        let reader = blob::open(&self.store.blobs(), descriptor, &self.registry).await?;
        let what = descriptor.to_string();
        blocking("reading a config", move || {
            let _lock = lock;
            // The descriptor's size is within the limit, and the reader gives no more than that.
            let mut bytes = Vec::new();
            finish(reader, |reader| {
                std::io::copy(reader, &mut bytes)
                    .map(drop)
                    .map_err(|_| ImageError::Interrupted("reading a config"))
            })?;
            config::parse(&what, &bytes)
        })
        .await
    }

    /// Makes the image's file and returns the bytes in use.
    async fn build(&self, id: &str, layers: &[Descriptor], diff_ids: Vec<String>) -> Result<u64, ImageError> {
        let temporary = self.store.temporary();
        let work = blocking("making a directory", move || {
            let made = pass(Point::ImageWork).and_then(|()| tempfile::tempdir_in(&temporary));
            made.map(DroppedAside::new).map_err(ImageError::disk("creating a directory in", &temporary))
        })
        .await?;
        let built = self.build_in(work.get().path(), id, layers, diff_ids).await;
        let removed = blocking("removing a directory", move || {
            work.drop_here();
            Ok(())
        });
        removed.await.and(built)
    }

    /// Makes the image's file by way of files in `work`.
    async fn build_in(
        &self,
        work: &Path,
        id: &str,
        layers: &[Descriptor],
        diff_ids: Vec<String>,
    ) -> Result<u64, ImageError> {
        let budget = Arc::new(Budget::new(self.limits.unpacked_bytes));
        let mut expected = Vec::new();
        for ((descriptor, diff_id), blob) in layers.iter().zip(diff_ids).zip(0..) {
            let what = descriptor.to_string();
            expected.push((descriptor.clone(), ExpectedLayer { what, diff_id, blob }));
        }
        let unpacked = futures::stream::iter(expected)
            .map(|(descriptor, expected)| {
                let data = work.join(format!("layer-{}", expected.blob));
                let (store, registry) = (Arc::clone(&self.store), Arc::clone(&self.registry));
                let bytes = i64::try_from(descriptor.size).unwrap_or(i64::MAX);
                let span = span!("layer", digest = descriptor.digest, bytes);
                let layer = layer(store, registry, descriptor, expected, data, Arc::clone(&budget));
                let task = tokio::spawn(step(span, layer));
                let task = AbortOnDropHandle::new(task);
                async move { task.await.unwrap_or(Err(ImageError::Interrupted("unpacking a layer"))) }
            })
            .buffered(LAYERS_AT_ONCE);
        let stack = unpacked
            .try_fold(Stack::default(), |mut stack, (what, layer)| {
                let stacking = move || stack.add(&what, layer).map(|()| stack);
                step(span!("stack a layer"), blocking_on_layer("stacking layers", stacking))
            })
            .await?;
        let (store, id, path) = (Arc::clone(&self.store), id.to_owned(), work.join("image"));
        let writing = blocking_on_layer("writing an image", move || {
            let hex = digest_hex(&id).map_err(|wrong| ImageError::content(format!("image {id}"), wrong))?;
            let (file, bytes) = stack.write(hex, &path)?;
            store.publish(&id, &file, &path)?;
            Ok(bytes)
        });
        step(span!("write the image"), writing).await
    }
}

/// Unpacks one layer, from the registry or from disk, into a data file and entries.
async fn layer(
    store: Arc<Store>,
    registry: Arc<Registry>,
    descriptor: Descriptor,
    expected: ExpectedLayer,
    data: std::path::PathBuf,
    budget: Arc<Budget>,
) -> Result<(String, Unpacked), ImageError> {
    let lock = store.blob_locks.lock(&descriptor.digest).await;
    let reader = blob::open(&store.blobs(), &descriptor, &registry).await?;
    blocking_on_layer("unpacking a layer", move || {
        // The thread outlives a pull that is dropped; until the thread ends, nobody else may have the blob.
        let _lock = lock;
        let mut unpacked = None;
        finish(reader, |reader| {
            unpacked = Some(layer::unpack(&expected, reader, &data, &budget)?);
            Ok(())
        })?;
        unpacked.map(|unpacked| (expected.what, unpacked)).ok_or(ImageError::Interrupted("unpacking a layer"))
    })
    .await
}

/// Reads a blob, then checks and stores it. A wrong digest explains whatever failure `read` had, so it is reported
/// first.
fn finish(
    mut reader: BlobReader,
    read: impl FnOnce(&mut BlobReader) -> Result<(), ImageError>,
) -> Result<(), ImageError> {
    let outcome = read(&mut reader);
    reader.finish().and(outcome)
}

/// Computes the digest of a manifest, which must be `expected` if that is given.
fn digest_of(what: &str, bytes: &[u8], expected: Option<&str>) -> Result<String, ImageError> {
    let actual = format!("sha256:{}", hex::encode(Sha256::digest(bytes)));
    match expected {
        Some(expected) if expected != actual => {
            Err(ImageError::content(what, ContentError::Digest { expected: expected.to_owned(), actual }))
        }
        _ => Ok(actual),
    }
}
