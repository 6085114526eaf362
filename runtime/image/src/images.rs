//! The interface of this crate: pull, list, find, remove, open. Owns the joining of pulls.
//!
//! A pull belongs to nobody: it runs in its own task, callers wait for it, and a caller that goes away leaves it
//! running, so that a kubelet that asks again finds it further on. Two pulls of one name with the same credentials
//! are one. With other credentials they are two, since being let in is not something to share.

use std::collections::HashMap;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

use crate::config::DeclaredConfig;
use crate::error::ImageError;
use crate::name::Name;
use crate::pull::{self, Pull};
use crate::registry::{Credentials, RegistryConfig};
use crate::store::{Record, Store};

/// For one pull from first to last. A registry that trickles is given up; the next pull resumes.
const PULL_LIMIT: Duration = Duration::from_secs(3600);

/// One image on this node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    /// `sha256:` and the digest of the config.
    pub id: String,
    /// `registry/repository:tag`.
    pub repo_tags: Vec<String>,
    /// `registry/repository@sha256:…`, of what the pulled name meant (an index, if it was one).
    pub repo_digests: Vec<String>,
    /// Bytes of the image's file system; never changes.
    pub size_bytes: u64,
    /// What the image's config declares.
    pub config: DeclaredConfig,
}

impl From<Record> for Image {
    fn from(record: Record) -> Self {
        let Record { id, repo_tags, repo_digests, size_bytes, config, blobs: _ } = record;
        Image { id, repo_tags, repo_digests, size_bytes, config }
    }
}

/// What the image directory takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Usage {
    /// Bytes on disk: images and blobs.
    pub bytes: u64,
    /// Files and directories.
    pub inodes: u64,
    /// The image directory; the file system it is on is the one that fills up.
    pub mountpoint: PathBuf,
}

type Outcome = watch::Receiver<Option<Result<Image, ImageError>>>;
type PullKey = (String, Option<Credentials>);

/// The images of a node. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Images {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    store: Arc<Store>,
    registries: RegistryConfig,
    pulls: Mutex<HashMap<PullKey, Outcome>>,
}

impl Inner {
    fn pulls(&self) -> MutexGuard<'_, HashMap<PullKey, Outcome>> {
        self.pulls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Takes a pull off the list, however it ends.
struct Running {
    inner: Arc<Inner>,
    key: PullKey,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.inner.pulls().remove(&self.key);
    }
}

async fn begin(
    inner: Arc<Inner>,
    name: Name,
    credentials: Option<Credentials>,
) -> Result<Record, ImageError> {
    let registry = pull::registry(name.clone(), credentials, inner.registries.clone()).await?;
    let (store, limits) = (Arc::clone(&inner.store), inner.registries.limits.clone());
    Pull { store, registry, name, limits }.run().await
}

impl Images {
    /// Opens the image directory, making it if need be and clearing what a killed daemon left. Blocks on the disk.
    ///
    /// # Errors
    /// [`ImageError::Disk`], also for an index that cannot be read: nothing is thrown away then.
    pub fn open(directory: &Path, registries: RegistryConfig) -> Result<Images, ImageError> {
        let store = Arc::new(Store::open(directory)?);
        Ok(Images { inner: Arc::new(Inner { store, registries, pulls: Mutex::default() }) })
    }

    /// Pulls an image, or adds a name to it if it is here. Must be called within a Tokio runtime.
    ///
    /// # Errors
    /// Any [`ImageError`]; [`ImageError::Unreachable`], [`ImageError::NotFound`] and [`ImageError::Unauthorized`]
    /// tell apart what the user can do about it.
    pub async fn pull(&self, reference: &str, credentials: Option<Credentials>) -> Result<Image, ImageError> {
        let name = Name::parse(reference)?;
        let mut outcome = self.join_or_start(name, credentials);
        let done = outcome.wait_for(Option::is_some).await;
        match done.as_deref() {
            Ok(Some(result)) => result.clone(),
            _ => Err(ImageError::Interrupted("pulling an image")),
        }
    }

    fn join_or_start(&self, name: Name, credentials: Option<Credentials>) -> Outcome {
        let inner = &self.inner;
        let key = (name.whole(), credentials);
        let mut pulls = inner.pulls();
        if let Some(outcome) = pulls.get(&key) {
            return outcome.clone();
        }
        let pull = begin(Arc::clone(inner), name, key.1.clone());
        let (sender, outcome) = watch::channel(None);
        pulls.insert(key.clone(), outcome.clone());
        let running = Running { inner: Arc::clone(inner), key };
        tokio::spawn(async move {
            let result = tokio::time::timeout(PULL_LIMIT, pull).await.unwrap_or_else(|_| {
                let what = format!("pulling {}", running.key.0);
                Err(ImageError::Deadline { what, seconds: PULL_LIMIT.as_secs() })
            });
            // Off the list first: whoever asks from now on starts anew instead of getting an old answer.
            drop(running);
            sender.send_replace(Some(result.map(Image::from)));
        });
        outcome
    }

    /// All images, by id.
    pub fn list(&self) -> Vec<Image> {
        self.inner.store.list().into_iter().map(Image::from).collect()
    }

    /// The image of this name: a tag (`:latest` if it has none), a digest name, an id with or without `sha256:`, or
    /// an id cut short where that is unique.
    pub fn find(&self, name: &str) -> Option<Image> {
        self.inner.store.find(name).map(Image::from)
    }

    /// Removes the image of this name with all its names; one that is not here is no error. Blocks on the
    /// disk.
    ///
    /// # Errors
    /// [`ImageError::Disk`].
    pub fn remove(&self, name: &str) -> Result<(), ImageError> {
        match self.inner.store.find(name) {
            Some(record) => self.inner.store.remove(&record.id),
            None => Ok(()),
        }
    }

    /// The image's EROFS file, read-only, a multiple of 2 MiB long.
    ///
    /// # Errors
    /// [`ImageError::Unknown`] or [`ImageError::Disk`].
    pub fn open_erofs(&self, image: &Image) -> Result<File, ImageError> {
        let path =
            self.inner.store.image_path(&image.id).ok_or_else(|| ImageError::Unknown(image.id.clone()))?;
        match File::open(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                Err(ImageError::Unknown(image.id.clone()))
            }
            other => other.map_err(ImageError::disk("opening", &path)),
        }
    }

    /// Where images are kept.
    pub fn directory(&self) -> &Path {
        self.inner.store.directory()
    }

    /// What the image directory takes now. Blocks on the disk; files that go away meanwhile are not counted.
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
