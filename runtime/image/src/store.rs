//! The image directory and its index. Owns `images.json`, image files, blobs' lifetimes, and their recovery.
//!
//! ```text
//!  (blobs, tmp) ── file renamed to images/ ──► orphan ── index written ──► listed ── file removed, then record ──► gone
//! ```
//! The index is written whole and renamed into place before a new image is reported to anyone. An image file without a
//! record is an orphan, and the next start removes it; a record without its file is dropped, and the image pulled again.
//!
//! Readers never wait for the disk: the lock that they take is held for moments only, and writers wait for each other by
//! another one.
//!
//! A tag names one image: when the tag moves, the image that had it stays, without the tag. Blobs live as long as an
//! image names them; blobs without an image (of a failed pull) are kept for a day, so that the next pull can resume.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use runtime_fail_points::{Point, pass};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

use crate::blob;
use crate::config::DeclaredConfig;
use crate::error::ImageError;
use crate::files;
use crate::locks::Locks;
use crate::name::{Name, digest_hex, id_prefix};

/// Age up to which blobs without an image are kept for a pull to resume.
pub(crate) const RESUME_AGE: Duration = Duration::from_secs(24 * 3600);

/// Version of the index's form. An index of another version is refused.
const VERSION: u32 = 1;

/// One image in the index.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Record {
    /// `sha256:` and the config's digest.
    pub(crate) id: String,
    pub(crate) repo_tags: Vec<String>,
    pub(crate) repo_digests: Vec<String>,
    pub(crate) size_bytes: u64,
    /// Digests of config and layers.
    pub(crate) blobs: Vec<String>,
    #[serde(deserialize_with = "without_nulls")]
    pub(crate) config: DeclaredConfig,
}

/// Indexes of earlier versions have `null` where the image names no stop signal.
fn without_nulls<'de, D: Deserializer<'de>>(from: D) -> Result<DeclaredConfig, D::Error> {
    let mut fields = Map::deserialize(from)?;
    fields.retain(|_, value: &mut Value| !value.is_null());
    serde_json::from_value(fields.into()).map_err(D::Error::custom)
}

#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct IndexFile {
    version: u32,
    images: Vec<Record>,
    /// Digests of blobs that were those of removed images, and may be there still.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    removed: BTreeSet<String>,
}

#[derive(Debug, Default)]
struct State {
    /// Images, by id.
    records: BTreeMap<String, Record>,
    /// Blobs of removed images that are there still. Other blobs without an image are those of a pull that was cut short.
    removed: BTreeSet<String>,
    /// Number of pulls that need a blob, by its digest.
    pins: HashMap<String, usize>,
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
    /// Locks that allow one builder per image.
    pub(crate) image_locks: Locks,
}

