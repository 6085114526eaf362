//! Images that are on this node.

use std::fmt::Debug;
use std::fs::File;

use runtime_image::{ImageError, Images};
use runtime_spec::ImageConfig;

use super::error::BackendError;

/// Images that are on this node.
pub(crate) trait ImageSource: Debug + Send + Sync {
    /// Finds an image by tag, digest reference or id.
    fn find(&self, name: &str) -> Option<FoundImage>;
    /// Opens the image's EROFS for reading.
    fn open(&self, id: &str) -> Result<File, BackendError>;
}

/// An image that is on this node.
#[derive(Clone, Debug)]
pub(crate) struct FoundImage {
    /// `sha256:…`
    pub(crate) id: String,
    /// `registry/repository@sha256:…`, or the id of an image that was never pulled by a name.
    pub(crate) reference: String,
    /// Size of the image's file system.
    pub(crate) bytes: u64,
    pub(crate) config: ImageConfig,
}

/// The node's image store.
#[derive(Debug)]
pub(crate) struct StoredImages(pub(crate) Images);

impl ImageSource for StoredImages {
    fn find(&self, name: &str) -> Option<FoundImage> {
        let image = self.0.find(name)?;
        let reference = image.repo_digests.into_iter().next().unwrap_or_else(|| image.id.clone());
        Some(FoundImage { id: image.id, reference, bytes: image.size_bytes, config: image.config.run })
    }

    fn open(&self, id: &str) -> Result<File, BackendError> {
        let image = self
            .0
            .find(id)
            .ok_or_else(|| BackendError::failed(format!("image {id} was removed meanwhile")))?;
        Ok(self.0.open_erofs(&image)?)
    }
}

impl From<ImageError> for BackendError {
    fn from(error: ImageError) -> Self {
        BackendError::failed(error)
    }
}
