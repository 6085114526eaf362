//! Images on this node.

use std::fmt::Debug;
use std::os::fd::OwnedFd;

use async_trait::async_trait;
use proto_vmm::{Device, ImagePart};
use runtime_blocking::Pool;
use runtime_image::{ImageError, Images, OpenImage};
use runtime_spec::ImageConfig;

use super::error::BackendError;

/// Images on this node.
#[async_trait]
pub(crate) trait ImageSource: Debug + Send + Sync {
    /// Finds an image by tag, digest reference or id.
    fn find(&self, name: &str) -> Option<FoundImage>;
    /// Whether the image of this id was not removed.
    fn is_listed(&self, id: &str) -> bool;
    /// Opens the image to be plugged.
    async fn open(&self, id: &str) -> Result<OpenedImage, BackendError>;
    /// Takes a lease for a VM into which an earlier daemon plugged the image; `None` if nothing is left of
    /// the image.
    fn lease_again(&self, id: &str) -> Option<ImageLease>;
    /// Declares all such leases as taken. Unused removed images may now be deleted.
    async fn users_are_known(&self) -> Result<(), BackendError>;
}

/// Keeps the files of an image, also of a removed one, until it is dropped.
#[derive(Debug)]
pub(crate) struct ImageLease {
    _lease: Box<dyn Debug + Send + Sync>,
}

impl ImageLease {
    pub(crate) fn new(lease: impl Debug + Send + Sync + 'static) -> ImageLease {
        ImageLease { _lease: Box::new(lease) }
    }
}

/// An image ready to be plugged, and the lease to hold while it is.
#[derive(Debug)]
pub(crate) struct OpenedImage {
    pub(crate) device: Device<OwnedFd>,
    pub(crate) lease: ImageLease,
}

impl From<OpenImage> for OpenedImage {
    /// An image of one file takes the form known to every VMM.
    fn from(image: OpenImage) -> OpenedImage {
        let part = |part: runtime_image::ImagePart| {
            let runtime_image::ImagePart { file, offset, length } = part;
            ImagePart { file: OwnedFd::from(file), offset, length }
        };
        let mut parts: Vec<_> = image.parts.into_iter().map(part).collect();
        let device = match parts.pop() {
            Some(ImagePart { file, offset: 0, .. }) if parts.is_empty() => Device::Pmem { image: file },
            last => Device::Layered { parts: parts.into_iter().chain(last).collect() },
        };
        OpenedImage { device, lease: ImageLease::new(image.lease) }
    }
}

/// An image on this node.
#[derive(Clone, Debug)]
pub(crate) struct FoundImage {
    /// `sha256:…`
    pub(crate) id: String,
    /// `registry/repository@sha256:…`, or the id if the image was never pulled by a name.
    pub(crate) reference: String,
    /// `registry/repository:tag`, each of them.
    pub(crate) tags: Vec<String>,
    /// Bytes of the guest's address space taken by the image.
    pub(crate) bytes: u64,
    pub(crate) config: ImageConfig,
}

impl FoundImage {
    /// The image's name for people: the tag that the container's author has written, or any other. It is
    /// empty without a tag.
    pub(crate) fn tag_of(&self, author: &str) -> String {
        let whole = runtime_image::whole_name(author).ok();
        let written = self.tags.iter().find(|tag| whole.as_ref() == Some(*tag));
        written.or_else(|| self.tags.first()).cloned().unwrap_or_default()
    }
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
        let (tags, bytes) = (image.repo_tags, image.range_bytes);
        Some(FoundImage { id: image.id, reference, tags, bytes, config: image.config.run.clone() })
    }

    fn is_listed(&self, id: &str) -> bool {
        self.images.find(id).is_some()
    }

    async fn open(&self, id: &str) -> Result<OpenedImage, BackendError> {
        let (images, id) = (self.images.clone(), id.to_owned());
        let opened = self.disk.run(move || images.open_image(&id)).await?;
        Ok(opened.map(OpenedImage::from)?)
    }

    fn lease_again(&self, id: &str) -> Option<ImageLease> {
        self.images.lease_again(id).map(ImageLease::new)
    }

    async fn users_are_known(&self) -> Result<(), BackendError> {
        let images = self.images.clone();
        Ok(self.disk.run(move || images.users_are_known()).await??)
    }
}

impl From<ImageError> for BackendError {
    fn from(error: ImageError) -> Self {
        BackendError::failed(error)
    }
}
