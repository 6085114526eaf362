//! Stacks layers into a tree and writes the image's own file. Owns its padding; never touches the index.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use runtime_erofs::{BLOB_ALIGNMENT, Tree, WriteError, write_metadata};
use runtime_fail_points::{Point, pass};

use crate::digest::digest_hex;
use crate::error::{ContentError, ImageError};
use crate::tree_file::TreeFile;

const BUFFER: usize = 1 << 20;

/// Layers being stacked, lowest first.
#[derive(Debug, Default)]
pub(crate) struct Stack {
    tree: Tree,
}

impl Stack {
    /// Adds a layer on top. Its contents are in data file number `blob`. `what` names the layer in errors.
    pub(crate) fn add(&mut self, what: &str, layer: &TreeFile, blob: usize) -> Result<(), ImageError> {
        let mut entries = layer.entries();
        self.tree
            .apply_layer(blob, entries.by_ref())
            .map_err(|error| ImageError::content(what, ContentError::Entry(error)))?;
        entries.end().map_err(|error| ImageError::content(what, ContentError::Tree(error.to_string())))
    }

    /// Writes the image's metadata to a new file at `path`, with padding, and returns the file and the bytes
    /// in use. `blobs` lists the sizes of the data files in bytes, by number.
    pub(crate) fn write(self, id: &str, blobs: &[u64], path: &Path) -> Result<(File, u64), ImageError> {
        pass(Point::ImageMake).map_err(ImageError::disk("creating", path))?;
        let file = File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .open(path)
            .map_err(ImageError::disk("creating", path))?;
        // The same image has the same identity everywhere.
        let mut uuid = [0; 16];
        let hex = digest_hex(id).map_err(|wrong| ImageError::content(format!("image {id}"), wrong))?;
        let digest = hex::decode(hex).unwrap_or_default();
        for (to, from) in uuid.iter_mut().zip(digest) {
            *to = from;
        }
        let mut out = BufWriter::with_capacity(BUFFER, file);
        let what = || format!("image {id}");
        let bytes = write_metadata(&self.tree, uuid, blobs, &mut out).map_err(|error| match error {
            WriteError::Output(source) => ImageError::disk("writing", path)(source),
            WriteError::Extent { .. } => ImageError::content(what(), ContentError::Tree(error.to_string())),
            WriteError::TooLarge => ImageError::content(what(), ContentError::TooLarge),
        })?;
        out.flush().map_err(ImageError::disk("writing", path))?;
        let file = out.into_inner().map_err(|error| ImageError::disk("writing", path)(error.into_error()))?;
        let padded = bytes.next_multiple_of(BLOB_ALIGNMENT);
        file.set_len(padded).map_err(ImageError::disk("padding", path))?;
        Ok((file, bytes))
    }
}
