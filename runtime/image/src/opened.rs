//! An image opened for a guest: its files and their places in the guest's mapping. Owns no file's content.

use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use runtime_erofs::{BLOB_ALIGNMENT, place_blobs};

use crate::error::ImageError;
use crate::store::{Index, Lease, Record, Store};
use crate::verity::{self, VerityDigest};

/// An image's files, forming one EROFS side by side, and the right to use them.
#[derive(Debug)]
pub struct OpenImage {
    /// The files, in order. The first one begins at 0.
    pub parts: Vec<ImagePart>,
    /// Keeps the files while the image is in use, even if the image is removed. To be dropped when no VM uses
    /// it any more.
    pub lease: Lease,
}

/// A file of an image, opened for reading.
#[derive(Debug)]
pub struct ImagePart {
    /// The file. All of it is mapped.
    pub file: File,
    /// The start in bytes: a multiple of 2 MiB, and never before the end of the previous part.
    pub offset: u64,
    /// Bytes of the file, a multiple of 2 MiB.
    pub length: u64,
}

/// A file to open.
struct Wanted {
    path: PathBuf,
    offset: u64,
    length: u64,
    verity: Option<VerityDigest>,
}

/// Lists an image's files with content for a guest.
fn wanted(store: &Store, index: &Index, record: &Record) -> Option<Vec<Wanted>> {
    let layers = index.layer_bytes(record)?;
    let (begins, _) = place_blobs(record.file_bytes, &layers);
    let (path, verity) = (store.image_path(&record.id)?, record.verity.clone());
    let mut files = vec![Wanted { path, offset: 0, length: record.file_bytes, verity }];
    for ((diff_id, bytes), offset) in record.layers.iter().zip(layers).zip(begins) {
        if bytes > 0 {
            let (path, length) = (store.data_path(diff_id)?, bytes.checked_next_multiple_of(BLOB_ALIGNMENT)?);
            files.push(Wanted {
                path,
                offset,
                length,
                verity: index.layers.get(diff_id)?.data_verity.clone(),
            });
        }
    }
    Some(files)
}

/// Opens the files of a listed image. Blocks on the disk.
///
/// # Errors
/// [`ImageError::Unknown`], and [`ImageError::Disk`], also for a file with another length or content than
/// stored.
pub(crate) fn open(store: &Arc<Store>, id: &str) -> Result<OpenImage, ImageError> {
    let unknown = || ImageError::Unknown(id.to_owned());
    // Taken first, so a removal from now on keeps the files.
    let lease = store.lease(id).ok_or_else(unknown)?;
    let (index, record) = store.indexed(id).ok_or_else(unknown)?;
    let files = wanted(store, &index, &record).ok_or_else(unknown)?;
    let part = |wanted: Wanted| {
        let file = open_file(&wanted)?;
        Ok::<_, ImageError>(ImagePart { file, offset: wanted.offset, length: wanted.length })
    };
    Ok(OpenImage { parts: files.into_iter().map(part).collect::<Result<_, _>>()?, lease })
}

fn open_file(Wanted { path, length, verity, .. }: &Wanted) -> Result<File, ImageError> {
    let file = File::open(path).map_err(ImageError::disk("opening", path))?;
    let found = file.metadata().map_err(ImageError::disk("opening", path))?.len();
    if found != *length {
        let reason =
            format!("it has {found} bytes, and should have {length}: remove the image, and pull it again");
        let error = io::Error::new(io::ErrorKind::InvalidData, reason);
        return Err(ImageError::disk("opening", path)(error));
    }
    // Checked on the open file: the path may lead to another file by now.
    verity::check(&file, verity.as_ref()).map_err(ImageError::disk("opening", path))?;
    Ok(file)
}
