//! The image directory and its index. Owns image files, layers' files, blobs' lifetimes, and their recovery.
//!
//! ```text
//!  tmp ── layers' files renamed to layers/ ──► image file renamed to images/ ──► index written ──► listed
//!  listed ── not in use: image file removed, layers without an image removed, index written ──► gone
//!     └───── in use:     index written ──► removed, but still there ── last lease dropped ──► gone
//! ```
//! The index is written as a whole and renamed into place before a new image is reported. An image file or
//! layer without a record is an orphan, and the next start removes it. A record without its files is dropped,
//! and the image is pulled again.
//!
//! A layer has a record from its publication on. Until an image has it, it is unfinished. A start keeps it
//! for a day, so the next pull finds it. A removal makes room, and removes unfinished layers without a pull.
//!
//! Readers never wait for the disk: their lock is held only for moments. Writers wait for each other with a
//! second lock.
//!
//! A tag names one image. When the tag moves, the old image stays without the tag. Blobs live as long as a
//! pull needs them. Those of a failed pull are kept for a day, so the next pull can resume.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use runtime_fail_points::{Point, pass};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::blob;
use crate::digest::{self, digest_hex};
use crate::error::ImageError;
use crate::files;
use crate::locks::Locks;

mod index;
mod layers;
mod leases;
mod named;
mod whole;

use index::Found;
pub(crate) use index::{Index, LayerRecord, Record};
pub use leases::Lease;

/// Maximum age of blobs kept without a pull, for a later pull to resume.
pub(crate) const RESUME_AGE: Duration = Duration::from_secs(24 * 3600);

/// Trees of layers and images in memory at once, over all pulls and imports. An image with millions of files
/// takes some hundred MiB, and no network is waited for meanwhile.
const TREES_AT_ONCE_MAX: usize = 3;

/// Layers fetched and unpacked at once, over all pulls and imports. This bounds the memory they use, however
/// many pulls there are. It is enough for five pulls at their own limit (`pull.rs`), so a slow host does not
/// stop other pulls.
pub(crate) const LAYERS_AT_ONCE_MAX: usize = 16;

#[derive(Debug, Default)]
struct State {
    index: Index,
    /// Number of pulls needing a blob or a layer, by its digest.
    pins: HashMap<String, usize>,
    /// Digests of blobs already stored elsewhere. Their files may still exist.
    used_up: BTreeSet<String>,
    /// Number of users of an image, by its id.
    leases: HashMap<String, usize>,
    /// True once all users from an earlier daemon have their leases, so unused files may be deleted.
    users_known: bool,
}

/// The image directory.
#[derive(Debug)]
pub(crate) struct Store {
    directory: PathBuf,
    /// Held for moments, never over a call of the file system.
    state: Mutex<State>,
    /// Held while the index is changed or files are removed, on a thread allowed to block on the disk.
    writer: Mutex<()>,
    /// Locks: one writer per blob.
    pub(crate) blob_locks: Locks,
    /// Locks: one unpacker per layer. Their holder may wait for a blob's lock, but never the other way round.
    pub(crate) layer_locks: Locks,
    /// Locks: one builder per image.
    pub(crate) image_locks: Locks,
    /// Slots for layers being fetched and unpacked, over all images.
    layer_places: Arc<Semaphore>,
    /// Slots for trees in memory, over all images. A holder waits for nothing else.
    tree_places: Arc<Semaphore>,
}

/// Prevents the removal of blobs and layers while a pull needs them.
#[derive(Debug)]
pub(crate) struct Pins {
    store: Arc<Store>,
    digests: Vec<String>,
}

impl Drop for Pins {
    fn drop(&mut self) {
        let mut state = self.store.state();
        for digest in &self.digests {
            match state.pins.get_mut(digest) {
                Some(count) if *count > 1 => *count -= 1,
                _ => drop(state.pins.remove(digest)),
            }
        }
    }
}

