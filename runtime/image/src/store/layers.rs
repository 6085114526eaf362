//! Layers in the store: two files each, shared by all images with the layer. Owns their places, their
//! creation and their removal; never looks into them.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};

use runtime_erofs::BLOB_ALIGNMENT;
use runtime_fail_points::Point;

use super::{Index, LayerRecord, RESUME_AGE, State, Store};
use crate::digest::digest_hex;
use crate::error::ImageError;
use crate::files;
use crate::layer::{Places, Unpacked};
use crate::verity::{self, VerityDigest};

/// Bytes compared at a time.
const COMPARE_BYTES: usize = 256 * 1024;

impl LayerRecord {
    /// Bytes of the data file.
    pub(crate) fn file_bytes(&self) -> u64 {
        self.content_bytes.checked_next_multiple_of(BLOB_ALIGNMENT).unwrap_or(u64::MAX)
    }
}

impl State {
    /// Returns the layers not referenced by any image and not needed by any running pull.
    pub(super) fn idle_layers(&self) -> Vec<String> {
        let named: BTreeSet<&str> = self.index.named_layers();
        let is_needed =
            |diff_id: &&String| named.contains(diff_id.as_str()) || self.pins.contains_key(*diff_id);
        self.index.layers.keys().filter(|diff_id| !is_needed(diff_id)).cloned().collect()
    }

    /// Returns the layers not needed by any pull to come either.
    fn unneeded_layers(&self) -> Vec<String> {
        let mut layers = self.idle_layers();
        layers.retain(|diff_id| !self.index.unfinished.contains(diff_id));
        layers
    }

    /// From now on, layers of failed pulls are unneeded.
    pub(super) fn give_up_unfinished(&mut self) {
        let State { index, pins, .. } = self;
        index.unfinished.retain(|diff_id| pins.contains_key(diff_id));
    }
}

impl Store {
    /// Returns the path of a layer's contents. `None` if the diff id is not a digest.
    pub(crate) fn data_path(&self, diff_id: &str) -> Option<PathBuf> {
        digest_hex(diff_id).ok().map(|hex| self.layers().join(format!("{hex}.data")))
    }

    /// Returns the path of a layer's tree. `None` if the diff id is not a digest.
    pub(crate) fn tree_path(&self, diff_id: &str) -> Option<PathBuf> {
        digest_hex(diff_id).ok().map(|hex| self.layers().join(format!("{hex}.tree")))
    }

    /// Returns the layer with this diff id, if it is here.
    pub(crate) fn layer(&self, diff_id: &str) -> Option<LayerRecord> {
        self.state().index.layers.get(diff_id).cloned()
    }

    /// Returns the layer with this diff id, if it is here with its contents. If they are damaged and no image
    /// has the layer, it counts as absent, and can be published again. Blocks on the disk.
    ///
    /// # Errors
    /// [`ImageError::Disk`] if they are damaged and an image has the layer.
    pub(crate) fn layer_with_data(&self, diff_id: &str) -> Result<Option<LayerRecord>, ImageError> {
        let Some(layer) = self.layer(diff_id) else { return Ok(None) };
        if self.has_data(diff_id, &layer) {
            return Ok(Some(layer));
        }
        match self.data_path(diff_id) {
            Some(data) if self.is_named(diff_id) => Err(unlike_stored(&data)),
            _ => Ok(None),
        }
    }

    /// Returns true if a pull may go on with this layer: it is complete, and not too old.
    pub(super) fn is_resumable(&self, index: &Index, diff_id: &str) -> bool {
        let Some(layer) = index.layers.get(diff_id) else { return false };
        let touched = self.tree_path(diff_id).and_then(|tree| fs::metadata(tree).ok()?.modified().ok());
        let is_old = touched.is_none_or(|time| time.elapsed().is_ok_and(|age| age >= RESUME_AGE));
        !is_old && self.has_tree(diff_id, layer) && self.has_data(diff_id, layer)
    }

    fn is_named(&self, diff_id: &str) -> bool {
        self.state().index.named_layers().contains(diff_id)
    }

