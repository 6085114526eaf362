//! The interface of this crate: pull, import, list, find, remove, open. Owns the joining of pulls. `pull.rs`
//! has the steps of a pull, `import.rs` those of an import, and `store.rs` the files.
//!
//! A pull runs in its own task, and callers wait for it. If a caller disconnects, the pull continues, so a
//! retrying kubelet finds it further on. Two pulls of one name with the same credentials are one pull. With
//! different credentials they are two, because access must not be shared.

use std::collections::HashMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::{fs, io};

use bytes::Bytes;
use runtime_spans::{Carried, always, span, step};
use tokio::sync::{Semaphore, mpsc};
use tracing::Span;

use crate::blocking::IMPORTS_AT_ONCE;
use crate::config::DeclaredConfig;
use crate::counters;
use crate::error::ImageError;
use crate::import::Import;
use crate::name::Name;
use crate::opened::{self, OpenImage};
use crate::pinned::Pinned;
use crate::progress::{Progress, PullState};
use crate::pull::{self, Pull};
use crate::registry::{Credentials, RegistryConfig};
use crate::running::Running;
use crate::source::Source;
use crate::store::{Lease, Listed, Record, Store};

/// One image on this node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    /// `sha256:` and the digest of the config.
    pub id: String,
    /// `registry/repository:tag`.
    pub repo_tags: Vec<String>,
    /// `registry/repository@sha256:…`, with the digest of the pulled document (a manifest or an index).
    pub repo_digests: Vec<String>,
    /// Bytes of the image's metadata and of its layers; never changes.
    pub size_bytes: u64,
    /// Bytes of the image in a guest's address space: from the start of its first file to the end of its
    /// last.
    pub range_bytes: u64,
    /// Whether the operator wants to keep the image, however full the disk is.
    pub pinned: bool,
    /// The declarations of the image's config, shared by all copies.
    pub config: Arc<DeclaredConfig>,
}

impl Image {
    fn new(listed: Listed, pinned: &Pinned) -> Image {
        let Listed { record, range_bytes } = listed;
        let pinned = pinned.has(record.repo_tags.iter().chain(&record.repo_digests));
        let Record { id, repo_tags, repo_digests, size_bytes, config, .. } = record;
        Image { id, repo_tags, repo_digests, size_bytes, range_bytes, pinned, config }
    }
}

/// Disk space of the image directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Usage {
    /// Bytes on disk: images (including removed ones still in use), layers, and blobs of pulls.
    pub bytes: u64,
    /// Files and directories.
    pub inodes: u64,
    /// The image directory, on the file system filled by images.
    pub mountpoint: PathBuf,
}

type PullKey = (String, Option<Credentials>);

/// The images of a node. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Images {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    store: Arc<Store>,
    registries: RwLock<RegistryConfig>,
    pulls: Mutex<HashMap<PullKey, Running<Image>>>,
    /// Places for imports.
    imports: Arc<Semaphore>,
}

impl Inner {
    fn pulls(&self) -> MutexGuard<'_, HashMap<PullKey, Running<Image>>> {
        self.pulls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn registries(&self) -> RegistryConfig {
        self.registries.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns only the names, because lists are requested very often.
    fn pinned(&self) -> Pinned {
        self.registries.read().unwrap_or_else(PoisonError::into_inner).pinned.clone()
    }
}

/// An entry in the map of running pulls, removed however the pull ends.
struct RunningPull {
    inner: Arc<Inner>,
    key: PullKey,
}

impl Drop for RunningPull {
    fn drop(&mut self) {
        self.inner.pulls().remove(&self.key);
    }
}

async fn run_pull(
    inner: Arc<Inner>,
    name: Name,
    credentials: Option<Credentials>,
    progress: Progress,
) -> Result<Listed, ImageError> {
    let config = inner.registries();
    let limits = config.limits.clone();
    let registry = step(span!("read the hosts"), pull::registry(name.clone(), credentials, config)).await?;
    let (store, shown, names) = (Arc::clone(&inner.store), name.whole(), vec![name.clone()]);
    let source = Arc::new(Source::Registry(registry, name));
    Pull { store, source, shown, names, has_digest: true, limits, progress }.run().await
}

impl Images {
    /// Opens the image directory, creates it if absent, and clears the leftovers of a killed daemon. Blocks
    /// on the disk.
    ///
    /// # Errors
    /// [`ImageError::Disk`], also if the index cannot be read. Nothing is removed then.
    pub fn open(directory: &Path, registries: RegistryConfig) -> Result<Images, ImageError> {
        counters::register();
        let store = Arc::new(Store::open(directory)?);
        let registries = RwLock::new(registries);
        let imports = Arc::new(Semaphore::new(IMPORTS_AT_ONCE));
        Ok(Images { inner: Arc::new(Inner { store, registries, pulls: Mutex::default(), imports }) })
    }

