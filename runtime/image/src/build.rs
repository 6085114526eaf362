//! Stacks unpacked layers into a tree and writes the image's file. Owns its padding; never touches the index.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;

use runtime_erofs::{BlobSource, Tree, WriteError, write_image};
use runtime_fail_points::{Point, pass};

use crate::error::{ContentError, ImageError};
use crate::layer::Unpacked;

/// Image files are a multiple of this, since a pmem device is mapped in huge pages.
pub(crate) const IMAGE_ALIGNMENT: u64 = 2 << 20;

const BUFFER: usize = 1 << 20;

/// The layers' data, by number of the blob.
struct DataFiles(Vec<File>);

impl BlobSource for DataFiles {
    fn read_at(&mut self, blob: u32, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let file = self.0.get(blob as usize).ok_or(io::ErrorKind::NotFound)?;
        file.read_exact_at(buffer, offset)
    }
}

/// Layers being stacked, lowest first.
#[derive(Debug, Default)]
pub(crate) struct Stack {
    tree: Tree,
    data: Vec<File>,
}

impl Stack {
    /// Puts a layer on top. The number of its data blob is that of the layers below. `what` names the layer in errors.
    pub(crate) fn add(&mut self, what: &str, layer: Unpacked) -> Result<(), ImageError> {
        self.data.push(layer.data);
        self.tree
            .apply_layer(layer.entries)
            .map_err(|error| ImageError::content(what, ContentError::Entry(error)))
    }

    /// Writes the image to a new file at `path`, padded, and returns the file and the bytes in use.
    pub(crate) fn write(self, id_hex: &str, path: &Path) -> Result<(File, u64), ImageError> {
        pass(Point::ImageMake).map_err(ImageError::disk("creating", path))?;
        let file = File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .open(path)
            .map_err(ImageError::disk("creating", path))?;
        // The same image has the same identity everywhere.
        let mut uuid = [0; 16];
        let digest = hex::decode(id_hex).unwrap_or_default();
        for (to, from) in uuid.iter_mut().zip(digest) {
            *to = from;
        }
        let mut out = BufWriter::with_capacity(BUFFER, file);
        let bytes =
            write_image(&self.tree, uuid, &mut DataFiles(self.data), &mut out).map_err(
                |error| match error {
                    WriteError::Output(source) => ImageError::disk("writing", path)(source),
                    WriteError::Data { source, .. } => {
                        ImageError::disk("reading layer data for", path)(source)
                    }
                    WriteError::TooLarge => {
                        ImageError::content(format!("image sha256:{id_hex}"), ContentError::TooLarge)
                    }
                },
            )?;
        out.flush().map_err(ImageError::disk("writing", path))?;
        let file = out.into_inner().map_err(|error| ImageError::disk("writing", path)(error.into_error()))?;
        let padded = bytes.next_multiple_of(IMAGE_ALIGNMENT);
        file.set_len(padded).map_err(ImageError::disk("padding", path))?;
        Ok((file, bytes))
    }
}