/// Keeps blobs from being removed while a pull needs them.
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
        for path in [&temporary, &store.blobs(), &store.images()] {
            fs::create_dir_all(path).map_err(ImageError::disk("creating", path))?;
        }
        let IndexFile { images, mut removed, .. } = store.read_index_file()?;
        let has_file = |record: &Record| store.image_path(&record.id).is_some_and(|path| path.is_file());
        let (kept, lost): (Vec<_>, Vec<_>) = images.into_iter().partition(has_file);
        removed.extend(lost.iter().flat_map(|record| record.blobs.clone()));
        let kept = kept.into_iter().map(|record| (record.id.clone(), record)).collect();
        if !lost.is_empty() {
            tracing::warn!(count = lost.len(), "images without their file were dropped");
            store.write_index(&kept, &removed)?;
        }
        *store.state() = State { records: kept, removed, ..State::default() };
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
            image_locks: Locks::default(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Every change is made on a copy and swapped in, so that a panic leaves nothing half done.
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

    /// The path of an image's file; none if the id is no digest, as in an index that somebody edited.
    pub(crate) fn image_path(&self, id: &str) -> Option<PathBuf> {
        digest_hex(id).ok().map(|hex| self.images().join(format!("{hex}.erofs")))
    }

    pub(crate) fn read_index(&self) -> Result<Vec<Record>, ImageError> {
        Ok(self.read_index_file()?.images)
    }

    fn read_index_file(&self) -> Result<IndexFile, ImageError> {
        let path = self.index_path();
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(IndexFile::default()),
            Err(error) => return Err(ImageError::disk("reading", &path)(error)),
        };
        let invalid = |reason: String| {
            ImageError::disk("reading", &path)(std::io::Error::new(std::io::ErrorKind::InvalidData, reason))
        };
        let index: IndexFile = serde_json::from_slice(&bytes).map_err(|error| invalid(error.to_string()))?;
        if index.version != VERSION {
            return Err(invalid(format!("its version is {}, not {VERSION}", index.version)));
        }
        Ok(index)
    }

    fn index_path(&self) -> PathBuf {
        self.directory.join("images.json")
    }

    fn write_index(
        &self,
        records: &BTreeMap<String, Record>,
        removed: &BTreeSet<String>,
    ) -> Result<(), ImageError> {
        let images = records.values().cloned().collect();
        let index = IndexFile { version: VERSION, images, removed: removed.clone() };
        let bytes = serde_json::to_vec_pretty(&index).expect("strings and numbers always serialise");
        files::replace(&self.index_path(), &bytes)
    }

    fn remove_orphans(&self) -> Result<(), ImageError> {
        let images = self.images();
        for entry in fs::read_dir(&images).map_err(ImageError::disk("listing", &images))? {
            let path = entry.map_err(ImageError::disk("listing", &images))?.path();
            let known = self.state().records.keys().any(|id| self.image_path(id).as_ref() == Some(&path));
            if !known {
                files::remove(&path)?;
            }
        }
        if let Err(error) = self.remove_blobs() {
            tracing::warn!(%error, "blobs of a removed image are there still");
        }
        self.sweep(RESUME_AGE)
    }

    /// Removes blobs that no image or pull names and that were not written for `age`.
    fn sweep(&self, age: Duration) -> Result<(), ImageError> {
        let named = self.named_blobs();
        blob::sweep(&self.blobs(), age, |hex| named.contains(&format!("sha256:{hex}")))
    }

    /// Digests of the blobs that an image or a pull needs.
    fn named_blobs(&self) -> std::collections::HashSet<String> {
        let state = self.state();
        let by_images = state.records.values().flat_map(|record| &record.blobs);
        by_images.chain(state.pins.keys()).cloned().collect()
    }

    pub(crate) fn pin(self: &Arc<Self>, digests: Vec<String>) -> Pins {
        let mut state = self.state();
        for digest in &digests {
            *state.pins.entry(digest.clone()).or_default() += 1;
        }
        drop(state);
        Pins { store: Arc::clone(self), digests }
    }

    pub(crate) fn list(&self) -> Vec<Record> {
        self.state().records.values().cloned().collect()
    }

    pub(crate) fn get(&self, id: &str) -> Option<Record> {
        self.state().records.get(id).cloned()
    }

    /// Finds an image by tag, digest name, id or short id.
    pub(crate) fn find(&self, name: &str) -> Option<Record> {
        let state = self.state();
        if let Some(prefix) = id_prefix(name) {
            let mut matching =
                state.records.values().filter(|record| record.id["sha256:".len()..].starts_with(prefix));
            if let (Some(record), None) = (matching.next(), matching.next()) {
                return Some(record.clone());
            }
        }
        let whole = Name::parse(name).ok()?.whole();
        state
            .records
            .values()
            .find(|record| record.repo_tags.contains(&whole) || record.repo_digests.contains(&whole))
            .cloned()
    }

    /// Adds an image, or names to one that is there. A tag leaves the image that had it.
    ///
    /// # Errors
    /// [`ImageError::Unknown`] if the image's file was removed since.
    pub(crate) fn add(&self, new: Record) -> Result<Record, ImageError> {
        let _writer = self.writer();
        if !self.image_path(&new.id).is_some_and(|path| path.is_file()) {
            return Err(ImageError::Unknown(new.id));
        }
        let mut records = self.state().records.clone();
        for other in records.values_mut().filter(|other| other.id != new.id) {
            other.repo_tags.retain(|tag| !new.repo_tags.contains(tag));
        }
        let id = new.id.clone();
        let record = match records.remove(&id) {
            None => new,
            Some(mut old) => {
                merge(&mut old.repo_tags, new.repo_tags);
                merge(&mut old.repo_digests, new.repo_digests);
                merge(&mut old.blobs, new.blobs);
                old
            }
        };
        let mut removed = self.state().removed.clone();
        removed.retain(|digest| !record.blobs.contains(digest));
        records.insert(id, record.clone());
        self.write_index(&records, &removed)?;
        let mut state = self.state();
        (state.records, state.removed) = (records, removed);
        Ok(record)
    }

    /// Removes an image with all its names. The file goes first, since that frees a full disk: where the disk does not
    /// take the index even then, the next start drops the record that has no file.
    ///
    /// # Errors
    /// Blobs that cannot be removed are tried again by the next removal, and by the next start.
    pub(crate) fn remove(&self, id: &str) -> Result<(), ImageError> {
        if self.is_gone(id) {
            return Ok(());
        }
        let _writer = self.writer();
        let mut records = self.state().records.clone();
        if let Some(record) = records.remove(id) {
            if let Some(path) = self.image_path(id) {
                files::remove(&path)?;
            }
            let mut removed = self.state().removed.clone();
            removed.extend(record.blobs);
            if let Err(error) = self.write_index(&records, &removed) {
                tracing::warn!(id, %error, "an image is removed, and the index is not written");
            }
            let mut state = self.state();
            (state.records, state.removed) = (records, removed);
        }
        self.remove_blobs()?;
        self.sweep(RESUME_AGE)
    }

    /// Whether neither the image is there nor a blob of any removed image.
    fn is_gone(&self, id: &str) -> bool {
        let state = self.state();
        !state.records.contains_key(id) && state.removed.is_empty()
    }

    /// Removes what is left of removed images.
    fn remove_blobs(&self) -> Result<(), ImageError> {
        let removed = self.state().removed.clone();
        for digest in removed {
            self.remove_unused(&digest)?;
            self.state().removed.remove(&digest);
        }
        Ok(())
    }

    /// Removes a blob that no image and no pull needs. A pull names its blobs before it takes their locks, so that it either
    /// is seen here, or finds the blob gone.
    fn remove_unused(&self, digest: &str) -> Result<(), ImageError> {
        let (Ok(hex), Some(_lock)) = (digest_hex(digest), self.blob_locks.try_lock(digest)) else {
            return Ok(());
        };
        let needed = {
            let state = self.state();
            let by_image = |record: &Record| record.blobs.iter().any(|blob| blob == digest);
            state.pins.contains_key(digest) || state.records.values().any(by_image)
        };
        if needed { Ok(()) } else { files::remove(&self.blobs().join(hex)) }
    }

    /// Puts a finished file in its place.
    pub(crate) fn publish(&self, id: &str, file: &File, from: &Path) -> Result<(), ImageError> {
        let to = self.image_path(id).ok_or_else(|| ImageError::Unknown(id.to_owned()))?;
        files::publish(file, from, &to)
    }
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