    /// Uses these settings for every pull started from now on.
    pub fn set_registries(&self, registries: RegistryConfig) {
        *self.inner.registries.write().unwrap_or_else(PoisonError::into_inner) = registries;
    }

    /// Pulls an image, or adds a name to it if it is here. Must be called within a Tokio runtime.
    ///
    /// # Errors
    /// Any [`ImageError`]. Its kind shows how a caller can react.
    pub async fn pull(&self, reference: &str, credentials: Option<Credentials>) -> Result<Image, ImageError> {
        let (mut running, waiting) = self.join_or_start(Name::parse(reference)?, credentials);
        always(waiting, running.ended()).await
    }

    /// Starts a pull, or joins the running one, and returns it with its progress. Must be called within a
    /// Tokio runtime.
    ///
    /// # Errors
    /// [`ImageError::Name`].
    pub fn begin_pull(
        &self,
        reference: &str,
        credentials: Option<Credentials>,
    ) -> Result<Running<Image>, ImageError> {
        Ok(self.join_or_start(Name::parse(reference)?, credentials).0)
    }

    /// Starts importing the images of an archive: an OCI image layout in a tar archive, or the output of
    /// `docker save`. The archive arrives through `input` and ends with it; an error in `input` is the
    /// client's. With `name` the archive must have exactly one image, and it gets this name instead of its
    /// own. Must be called within a Tokio runtime.
    ///
    /// # Errors
    /// [`ImageError::Name`].
    pub fn begin_import(
        &self,
        input: mpsc::Receiver<io::Result<Bytes>>,
        name: Option<&str>,
    ) -> Result<Running<Vec<Image>>, ImageError> {
        let name = name.map(Name::of_tag).transpose()?;
        let progress = Progress::new(String::new(), PullState::Waiting);
        let (running, end) = Running::new(progress.watch(), "importing images");
        let inner = Arc::clone(&self.inner);
        tokio::spawn(Carried::here().around(async move {
            let _place = Arc::clone(&inner.imports).acquire_owned().await;
            let (store, limits) = (Arc::clone(&inner.store), inner.registries().limits);
            let result = Import { store, limits, name, progress }.run(input).await;
            let pinned = inner.pinned();
            let images =
                |listed: Vec<Listed>| listed.into_iter().map(|one| Image::new(one, &pinned)).collect();
            end.send_replace(Some(result.map(images)));
        }));
        Ok(running)
    }

