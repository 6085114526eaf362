//! The steps of one pull. Owns their order; each step is in the module named after it.
//!
//! ```text
//! source ► [its digest is of an image there? ► name added, done]
//!       ► manifest (► manifests for linux/amd64) ► config ► [image there? ► names added, done]
//!       ► missing layers, few at once: network ► hash ► disk and ► decompress ► hash ► archive ► tree, data
//!       ► a place ► all trees read and stacked in order ► image file ► renamed into place
//!       ► index written ► blobs removed
//! ```
//! A pull failing at any step leaves complete or partial blobs, and complete layers. The next pull finds
//! them, also after a restart of the daemon.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;

use futures::{StreamExt, TryStreamExt};
use runtime_erofs::BLOB_ALIGNMENT;
use runtime_fail_points::{Point, pass};
use runtime_spans::{always, span, step};
use tokio::sync::OwnedSemaphorePermit;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use crate::blob;
use crate::blocking::{DroppedAside, blocking, blocking_on_layer};
use crate::build::Stack;
use crate::config::{self, Parsed};
use crate::error::{ContentError, ImageError};
use crate::fetch::{self, Fetch};
use crate::files;
use crate::layer::{Budget, ExpectedLayer, Places};
use crate::limits::Limits;
use crate::manifest::{self, Choice, Chosen, Descriptor, Document, Manifest};
use crate::name::Name;
use crate::progress::{Progress, PullState};
use crate::registry::{Credentials, Registry, RegistryConfig};
use crate::room;
use crate::source::Source;
use crate::store::{Listed, Record, Store};
use crate::transfer::Sources;
use crate::tree_file::TreeFile;

/// Layers in transfer at once, per pull; all pulls together have [`crate::store::LAYERS_AT_ONCE_MAX`].
const LAYERS_AT_ONCE: usize = 3;

/// Most documents read to find the manifest of one image.
const DOCUMENTS_MAX: usize = 32;

/// The work's name, where it ended early.
const STACKING: &str = "stacking layers";

/// Most nested indexes.
const DEPTH_MAX: usize = 4;

pub(crate) struct Pull {
    pub(crate) store: Arc<Store>,
    pub(crate) source: Arc<Source>,
    /// The image's name in errors.
    pub(crate) shown: String,
    /// Names to add to the image.
    pub(crate) names: Vec<Name>,
    /// Whether the image's document may be in a registry. The image then also has names by its digest.
    pub(crate) has_digest: bool,
    pub(crate) limits: Limits,
    pub(crate) progress: Progress,
}