    /// Moves an unpacked layer into place. The caller holds the layer's lock and has pinned it.
    ///
    /// A layer with a damaged tree may already be here. Its data file is then kept, because running guests
    /// read it and images refer to its blocks.
    pub(crate) fn publish_layer(
        &self,
        diff_id: &str,
        unpacked: Unpacked,
        places: &Places,
    ) -> Result<LayerRecord, ImageError> {
        let (Some(data), Some(tree)) = (self.data_path(diff_id), self.tree_path(diff_id)) else {
            return Err(ImageError::Unknown(diff_id.to_owned()));
        };
        let Unpacked { data: new_data, tree: new_tree, content_bytes, tree_bytes } = unpacked;
        let point = Point::ImageLayerRename;
        let known = self.data_that_is_here(diff_id, content_bytes, &places.data, &data)?;
        let is_new = known.is_none();
        let data_verity = match known {
            Some(known) => Ok(known.data_verity),
            None if content_bytes == 0 => Ok(None),
            None => files::publish_sealed(point, new_data, &places.data, &data),
        };
        let published = data_verity.and_then(|data_verity| {
            let tree_verity = files::publish_sealed(point, new_tree, &places.tree, &tree)?;
            self.add_layer(diff_id, LayerRecord { content_bytes, tree_bytes, data_verity, tree_verity })
        });
        published.inspect_err(|_| {
            // The index does not have them, so no removal would ever find them. The disk may be full.
            if is_new {
                remove_files([&data, &tree]).unwrap_or_else(|error| {
                    tracing::warn!(diff_id, %error, "files of an unfinished layer are left");
                });
            }
        })
    }

    /// Writes the index with a published layer.
    fn add_layer(&self, diff_id: &str, layer: LayerRecord) -> Result<LayerRecord, ImageError> {
        let _writer = self.writer();
        let mut index = self.state().index.clone();
        index.layers.insert(diff_id.to_owned(), layer.clone());
        if !index.named_layers().contains(diff_id) {
            index.unfinished.insert(diff_id.to_owned());
        }
        index.write(&self.index_path())?;
        self.state().index = index;
        Ok(layer)
    }

    /// Returns the layer if its contents are already here, as referenced by images. The contents are
    /// compared, because this case is rare.
    fn data_that_is_here(
        &self,
        diff_id: &str,
        content_bytes: u64,
        unpacked: &Path,
        data: &Path,
    ) -> Result<Option<LayerRecord>, ImageError> {
        let Some(known) = self.layer(diff_id) else { return Ok(None) };
        let is_same = known.content_bytes == content_bytes
            && (content_bytes == 0
                || is_same(unpacked, data, known.data_verity.as_ref())
                    .map_err(ImageError::disk("comparing with its layer", data))?);
        if !is_same && self.is_named(diff_id) {
            return Err(unlike_stored(data));
        }
        Ok(is_same.then_some(known))
    }

    /// Removes unneeded layers. A failure does not stop the others.
    pub(super) fn remove_layers(&self) -> Result<(), ImageError> {
        let mut outcome = Ok(());
        let unneeded = self.state().unneeded_layers();
        for diff_id in unneeded {
            // A pull pins a layer before it takes its lock. So either the pin is seen here, or the pull finds
            // the layer gone.
            let Some(_lock) = self.layer_locks.try_lock(&diff_id) else { continue };
            let taken = {
                let mut state = self.state();
                let is_pinned = state.pins.contains_key(&diff_id);
                if is_pinned { None } else { state.index.layers.remove(&diff_id) }
            };
            let Some(record) = taken else { continue };
            let paths = [self.data_path(&diff_id), self.tree_path(&diff_id)];
            if let Err(error) = remove_files(paths.iter().flatten()) {
                self.state().index.layers.insert(diff_id, record);
                outcome = outcome.and(Err(error));
            }
        }
        outcome
    }
}

/// Removes files of a layer, up to the first failure.
fn remove_files<'a>(paths: impl IntoIterator<Item = &'a PathBuf>) -> Result<(), ImageError> {
    paths.into_iter().try_for_each(|path| files::remove_at(Point::ImageLayerRemove, path))
}

/// Images refer to the blocks of these contents, so no others may take their place.
fn unlike_stored(data: &Path) -> ImageError {
    let reason = "it is missing, or differs from its layer's contents: remove the images with this layer";
    ImageError::disk("reading", data)(io::Error::new(io::ErrorKind::InvalidData, reason))
}

/// Returns true if the file at `other` is the stored one and has the contents of `one`.
fn is_same(one: &Path, other: &Path, stored: Option<&VerityDigest>) -> io::Result<bool> {
    let (one, other) = match (File::open(one), File::open(other)) {
        (Ok(one), Ok(other)) => (one, other),
        (_, Err(error)) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        (Err(error), _) | (_, Err(error)) => return Err(error),
    };
    if one.metadata()?.len() != other.metadata()?.len() || verity::check(&other, stored).is_err() {
        return Ok(false);
    }
    let (mut one, mut other) = (BufReader::new(one), BufReader::new(other));
    let (mut left, mut right) = (vec![0; COMPARE_BYTES], vec![0; COMPARE_BYTES]);
    loop {
        let count = one.read(&mut left)?;
        if count == 0 {
            return Ok(true);
        }
        other.read_exact(&mut right[..count])?;
        if left[..count] != right[..count] {
            return Ok(false);
        }
    }
}