impl Store {
    /// Opens the directory, creates missing parts, and clears the leftovers of a killed daemon.
    pub(crate) fn open(directory: &Path) -> Result<Store, ImageError> {
        let store = Store::at(directory);
        let temporary = store.temporary();
        pass(Point::ImageDirectories).map_err(ImageError::disk("creating", &temporary))?;
        if temporary.exists() {
            fs::remove_dir_all(&temporary).map_err(ImageError::disk("clearing", &temporary))?;
        }
        for path in [&temporary, &store.blobs(), &store.images(), &store.layers()] {
            fs::create_dir_all(path).map_err(ImageError::disk("creating", path))?;
        }
        let Found { mut index, old_blobs } = Index::read(&store.index_path())?;
        let is_changed = store.drop_lost(&mut index) || old_blobs.is_some();
        let used_up = old_blobs.into_iter().flatten().chain(store.left_configs(&index)).collect::<Vec<_>>();
        store.state().index = index;
        if let Err(error) = store.remove_blobs(used_up) {
            tracing::warn!(%error, "blobs of complete images are left");
        }
        if is_changed && let Err(error) = store.write_index() {
            // A full disk must not prevent a start: the next start finds the same again.
            tracing::warn!(%error, "the index of images is not written");
        }
        store.remove_orphans()?;
        Ok(store)
    }

    /// Returns a store for the directory, without reading any image.
    pub(crate) fn at(directory: &Path) -> Store {
        Store {
            directory: directory.to_owned(),
            state: Mutex::default(),
            writer: Mutex::default(),
            blob_locks: Locks::default(),
            layer_locks: Locks::default(),
            image_locks: Locks::default(),
            layer_places: Arc::new(Semaphore::new(LAYERS_AT_ONCE_MAX)),
            tree_places: Arc::new(Semaphore::new(TREES_AT_ONCE_MAX)),
        }
    }

    /// Waits for a layer slot. The first caller gets the first free one.
    pub(crate) async fn layer_place(&self) -> Option<OwnedSemaphorePermit> {
        // The semaphore is never closed. If it were, one layer too many would be better than none.
        Arc::clone(&self.layer_places).acquire_owned().await.ok()
    }