/// Finds the hosts of a name.
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
    pub(crate) async fn run(self) -> Result<Listed, ImageError> {
        if let Some(listed) = step(span!("compare the digest"), self.unchanged()).await? {
            return Ok(listed);
        }
        let (manifest, digest) = step(span!("get the manifest"), self.manifest()).await?;
        let blobs: Vec<String> = std::iter::once(&manifest.config)
            .chain(&manifest.layers)
            .map(|descriptor| descriptor.digest.clone())
            .collect();
        let pins = self.store.pin(blobs.clone());
        let listed = self.make(manifest, &digest).await?;
        drop(pins);
        let store = Arc::clone(&self.store);
        let removing = blocking("removing blobs", move || store.remove_blobs(blobs));
        if let Err(error) = removing.await {
            tracing::warn!(error = crate::error::chain(&error), "unneeded blobs of an image are left");
        }
        Ok(listed)
    }

    /// Adds the pull's name to the image that its registry has under this name, if the image is here. The
    /// kubelet pulls with each start of many containers, and registries limit how often a manifest is given.
    /// `None` if the manifest is needed.
    async fn unchanged(&self) -> Result<Option<Listed>, ImageError> {
        let Some(digest_name) = self.source.digest_name(|name| self.store.may_have(name)).await else {
            return Ok(None);
        };
        let Some(known) = self.store.only_with(&digest_name) else { return Ok(None) };
        let repo_tags = self.names.iter().filter_map(Name::repo_tag).collect();
        // Without a file of its own, it only adds names.
        let names = Record { repo_tags, repo_digests: vec![digest_name], file_bytes: 0, ..known };
        match self.add(names).await {
            Ok(listed) => Ok(Some(listed)),
            // Its files were removed or altered.
            Err(ImageError::Unknown(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Creates the image unless it exists, and adds the pull's name to it.
    async fn make(&self, manifest: Manifest, digest: &str) -> Result<Listed, ImageError> {
        let parsed = step(span!("get the config"), self.config(&manifest)).await?;
        let (layers, diff_ids) = (manifest.layers.len(), parsed.diff_ids.len());
        if layers != diff_ids {
            let what = format!("manifest {}", self.shown);
            return Err(ImageError::content(what, ContentError::LayerCount { layers, diff_ids }));
        }
        // Each once, because an image may contain a layer twice.
        let mut seen = HashSet::new();
        let distinct: Vec<String> = parsed.diff_ids.iter().filter(|id| seen.insert(*id)).cloned().collect();
        let _pins = self.store.pin(distinct.clone());
        let id = manifest.config.digest.clone();
        self.progress.enter(PullState::Waiting);
        let _lock = always(span!("wait for the image"), self.store.image_locks.lock(&id)).await;
        self.progress.layers(&manifest.layers);
        let mut record = Record {
            id: id.clone(),
            repo_tags: self.names.iter().filter_map(Name::repo_tag).collect(),
            repo_digests: self.repo_digests(digest),
            size_bytes: 0,
            file_bytes: 0,
            verity: None,
            layers: distinct,
            config: Arc::new(parsed.config),
        };
        if self.store.known(&id).is_some() {
            self.progress.all_exist();
            match self.add(record.clone()).await {
                // The image was removed after `known`.
                Err(ImageError::Unknown(_)) => self.progress.layers(&manifest.layers),
                other => return other,
            }
        }
        let wanted: Vec<_> = manifest.layers.iter().cloned().zip(parsed.diff_ids.clone()).collect();
        let (store, is_here) = (Arc::clone(&self.store), self.source.is_here());
        blocking("looking for room", move || room::check(&store, &wanted, is_here)).await?;
        self.build(&mut record, &manifest.layers, parsed.diff_ids).await?;
        self.add(record).await
    }

    fn repo_digests(&self, digest: &str) -> Vec<String> {
        let mut digests = Vec::new();
        for name in self.names.iter().filter(|_| self.has_digest) {
            let by_digest = name.repo_digest(digest);
            if !digests.contains(&by_digest) {
                digests.push(by_digest);
            }
        }
        digests
    }

    async fn add(&self, record: Record) -> Result<Listed, ImageError> {
        let store = Arc::clone(&self.store);
        step(span!("write the index"), blocking("writing the index", move || store.add(record))).await
    }

    /// Gets the manifest for linux/amd64, and the digest of the document named by the reference. This
    /// document may be an index.
    async fn manifest(&self) -> Result<(Manifest, String), ImageError> {
        let what = format!("manifest {}", self.shown);
        let (bytes, digest) = self.source.manifest(None).await?;
        match manifest::parse(&what, &bytes, &self.limits)? {
            Document::Image(manifest) => Ok((Manifest { chosen: Chosen::Name, ..manifest }, digest)),
            Document::Index(choices) => Ok((self.choose(choices).await?, digest)),
        }
    }

    /// Gets the first manifest for this node. An index may contain others, and its contents may differ from
    /// its claims.
    async fn choose(&self, choices: Vec<Choice>) -> Result<Manifest, ImageError> {
        let at =
            |choices: Vec<Choice>, depth: usize| choices.into_iter().rev().map(move |choice| (choice, depth));
        // The last one is tried next.
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
            let found = match self.source.manifest(Some(&choice.digest)).await {
                // A saved image may lack the parts for other nodes.
                Err(missing @ ImageError::Missing { .. }) => {
                    first_failure.get_or_insert(missing);
                    continue;
                }
                found => found,
            };
            let (bytes, _) = found?;
            let failure = match manifest::parse(&what, &bytes, &self.limits) {
                Ok(Document::Index(choices)) => {
                    open.extend(at(choices, depth + 1));
                    continue;
                }
                Ok(Document::Image(manifest)) if choice.is_named => {
                    return Ok(Manifest { chosen: Chosen::Index, ..manifest });
                }
                // The config names its platform.
                Ok(Document::Image(manifest)) => match self.config(&manifest).await {
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

    /// Gets the image's config, and checks its platform as required by [`Chosen`].
    async fn config(&self, manifest: &Manifest) -> Result<Parsed, ImageError> {
        let (descriptor, sources) = (&manifest.config, Sources::default());
        let parsed = loop {
            match self.config_once(descriptor, &sources).await {
                Err(error) if error.is_of_bytes() && self.source.has_others(&sources) => {}
                other => break other?,
            }
        };
        match (manifest.chosen, parsed.check_platform(&descriptor.to_string())) {
            (Chosen::Index, _) => {}
            (Chosen::Name, Err(error)) if parsed.platform.is_linux() => {
                tracing::warn!(image = %self.shown, error = error.to_string(), "an image may not run here");
            }
            (Chosen::Name | Chosen::Config, checked) => checked?,
        }
        Ok(parsed)
    }

    async fn config_once(&self, descriptor: &Descriptor, sources: &Sources) -> Result<Parsed, ImageError> {
        let lock = self.store.blob_locks.lock(&descriptor.digest).await;
        let reader = blob::open(&self.store.blobs(), descriptor, &self.source, sources).await?;
        let bytes = fetch::read_small(reader, "reading a config", lock).await?;
        config::parse(&descriptor.to_string(), &bytes)
    }

    /// Creates the image's own file, and fills in the resulting fields of the record.
    async fn build(
        &self,
        record: &mut Record,
        layers: &[Descriptor],
        diff_ids: Vec<String>,
    ) -> Result<(), ImageError> {
        let temporary = self.store.temporary();
        let work = blocking("making a directory", move || {
            let made = pass(Point::ImageWork).and_then(|()| tempfile::tempdir_in(&temporary));
            made.map(DroppedAside::new).map_err(ImageError::disk("creating a directory in", &temporary))
        })
        .await?;
        let built = self.build_in(work.get().path(), record, layers, diff_ids).await;
        let removed = blocking("removing a directory", move || {
            work.drop_here();
            Ok(())
        });
        removed.await.and(built)
    }

    /// Creates the image's own file, with temporary files in `work`.
    async fn build_in(
        &self,
        work: &Path,
        record: &mut Record,
        layers: &[Descriptor],
        diff_ids: Vec<String>,
    ) -> Result<(), ImageError> {
        self.fetch(work, layers, &diff_ids).await?;
        let named = layers.iter().map(Descriptor::to_string).zip(diff_ids).collect();
        let (stack, place) = stacked(&self.store, &record.layers, named).await?;
        self.progress.enter(PullState::Writing);
        let (store, id, path) = (Arc::clone(&self.store), record.id.clone(), work.join("image"));
        let distinct = record.layers.clone();
        let writing = blocking_on_layer("writing an image", move || {
            let _place = place;
            let found: Option<Vec<_>> = distinct.iter().map(|diff_id| store.layer(diff_id)).collect();
            let found = found.ok_or(ImageError::Interrupted("writing an image"))?;
            let blobs: Vec<u64> = found.iter().map(|layer| layer.content_bytes).collect();
            let (file, bytes) = stack.write(&id, &blobs, &path)?;
            let to = store.image_path(&id).ok_or(ImageError::Interrupted("writing an image"))?;
            let verity = files::publish_sealed(Point::ImageRename, file, &path, &to)?;
            let layers = found.iter().map(|layer| layer.content_bytes.saturating_add(layer.tree_bytes));
            Ok((bytes.next_multiple_of(BLOB_ALIGNMENT), layers.fold(bytes, u64::saturating_add), verity))
        });
        (record.file_bytes, record.size_bytes, record.verity) =
            step(span!("write the image"), writing).await?;
        Ok(())
    }

    /// Gets all layers into the store, in any order.
    async fn fetch(&self, work: &Path, layers: &[Descriptor], diff_ids: &[String]) -> Result<(), ImageError> {
        let budget = Arc::new(Budget::new(self.limits.unpacked_bytes));
        let ended = CancellationToken::new();
        let _ended = ended.clone().drop_guard();
        let fetch = |number: usize, descriptor: Descriptor, diff_id: String| {
            let (store, source) = (Arc::clone(&self.store), Arc::clone(&self.source));
            let at = |end: &str| work.join(format!("layer-{number}.{end}"));
            Fetch {
                store,
                source,
                expected: ExpectedLayer { what: descriptor.to_string(), diff_id },
                descriptor,
                places: Places { data: at("data"), tree: at("tree") },
                budget: Arc::clone(&budget),
                progress: self.progress.layer(number),
            }
        };
        let fetches: Vec<_> = layers.iter().cloned().zip(diff_ids.iter().cloned()).enumerate().collect();
        let mut fetched = futures::stream::iter(fetches)
            .map(|(number, (descriptor, diff_id))| {
                let fetch = fetch(number, descriptor, diff_id);
                let bytes = i64::try_from(fetch.descriptor.size).unwrap_or(i64::MAX);
                let span = span!("layer", digest = fetch.descriptor.digest, bytes);
                let task = tokio::spawn(step(span, fetch.get(Sources::new(ended.clone()))));
                let task = AbortOnDropHandle::new(task);
                async move { task.await.unwrap_or(Err(ImageError::Interrupted("unpacking a layer"))) }
            })
            .buffer_unordered(LAYERS_AT_ONCE);
        let all = fetched.by_ref().try_collect::<()>().await;
        // The first failing layer ends all others. Their threads write into the work directory, so it is
        // removed behind them.
        ended.cancel();
        while fetched.next().await.is_some() {}
        all
    }
}

/// Stacks the layers in their order, given by names for errors and diff ids. Blobs are numbered as in
/// `distinct`. The place is to be held as long as the stack.
async fn stacked(
    store: &Arc<Store>,
    distinct: &[String],
    layers: Vec<(String, String)>,
) -> Result<(Stack, Option<OwnedSemaphorePermit>), ImageError> {
    let place = always(span!("wait for a place for a tree"), store.tree_place()).await;
    let (store, distinct) = (Arc::clone(store), distinct.to_vec());
    let stacking = move || {
        let mut stack = Stack::default();
        for (what, diff_id) in layers {
            let blob = distinct.iter().position(|known| *known == diff_id).unwrap_or(distinct.len());
            let found = store.layer(&diff_id).zip(store.tree_path(&diff_id));
            let (layer, path) = found.ok_or(ImageError::Interrupted(STACKING))?;
            let tree = TreeFile::read_stored(&path, layer.tree_verity.as_ref())?;
            stack.add(&what, &tree, blob)?;
        }
        Ok((stack, place))
    };
    step(span!("stack the layers"), blocking_on_layer(STACKING, stacking)).await
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};

    use crate::layer::Unpacked;
    use crate::tree_file::{Sizes, TreeWriter};

    use super::*;

    #[tokio::test]
    async fn trees_are_read_into_memory_only_in_few_pulls_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let store = Arc::new(Store::open(dir.path()).unwrap());
        let at = |name: &str| dir.path().join(name);
        let open =
            |name: &str| File::options().read(true).write(true).create(true).truncate(true).open(at(name));
        let tree = TreeWriter::new(open("tree").unwrap()).unwrap();
        let (tree, tree_bytes) = tree.finish(&Sizes::default()).unwrap();
        let unpacked = Unpacked { data: open("data").unwrap(), tree, content_bytes: 0, tree_bytes };
        let diff_id = format!("sha256:{}", "1".repeat(64));
        let places = Places { data: at("data"), tree: at("tree") };
        store.publish_layer(&diff_id, unpacked, &places).unwrap();
        let layers = vec![("a layer".to_owned(), diff_id.clone())];
        let distinct = [diff_id];
        let mut held = Vec::new();
        for _ in 0..3 {
            held.push(stacked(&store, &distinct, layers.clone()).await.unwrap());
        }
        let mut waiting = std::pin::pin!(stacked(&store, &distinct, layers.clone()));
        tokio::select! {
            biased;
            _ = &mut waiting => panic!("a fourth tree is in memory"),
            () = tokio::task::yield_now() => {}
        }
        held.pop();
        waiting.await.unwrap();
        fs::remove_file(store.tree_path(&distinct[0]).unwrap()).unwrap();
        drop(held);
        assert!(stacked(&store, &distinct, layers).await.is_err(), "a tree is gone");
    }
}
