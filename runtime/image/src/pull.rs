//! The steps of one pull. Owns their order; each step is done by the module that it is named for.
//!
//! ```text
//! hosts ► manifest (► manifests for linux/amd64) ► config ► [image there? ► names added, done]
//!       ► layers, a few at a time: network ► hash ► disk and ► decompress ► hash ► archive ► entries, data
//!       ► stacked in order ► image file ► renamed into place ► index written
//! ```
//! A pull that fails at any step leaves blobs, whole or partial, and nothing else.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures::{StreamExt, TryStreamExt};
use runtime_fail_points::{Point, pass};
use runtime_spans::{always, span, step};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use crate::blob::{self, BlobReader};
use crate::blocking::{DroppedAside, blocking, blocking_on_layer};
use crate::build::Stack;
use crate::config::{self, Parsed};
use crate::error::{self, ContentError, ImageError};
use crate::layer::{self, Budget, ExpectedLayer, Unpacked};
use crate::limits::Limits;
use crate::manifest::{self, Choice, Descriptor, Document, Manifest};
use crate::name::{Name, digest_hex};
use crate::registry::{Credentials, Registry, RegistryConfig};
use crate::room;
use crate::store::{Record, Store};
use crate::transfer::Sources;

/// Layers in transfer at once, per pull.
const LAYERS_AT_ONCE: usize = 3;

/// Most documents that are looked at to find the manifest of one image.
const DOCUMENTS_MAX: usize = 32;

