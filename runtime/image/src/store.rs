//! The image directory and its index. Owns image files, layers' files, blobs' lifetimes, and their recovery.
//!
//! ```text
//!  tmp ── layers' files renamed to layers/ ──► image file renamed to images/ ──► index written ──► listed
//!  listed ── nobody uses it: image file removed, layers that no image names removed, index written ──► gone
//!     └───── somebody does:  index written ──► removed, and there still ── last lease dropped ──► gone
//! ```
//! The index is written whole and renamed into place before a new image is reported to anyone. An image file or layer
//! that no record names is an orphan, and the next start removes it; a record without its files is dropped, and the image
//! pulled again.
//!
//! Readers never wait for the disk: the lock that they take is held for moments only, and writers wait for each other by
//! another one.
//!
//! A tag names one image: when the tag moves, the image that had it stays, without the tag. Blobs live as long as a pull
//! needs them; those of a failed pull are kept for a day, so that the next pull can resume.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use runtime_fail_points::{Point, pass};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::blob;
use crate::error::ImageError;
use crate::files;
use crate::locks::Locks;
use crate::name::{Name, digest_hex, id_prefix};

mod index;
mod layers;
mod leases;
mod whole;

use index::Found;
pub(crate) use index::{Index, LayerRecord, Record};
pub use leases::Lease;

/// Age up to which blobs without a pull are kept for a pull to resume.
pub(crate) const RESUME_AGE: Duration = Duration::from_secs(24 * 3600);

/// Layers that are fetched and unpacked at once, over all pulls and imports together: so much of them is in memory, however many
/// pulls there are. Five pulls have all the layers under way that one has (`pull.rs`), so that a host that is slow does not stop
/// those of other pulls.
pub(crate) const LAYERS_AT_ONCE_MAX: usize = 16;

#[derive(Debug, Default)]
struct State {
    index: Index,
    /// Number of pulls that need a blob or a layer, by its digest.
    pins: HashMap<String, usize>,
    /// Digests of blobs whose content is elsewhere, and which may be there still.
    used_up: BTreeSet<String>,
    /// Number of users of an image, by its id.
    leases: HashMap<String, usize>,
    /// Whether all users have said so that an earlier daemon left, and what nobody uses may go.
    users_known: bool,
}

/// The image directory.
#[derive(Debug)]
pub(crate) struct Store {
    directory: PathBuf,
    /// Held for moments, never over a call of the file system.
    state: Mutex<State>,
    /// Held by whoever changes the index or removes files, on a thread that may wait for the disk.
    writer: Mutex<()>,
    /// Locks that allow one writer per blob.
    pub(crate) blob_locks: Locks,
    /// Locks that allow one unpacker per layer. The holder of one may wait for a blob's, and never the other way round.
    pub(crate) layer_locks: Locks,
    /// Locks that allow one builder per image.
    pub(crate) image_locks: Locks,
    /// Places for layers that are fetched and unpacked, over all images.
    layer_places: Arc<Semaphore>,
}

