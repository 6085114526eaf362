//! Checks if the files of an image or a layer are the stored ones. Owns the check from outside: file types,
//! lengths and digests; never reads the contents.

use std::fs::{self, File};
use std::path::PathBuf;

use super::{Index, LayerRecord, Record, Store};
use crate::verity::{self, VerityDigest};

impl Store {
    /// Returns true if all the image's files for a guest exist, have the right length, and are the stored
    /// ones.
    pub(crate) fn has_files(&self, index: &Index, record: &Record) -> bool {
        is_stored(self.image_path(&record.id), record.file_bytes, record.verity.as_ref())
            && record
                .layers
                .iter()
                .all(|diff_id| index.layers.get(diff_id).is_some_and(|layer| self.has_data(diff_id, layer)))
    }

    /// Returns true if a layer's tree exists, has the right length, and is the stored one.
    pub(super) fn has_tree(&self, diff_id: &str, layer: &LayerRecord) -> bool {
        is_stored(self.tree_path(diff_id), layer.tree_bytes, layer.tree_verity.as_ref())
    }

    /// Returns true if a layer's contents exist, have the right length, and are the stored ones.
    pub(super) fn has_data(&self, diff_id: &str, layer: &LayerRecord) -> bool {
        layer.content_bytes == 0
            || is_stored(self.data_path(diff_id), layer.file_bytes(), layer.data_verity.as_ref())
    }
}

fn is_stored(path: Option<PathBuf>, bytes: u64, digest: Option<&VerityDigest>) -> bool {
    let Some(path) = path else { return false };
    // Only a regular file is opened. A pipe would wait for its writer.
    let is_long = fs::metadata(&path).is_ok_and(|found| found.is_file() && found.len() == bytes);
    is_long
        && match digest {
            None => true,
            Some(_) => File::open(&path).and_then(|file| verity::check(&file, digest)).is_ok_and(|()| true),
        }
}