    /// Waits for a slot for trees.
    pub(crate) async fn tree_place(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.tree_places).acquire_owned().await.ok()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Every change is complete when made, so a panic leaves nothing half done.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn writer(&self) -> MutexGuard<'_, ()> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    pub(crate) fn blobs(&self) -> PathBuf {
        self.directory.join("blobs/sha256")
    }

    pub(crate) fn temporary(&self) -> PathBuf {
        self.directory.join("tmp")
    }

    pub(crate) fn images(&self) -> PathBuf {
        self.directory.join("images")
    }

    pub(crate) fn layers(&self) -> PathBuf {
        self.directory.join("layers")
    }

    fn index_path(&self) -> PathBuf {
        self.directory.join("images.json")
    }

    /// Returns the path of an image's own file. `None` if the id is not a digest, as in an edited index.
    pub(crate) fn image_path(&self, id: &str) -> Option<PathBuf> {
        digest_hex(id).ok().map(|hex| self.images().join(format!("{hex}.erofs")))
    }

    /// Reads the index from disk.
    pub(crate) fn read_index(&self) -> Result<Index, ImageError> {
        Ok(Index::read(&self.index_path())?.index)
    }

    /// Drops images without their files, and layers without an image unless a pull may go on with them.
    /// Returns true if there were any.
    fn drop_lost(&self, index: &mut Index) -> bool {
        let found = index.clone();
        index.records.retain(|_, record| self.has_files(&found, record));
        index.removed.retain(|_, record| self.has_files(&found, record));
        let named: BTreeSet<String> = index.named_layers().into_iter().map(str::to_owned).collect();
        index.unfinished.retain(|diff_id| self.is_resumable(&found, diff_id));
        index.layers.retain(|diff_id, _| named.contains(diff_id) || index.unfinished.contains(diff_id));
        let lost = found.all().count() - index.all().count();
        if lost > 0 {
            tracing::warn!(count = lost, "images with missing or altered files were dropped");
        }
        *index != found
    }

    /// Writes the in-memory index. The caller is the writer, or alone.
    fn write_index(&self) -> Result<(), ImageError> {
        let index = self.state().index.clone();
        index.write(&self.index_path())
    }

    fn remove_orphans(&self) -> Result<(), ImageError> {
        let known = self.known_files(&self.state().index);
        for directory in [self.images(), self.layers()] {
            for entry in fs::read_dir(&directory).map_err(ImageError::disk("listing", &directory))? {
                let path = entry.map_err(ImageError::disk("listing", &directory))?.path();
                if !known.contains(&path) {
                    files::remove(&path)?;
                }
            }
        }
        self.sweep(RESUME_AGE)
    }

    /// Returns the files of all images and layers of an index.
    pub(crate) fn known_files(&self, index: &Index) -> BTreeSet<PathBuf> {
        let images = index.all().filter_map(|record| self.image_path(&record.id));
        let layers =
            index.layers.keys().flat_map(|diff_id| [self.data_path(diff_id), self.tree_path(diff_id)]);
        images.chain(layers.flatten()).collect()
    }

    /// Returns the config blobs of complete images. A kill after the index is written leaves them, and no
    /// pull of an unchanged tag looks at blobs.
    fn left_configs(&self, index: &Index) -> Vec<String> {
        let is_left = |id: &&String| digest_hex(id).is_ok_and(|hex| self.blobs().join(hex).exists());
        index.all().map(|record| &record.id).filter(is_left).cloned().collect()
    }

    /// Removes blobs if no pull needs them and they were not written for `age`.
    fn sweep(&self, age: Duration) -> Result<(), ImageError> {
        let pinned: BTreeSet<String> = self.state().pins.keys().cloned().collect();
        blob::sweep(&self.blobs(), age, |hex| {
            digest::of_hex(hex).is_some_and(|digest| pinned.contains(&digest))
        })
    }

    pub(crate) fn pin(self: &Arc<Self>, digests: Vec<String>) -> Pins {
        let mut state = self.state();
        for digest in &digests {
            *state.pins.entry(digest.clone()).or_default() += 1;
        }
        drop(state);
        Pins { store: Arc::clone(self), digests }
    }

    pub(crate) fn list(&self) -> Vec<Listed> {
        let state = self.state();
        state.index.records.values().map(|record| Listed::new(&state.index, record)).collect()
    }

    pub(crate) fn count(&self) -> usize {
        self.state().index.records.len()
    }

    /// Returns the image of this id, also a removed one with existing files.
    pub(crate) fn known(&self, id: &str) -> Option<Record> {
        let state = self.state();
        state.index.records.get(id).or_else(|| state.index.removed.get(id)).cloned()
    }

    /// Returns the listed image of this id, with the records of its layers.
    pub(crate) fn indexed(&self, id: &str) -> Option<(Index, Record)> {
        let state = self.state();
        let record = state.index.records.get(id)?.clone();
        let layers = state.index.layers.iter().filter(|(diff_id, _)| record.layers.contains(diff_id));
        let layers = layers.map(|(diff_id, layer)| (diff_id.clone(), layer.clone())).collect();
        Some((Index { layers, ..Index::default() }, record))
    }

    /// Adds an image, or names to an existing one. A tag is taken from its previous image.
    ///
    /// # Errors
    /// [`ImageError::Unknown`] if the image's files were removed meanwhile.
    pub(crate) fn add(&self, new: Record) -> Result<Listed, ImageError> {
        let _writer = self.writer();
        let mut index = self.state().index.clone();
        let id = new.id.clone();
        let known = index.records.remove(&id).or_else(|| index.removed.remove(&id));
        let record = match known {
            None => new,
            Some(old) => with_names_of(old, new),
        };
        if !self.has_files(&index, &record) {
            return Err(ImageError::Unknown(id));
        }
        for other in index.records.values_mut() {
            other.repo_tags.retain(|tag| !record.repo_tags.contains(tag));
        }
        let listed = Listed::new(&index, &record);
        index.unfinished.retain(|diff_id| !record.layers.contains(diff_id));
        index.records.insert(id, record);
        index.write(&self.index_path())?;
        self.state().index = index;
        Ok(listed)
    }

    /// Removes an image with all its names. Unused files are deleted first, because this frees a full disk.
    /// If writing the index still fails, the next start drops the record without a file. Files in use stay
    /// until the last lease is dropped.
    ///
    /// # Errors
    /// Layers and blobs that could not be removed. The next removal and the next start try again.
    pub(crate) fn remove(&self, id: &str) -> Result<(), ImageError> {
        if self.is_gone(id) {
            return Ok(());
        }
        let _writer = self.writer();
        self.state().give_up_unfinished();
        let is_changed = self.take_away(id)?;
        let layers = self.remove_layers();
        if is_changed && let Err(error) = self.write_index() {
            tracing::warn!(id, %error, "an image is removed, and the index is not written");
        }
        layers.and(self.remove_blobs([])).and(self.sweep(RESUME_AGE))
    }

    /// Returns true if the image is gone, and there are no unneeded layers or blobs.
    fn is_gone(&self, id: &str) -> bool {
        let state = self.state();
        !state.index.records.contains_key(id) && state.idle_layers().is_empty() && state.used_up.is_empty()
    }

    /// Removes used-up blobs not needed by any pull, including those of earlier failed removals. A pull pins
    /// its blobs before it takes their locks. So either the pin is seen here, or the pull finds the blob
    /// gone.
    pub(crate) fn remove_blobs(&self, digests: impl IntoIterator<Item = String>) -> Result<(), ImageError> {
        let used_up = {
            let mut state = self.state();
            state.used_up.extend(digests);
            state.used_up.clone()
        };
        let mut outcome = Ok(());
        for digest in used_up {
            let Some(_lock) = self.blob_locks.try_lock(&digest) else { continue };
            let is_needed = self.state().pins.contains_key(&digest);
            let removed = match digest_hex(&digest) {
                Ok(hex) if !is_needed => files::remove(&self.blobs().join(hex))
                    .and_then(|()| files::remove(&self.blobs().join(format!("{hex}.partial")))),
                _ => Ok(()),
            };
            match removed {
                Ok(()) => drop(self.state().used_up.remove(&digest)),
                Err(error) => outcome = outcome.and(Err(error)),
            }
        }
        outcome
    }
}

/// An image of the index, with its mapped size in a guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Listed {
    pub(crate) record: Record,
    /// Bytes from the image's first file to the end of its last.
    pub(crate) range_bytes: u64,
}

impl Listed {
    fn new(index: &Index, record: &Record) -> Listed {
        let layers = index.layer_bytes(record).unwrap_or_default();
        let (_, range_bytes) = runtime_erofs::place_blobs(record.file_bytes, &layers);
        Listed { record: record.clone(), range_bytes }
    }
}

/// Adds the new names to a known image. If its own file was rebuilt, the new record's other fields count.
fn with_names_of(mut old: Record, new: Record) -> Record {
    let (repo_tags, repo_digests) = (new.repo_tags.clone(), new.repo_digests.clone());
    if new.file_bytes > 0 {
        old = Record { repo_tags: old.repo_tags, repo_digests: old.repo_digests, ..new };
    }
    merge(&mut old.repo_tags, repo_tags);
    merge(&mut old.repo_digests, repo_digests);
    old
}

fn merge(into: &mut Vec<String>, from: Vec<String>) {
    for name in from {
        if !into.contains(&name) {
            into.push(name);
        }
    }
}

#[cfg(test)]
mod tests;
