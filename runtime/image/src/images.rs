//! The interface of this crate: pull, import, list, find, remove, open. Owns the joining of pulls; the steps of one are in
//! `pull.rs`, those of an import in `import.rs`, the files in `store.rs`.
//!
//! A pull runs in a task of its own and callers wait for it. A caller that goes away leaves the pull running, so that
//! a kubelet that asks again finds it further on. Two pulls of one name with the same credentials are one; with other
//! credentials they are two, since access must not be shared.

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
    /// `registry/repository@sha256:…`, with the digest of what the pulled name meant (a manifest or an index).
    pub repo_digests: Vec<String>,
    /// Bytes of the image's metadata and of its layers; never changes.
    pub size_bytes: u64,
    /// Bytes of a guest's address space that the image takes: from its first file to the end of its last.
    pub range_bytes: u64,
    /// Whether the operator wants the image to stay, whatever the disk's room.
    pub pinned: bool,
    /// The declarations of the image's config.
    pub config: DeclaredConfig,
}

impl Image {
    fn new(listed: Listed, pinned: &Pinned) -> Image {
        let Listed { record, range_bytes } = listed;
        let pinned = pinned.has(record.repo_tags.iter().chain(&record.repo_digests));
        let Record { id, repo_tags, repo_digests, size_bytes, config, .. } = record;
        Image { id, repo_tags, repo_digests, size_bytes, range_bytes, pinned, config }
    }
}

/// Disk space that the image directory takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Usage {
    /// Bytes on disk: images, also removed ones that are in use, layers, and blobs of pulls.
    pub bytes: u64,
    /// Files and directories.
    pub inodes: u64,
    /// The image directory, on the file system that images fill up.
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

    /// The names alone: lists are asked for all the time.
    fn pinned(&self) -> Pinned {
        self.registries.read().unwrap_or_else(PoisonError::into_inner).pinned.clone()
    }
}

/// An entry of the list of pulls, removed when the pull ends, however it ends.
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
    /// Opens the image directory, makes it if need be, and clears what a killed daemon left. Blocks on the disk.
    ///
    /// # Errors
    /// [`ImageError::Disk`], also for an index that cannot be read: nothing is removed then.
    pub fn open(directory: &Path, registries: RegistryConfig) -> Result<Images, ImageError> {
        counters::register();
        let store = Arc::new(Store::open(directory)?);
        let registries = RwLock::new(registries);
        let imports = Arc::new(Semaphore::new(IMPORTS_AT_ONCE));
        Ok(Images { inner: Arc::new(Inner { store, registries, pulls: Mutex::default(), imports }) })
    }

    /// Uses these settings for every pull that begins from now on.
    pub fn set_registries(&self, registries: RegistryConfig) {
        *self.inner.registries.write().unwrap_or_else(PoisonError::into_inner) = registries;
    }

    /// Pulls an image, or adds a name to it if it is here. Must be called within a Tokio runtime.
    ///
    /// # Errors
    /// Any [`ImageError`]; its kind says what can be done about it.
    pub async fn pull(&self, reference: &str, credentials: Option<Credentials>) -> Result<Image, ImageError> {
        let (mut running, waiting) = self.join_or_start(Name::parse(reference)?, credentials);
        always(waiting, running.ended()).await
    }

    /// Begins a pull, or joins the one that is under way, and returns it with its progress. Must be called within a Tokio runtime.
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

    /// Begins to import the images of an archive: of an OCI image layout in a tar archive, or of `docker save`. The archive comes
    /// through `input`, whose end is the archive's; an error there is the client's. With `name` the archive must have one image,
    /// which gets that name instead of its own. Must be called within a Tokio runtime.
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

    /// This pull, and the span of the wait where the pull is another call's.
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
        // The pull belongs to this call, also where its caller goes away.
        let pulling = async move {
            // Each step has a bound of its own: how long a large image takes is for its registry to say.
            let result = pull.await;
            counters::pulled(result.is_ok());
            // Off the list first: a caller that comes now starts a new pull instead of getting an old result.
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

    /// Finds the image of this name: a tag (`:latest` if it has none), a digest name, an id with or without `sha256:`, or
    /// an id cut short where that is unique.
    pub fn find(&self, name: &str) -> Option<Image> {
        self.inner.store.find(name).map(|listed| Image::new(listed, &self.inner.pinned()))
    }

    /// Removes the image of this name with all its names; an absent one is no error. Files that somebody uses stay until
    /// nobody does. Blocks on the disk.
    ///
    /// # Errors
    /// [`ImageError::Disk`].
    pub fn remove(&self, name: &str) -> Result<(), ImageError> {
        // Also for an image that is gone: a removal that failed may have left layers.
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

    /// Takes a lease for a VM that an earlier daemon gave the image of this id to, also where the image was removed since;
    /// none where nothing is left of it.
    pub fn lease_again(&self, id: &str) -> Option<Lease> {
        self.inner.store.lease_again(id)
    }

    /// Says that whoever uses an image since an earlier daemon has its lease. Before that, no removal takes a file away; now
    /// all go that nobody uses. Blocks on the disk.
    ///
    /// # Errors
    /// [`ImageError::Disk`]: the next removal tries again.
    pub fn users_are_known(&self) -> Result<(), ImageError> {
        self.inner.store.users_are_known()
    }

    /// Says that the daemon ends while VMs go on: leases that are dropped with it let nothing go.
    pub fn forget_users(&self) {
        self.inner.store.forget_users();
    }

    /// The image directory.
    pub fn directory(&self) -> &Path {
        self.inner.store.directory()
    }

    /// Counts the disk space of the image directory. Blocks on the disk; files that go away meanwhile are not counted.
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