    /// Returns the pull, and a span for waiting if another call has started it.
    fn join_or_start(&self, name: Name, credentials: Option<Credentials>) -> (Running<Image>, Span) {
        let inner = &self.inner;
        let key = (name.whole(), credentials);
        let mut pulls = inner.pulls();
        if let Some(running) = pulls.get(&key) {
            return (running.clone(), span!("wait for the same pull"));
        }
        let progress = Progress::new(name.whole(), PullState::Resolving);
        let (running, end) = Running::new(progress.watch(), "pulling an image");
        let pull = run_pull(Arc::clone(inner), name, key.1.clone(), progress);
        pulls.insert(key.clone(), running.clone());
        let (entry, pinning) = (RunningPull { inner: Arc::clone(inner), key }, Arc::clone(inner));
        // The pull belongs to this call, even if its caller disconnects.
        let pulling = async move {
            // Each step has its own time limit. There is none for the whole pull: a large image takes as long
            // as its registry needs.
            let result = pull.await;
            counters::pulled(&result);
            // Removed from the map first: a new caller then starts a new pull instead of getting an old
            // result.
            drop(entry);
            let pinned = pinning.pinned();
            end.send_replace(Some(result.map(|listed| Image::new(listed, &pinned))));
        };
        tokio::spawn(Carried::here().around(pulling));
        (running, Span::none())
    }

    /// Returns all images, by id.
    pub fn list(&self) -> Vec<Image> {
        let pinned = self.inner.pinned();
        self.inner.store.list().into_iter().map(|listed| Image::new(listed, &pinned)).collect()
    }

    /// Returns how many images there are.
    pub fn count(&self) -> usize {
        self.inner.store.count()
    }

    /// Finds the image of this name: a tag (`:latest` if absent), a digest name, an id with or without
    /// `sha256:`, or a unique prefix of an id.
    pub fn find(&self, name: &str) -> Option<Image> {
        self.inner.store.find(name).map(|listed| Image::new(listed, &self.inner.pinned()))
    }

    /// Removes the image of this name with all its names. Succeeds if it is absent. Files in use stay until
    /// their last user is gone. Blocks on the disk.
    ///
    /// # Errors
    /// [`ImageError::Disk`].
    pub fn remove(&self, name: &str) -> Result<(), ImageError> {
        // Also for an absent image: a failed removal may have left layers.
        let found = self.inner.store.find(name);
        self.inner.store.remove(found.as_ref().map_or(name, |found| &found.record.id))
    }

    /// Opens the files of the image of this id for a guest. Blocks on the disk.
    ///
    /// # Errors
    /// [`ImageError::Unknown`] or [`ImageError::Disk`].
    pub fn open_image(&self, id: &str) -> Result<OpenImage, ImageError> {
        opened::open(&self.inner.store, id)
    }

    /// Takes a lease for a VM started by an earlier daemon, even if the image was removed since. Returns
    /// `None` if the image is gone completely.
    pub fn lease_again(&self, id: &str) -> Option<Lease> {
        self.inner.store.lease_again(id)
    }

    /// Declares that all users from an earlier daemon have their leases again. Before this, no removal
    /// deletes a file. Now all unused files are deleted. Blocks on the disk.
    ///
    /// # Errors
    /// [`ImageError::Disk`]: the next removal tries again.
    pub fn users_are_known(&self) -> Result<(), ImageError> {
        self.inner.store.users_are_known()
    }

    /// Declares that the daemon stops while VMs continue. Leases dropped with the daemon then delete nothing.
    pub fn forget_users(&self) {
        self.inner.store.forget_users();
    }

    /// The image directory.
    pub fn directory(&self) -> &Path {
        self.inner.store.directory()
    }

    /// Counts the disk space of the image directory. Blocks on the disk. Files removed meanwhile are not
    /// counted.
    pub fn usage(&self) -> Usage {
        let directory = self.inner.store.directory();
        let mut usage = Usage { bytes: 0, inodes: 0, mountpoint: directory.to_owned() };
        let mut todo = vec![directory.to_owned()];
        while let Some(path) = todo.pop() {
            let Ok(metadata) = fs::symlink_metadata(&path) else { continue };
            usage.inodes += 1;
            usage.bytes += metadata.blocks() * 512;
            if metadata.is_dir()
                && let Ok(entries) = fs::read_dir(&path)
            {
                todo.extend(entries.flatten().map(|entry| entry.path()));
            }
        }
        usage
    }
}
