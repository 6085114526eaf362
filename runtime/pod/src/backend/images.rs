//! Images that are on this node.

use std::fmt::Debug;
use std::fs::File;

use async_trait::async_trait;
use runtime_blocking::Pool;
use runtime_image::{ImageError, Images};
use runtime_spec::ImageConfig;

use super::error::BackendError;

/// Images that are on this node.
#[async_trait]
pub(crate) trait ImageSource: Debug + Send + Sync {
    /// Finds an image by tag, digest reference or id.
    fn find(&self, name: &str) -> Option<FoundImage>;
    /// Opens the image's EROFS for reading.
    async fn open(&self, id: &str) -> Result<File, BackendError>;
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

/// The node's image store. Opening runs beside the async threads: an image is on a disk.
#[derive(Debug)]
pub(crate) struct StoredImages {
    pub(crate) images: Images,
    pub(crate) disk: Pool,
}

#[async_trait]
impl ImageSource for StoredImages {
    fn find(&self, name: &str) -> Option<FoundImage> {
        let image = self.images.find(name)?;
        let reference = image.repo_digests.into_iter().next().unwrap_or_else(|| image.id.clone());
        Some(FoundImage { id: image.id, reference, bytes: image.size_bytes, config: image.config.run })
    }

    async fn open(&self, id: &str) -> Result<File, BackendError> {
        let images = self.images.clone();
        let image = images
            .find(id)
            .ok_or_else(|| BackendError::failed(format!("image {id} was removed meanwhile")))?;
        Ok(self.disk.run(move || images.open_erofs(&image)).await??)
    }
}

impl From<ImageError> for BackendError {
    fn from(error: ImageError) -> Self {
        BackendError::failed(error)
    }
}