/// Most indexes in each other.
const DEPTH_MAX: usize = 4;

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
        let (store, wanted) = (Arc::clone(&self.store), manifest.layers.clone());
        blocking("looking for room", move || room::check(store.directory(), &store.blobs(), &wanted)).await?;
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
        let (bytes, digest) = self.registry.manifest(&self.name, None).await?;
        match manifest::parse(&what, &bytes, &self.limits)? {
            Document::Image(manifest) => Ok((manifest, digest)),
            Document::Index(choices) => Ok((self.choose(choices).await?, digest)),
        }
    }

    /// Gets the first manifest for this node. An index may hold others, and what it holds need not be what it says.
    async fn choose(&self, choices: Vec<Choice>) -> Result<Manifest, ImageError> {
        let at =
            |choices: Vec<Choice>, depth: usize| choices.into_iter().rev().map(move |choice| (choice, depth));
        // The last one is the next to be looked at.
        let mut open: Vec<(Choice, usize)> = at(choices, 1).collect();
        let (mut first_failure, mut documents) = (None, 0);
        while let Some((choice, depth)) = open.pop() {
            let what = format!("manifest {}", choice.digest);
            documents += 1;
            for (size, unit, limit) in [
                (documents, "documents of one index", DOCUMENTS_MAX),
                (depth, "indexes in each other", DEPTH_MAX),
            ] {
                if size > limit {
                    let (size, limit) = (size as u64, limit as u64);
                    return Err(ImageError::content(what, ContentError::Limit { size, unit, limit }));
                }
            }
            let (bytes, _) = self.registry.manifest(&self.name, Some(&choice.digest)).await?;
            let failure = match manifest::parse(&what, &bytes, &self.limits) {
                Ok(Document::Index(choices)) => {
                    open.extend(at(choices, depth + 1));
                    continue;
                }
                Ok(Document::Image(manifest)) if choice.is_named => return Ok(manifest),
                // Its config says for which platform it is.
                Ok(Document::Image(manifest)) => match self.config(&manifest.config).await {
                    Ok(_) => return Ok(manifest),
                    Err(error) => error,
                },
                Err(error) => error,
            };
            let is_another = matches!(failure, ImageError::Content { error: ContentError::Platform(_), .. });
            if choice.is_named && !is_another {
                return Err(failure);
            }
            first_failure.get_or_insert(failure);
        }
        Err(first_failure.unwrap_or(ImageError::Interrupted("choosing an image")))
    }

    async fn config(&self, descriptor: &Descriptor) -> Result<Parsed, ImageError> {
        let sources = Sources::default();
        loop {
            match self.config_once(descriptor, &sources).await {
                Err(error) if error.is_of_bytes() && sources.try_others(&self.registry) => {}
                other => return other,
            }
        }
    }

    async fn config_once(&self, descriptor: &Descriptor, sources: &Sources) -> Result<Parsed, ImageError> {
        let lock = self.store.blob_locks.lock(&descriptor.digest).await;
        let reader = blob::open(&self.store.blobs(), descriptor, &self.registry, sources).await?;
        let (what, blobs) = (descriptor.to_string(), self.store.blobs());
        blocking("reading a config", move || {
            let _lock = lock;
            // The descriptor's size is within the limit, and the reader gives no more than that.
            let mut bytes = Vec::new();
            finish(reader, |reader| {
                // The reader says better what has failed, where that is not the disk.
                std::io::copy(reader, &mut bytes)
                    .map(drop)
                    .map_err(ImageError::disk("reading a blob of", &blobs))
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
        let ended = CancellationToken::new();
        // The first layer that fails ends the transfers of all others.
        let _ended = ended.clone().drop_guard();
        let mut unpacked = futures::stream::iter(expected)
            .map(|(descriptor, expected)| {
                let number = expected.blob;
                let data = work.join(format!("layer-{number}"));
                let (store, registry) = (Arc::clone(&self.store), Arc::clone(&self.registry));
                let bytes = i64::try_from(descriptor.size).unwrap_or(i64::MAX);
                let span = span!("layer", digest = descriptor.digest, bytes);
                let layer =
                    Layer { store, registry, descriptor, expected, data, budget: Arc::clone(&budget) };
                let task = tokio::spawn(step(span, layer.get(Sources::new(ended.clone()))));
                let task = AbortOnDropHandle::new(task);
                async move {
                    let layer = task.await.unwrap_or(Err(ImageError::Interrupted("unpacking a layer")))?;
                    Ok::<_, ImageError>((number, layer))
                }
            })
            .buffer_unordered(LAYERS_AT_ONCE);
        // Layers come in any order, and are stacked in their own.
        let (mut stack, mut early, mut next) = (Stack::default(), BTreeMap::new(), 0);
        while let Some((number, layer)) = unpacked.try_next().await? {
            early.insert(number, layer);
            while let Some((what, layer)) = early.remove(&next) {
                let stacking = move || stack.add(&what, layer).map(|()| stack);
                stack = step(span!("stack a layer"), blocking_on_layer("stacking layers", stacking)).await?;
                next += 1;
            }
        }
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

/// One layer to be unpacked, from the registry or from disk.
struct Layer {
    store: Arc<Store>,
    registry: Arc<Registry>,
    descriptor: Descriptor,
    expected: ExpectedLayer,
    data: PathBuf,
    budget: Arc<Budget>,
}

impl Layer {
    /// Unpacks the layer into a data file and entries. Where a host's bytes are wrong, the next host is asked.
    async fn get(self, sources: Sources) -> Result<(String, Unpacked), ImageError> {
        loop {
            match self.get_once(&sources).await {
                Err(error) if error.is_of_bytes() && sources.try_others(&self.registry) => {
                    let error = error::chain(&error);
                    tracing::debug!(error, "the bytes of a layer are wrong, and another host is asked");
                }
                other => return other,
            }
        }
    }

    async fn get_once(&self, sources: &Sources) -> Result<(String, Unpacked), ImageError> {
        let lock = self.store.blob_locks.lock(&self.descriptor.digest).await;
        let reader = blob::open(&self.store.blobs(), &self.descriptor, &self.registry, sources).await?;
        let (expected, data, budget) = (self.expected.clone(), self.data.clone(), Arc::clone(&self.budget));
        blocking_on_layer("unpacking a layer", move || {
            // The thread outlives a pull that is dropped; until the thread ends, nobody else may have the blob.
            let _lock = lock;
            let mut unpacked = None;
            finish(reader, |reader| {
                unpacked = Some(layer::unpack(&expected, reader, &data, &budget)?);
                Ok(())
            })?;
            unpacked.map(|layer| (expected.what, layer)).ok_or(ImageError::Interrupted("unpacking a layer"))
        })
        .await
    }
}

/// Reads a blob, then checks and stores it. Where it cannot be read, its transfer ends.
fn finish(
    mut reader: BlobReader,
    read: impl FnOnce(&mut BlobReader) -> Result<(), ImageError>,
) -> Result<(), ImageError> {
    match read(&mut reader) {
        Ok(()) => reader.finish(),
        Err(error) => Err(reader.give_up(error)),
    }
}