/// Keeps blobs and layers from being removed while a pull needs them.
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
    /// Opens the directory, makes what is missing, and clears what a killed daemon left.
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
        store.state().index = index;
        if let Err(error) = store.remove_blobs(old_blobs.into_iter().flatten()) {
            tracing::warn!(%error, "blobs of an earlier version are there still");
        }
        if is_changed && let Err(error) = store.write_index() {
            // A full disk is no reason not to start: the same is found again.
            tracing::warn!(%error, "the index of images is not written");
        }
        store.remove_orphans()?;
        Ok(store)
    }

    /// The directory as it is, of whose images nothing is known yet.
    pub(crate) fn at(directory: &Path) -> Store {
        Store {
            directory: directory.to_owned(),
            state: Mutex::default(),
            writer: Mutex::default(),
            blob_locks: Locks::default(),
            layer_locks: Locks::default(),
            image_locks: Locks::default(),
            layer_places: Arc::new(Semaphore::new(LAYERS_AT_ONCE_MAX)),
        }
    }

    /// Waits for a place for a layer. The first to come is the first to get one.
    pub(crate) async fn layer_place(&self) -> Option<OwnedSemaphorePermit> {
        // Nothing closes it; and then a layer too many is better than one that never comes.
        Arc::clone(&self.layer_places).acquire_owned().await.ok()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Every change is whole once it is made, so that a panic leaves nothing half done.
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

    /// The path of an image's own file; none if the id is no digest, as in an index that somebody edited.
    pub(crate) fn image_path(&self, id: &str) -> Option<PathBuf> {
        digest_hex(id).ok().map(|hex| self.images().join(format!("{hex}.erofs")))
    }

    /// The index on disk, as it is now.
    pub(crate) fn read_index(&self) -> Result<Index, ImageError> {
        Ok(Index::read(&self.index_path())?.index)
    }

    /// Drops images without their files, and layers that no image names. Returns whether there were any.
    fn drop_lost(&self, index: &mut Index) -> bool {
        let found = index.clone();
        index.records.retain(|_, record| self.has_files(&found, record));
        index.removed.retain(|_, record| self.has_files(&found, record));
        let named: BTreeSet<String> = index.named_layers().into_iter().map(str::to_owned).collect();
        index.layers.retain(|diff_id, _| named.contains(diff_id));
        let lost = found.all().count() - index.all().count();
        if lost > 0 {
            tracing::warn!(count = lost, "images whose files are missing or altered were dropped");
        }
        *index != found
    }

    /// Writes what is in memory. The caller is the writer, or alone.
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

    /// The files of all images and layers of an index.
    pub(crate) fn known_files(&self, index: &Index) -> BTreeSet<PathBuf> {
        let images = index.all().filter_map(|record| self.image_path(&record.id));
        let layers =
            index.layers.keys().flat_map(|diff_id| [self.data_path(diff_id), self.tree_path(diff_id)]);
        images.chain(layers.flatten()).collect()
    }

    /// Removes blobs that no pull names and that were not written for `age`.
    fn sweep(&self, age: Duration) -> Result<(), ImageError> {
        let pinned: BTreeSet<String> = self.state().pins.keys().cloned().collect();
        blob::sweep(&self.blobs(), age, |hex| pinned.contains(&format!("sha256:{hex}")))
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

    /// The image of this id, also one that was removed and is there still.
    pub(crate) fn known(&self, id: &str) -> Option<Record> {
        let state = self.state();
        state.index.records.get(id).or_else(|| state.index.removed.get(id)).cloned()
    }

    /// The listed image of this id, and all that is known of its layers.
    pub(crate) fn indexed(&self, id: &str) -> Option<(Index, Record)> {
        let state = self.state();
        let record = state.index.records.get(id)?.clone();
        let layers = state.index.layers.iter().filter(|(diff_id, _)| record.layers.contains(diff_id));
        let layers = layers.map(|(diff_id, layer)| (diff_id.clone(), layer.clone())).collect();
        Some((Index { layers, ..Index::default() }, record))
    }

    /// Finds an image by tag, digest name, id or short id.
    pub(crate) fn find(&self, name: &str) -> Option<Listed> {
        let state = self.state();
        let records = &state.index.records;
        let listed = |record| Listed::new(&state.index, record);
        if let Some(prefix) = id_prefix(name) {
            let mut matching =
                records.values().filter(|record| record.id["sha256:".len()..].starts_with(prefix));
            if let (Some(record), None) = (matching.next(), matching.next()) {
                return Some(listed(record));
            }
        }
        let whole = Name::parse(name).ok()?.whole();
        records
            .values()
            .find(|record| record.repo_tags.contains(&whole) || record.repo_digests.contains(&whole))
            .map(listed)
    }

    /// Adds an image, or names to one that is there. A tag leaves the image that had it.
    ///
    /// # Errors
    /// [`ImageError::Unknown`] if the image's files were removed since.
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
        index.records.insert(id, record);
        index.write(&self.index_path())?;
        self.state().index = index;
        Ok(listed)
    }

    /// Removes an image with all its names. Files that nobody uses go first, since that frees a full disk: where the disk
    /// does not take the index even then, the next start drops the record that has no file. Files that somebody uses stay
    /// until the last lease is dropped.
    ///
    /// # Errors
    /// Layers and blobs that cannot be removed are tried again by the next removal, and by the next start.
    pub(crate) fn remove(&self, id: &str) -> Result<(), ImageError> {
        if self.is_gone(id) {
            return Ok(());
        }
        let _writer = self.writer();
        let is_changed = self.take_away(id)?;
        let layers = self.remove_layers();
        if is_changed && let Err(error) = self.write_index() {
            tracing::warn!(id, %error, "an image is removed, and the index is not written");
        }
        layers.and(self.remove_blobs([])).and(self.sweep(RESUME_AGE))
    }

    /// Whether neither the image is there nor a layer or a blob that nobody needs.
    fn is_gone(&self, id: &str) -> bool {
        let state = self.state();
        !state.index.records.contains_key(id)
            && state.unneeded_layers().is_empty()
            && state.used_up.is_empty()
    }

    /// Removes blobs that are used up and that no pull needs, also those that could not be removed before. A pull names its
    /// blobs before it takes their locks, so that it either is seen here, or finds the blob gone.
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

/// An image of the index, with how much a guest maps of it.
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

/// An image that is known, with new names too. Where its own file was made anew, what is new of it counts.
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
